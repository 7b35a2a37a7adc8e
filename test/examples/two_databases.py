"""Tests docs/examples/two-databases with two servers: the service is killed before each of its
statements and COMMITs, then services and servers are killed at random.

Run by test/tools/examples inside a private PostgreSQL server, which is bank A's; it starts another one for bank B.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import psycopg

from waiting import LOGS, TOP, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'two-databases'
ACCOUNTS, OPENING = 20, 1000
SEED = int(os.environ.get('SEED', random.randrange(10**6)))


class Server:
    """A private server, which can be killed with all of its processes and started again."""

    def __init__(self, environment):
        self.environment = environment
        self.conninfo = (f"host={environment['PGHOST']} port={environment['PGPORT']} user=postgres dbname=postgres"
                         " connect_timeout=5")

    def query(self, sql, *parameters):
        with psycopg.connect(self.conninfo, autocommit=True) as db:
            cursor = db.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else None

    def value(self, sql, *parameters):
        return self.query(sql, *parameters)[0][0]

    def kill(self):
        postmaster = int((pathlib.Path(self.environment['PGDATA']) / 'postmaster.pid').read_text().split()[0])
        children = subprocess.run(('ps', '-o', 'pid=', '--ppid', str(postmaster)), capture_output=True, text=True,
                                  check=False).stdout.split()
        for pid in (postmaster, *map(int, children)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def start(self):
        wait_until(lambda: subprocess.run((TOP / 'test/tools/server', 'start'), env=self.environment, check=False,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0,
                   'the server starts again')


class Doomed(psycopg.Connection):
    """A connection whose process kills itself before a given statement or COMMIT. After one is before the next: the
    last are those that close the connections."""
    left = int(os.environ.get('DIE_AT', '-1'))

    @classmethod
    def passes(cls):
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        cls.left -= 1

    def execute(self, *arguments, **options):
        self.passes()
        return super().execute(*arguments, **options)

    def commit(self):
        self.passes()
        super().commit()


def one_turn():
    """The service, for one turn that may be its last."""
    sys.path.insert(0, str(FOLDER))
    import service
    with Doomed.connect(os.environ['BANK_A'], autocommit=True) as a, Doomed.connect(os.environ['BANK_B']) as b:
        service.turn(a, b)
    os._exit(0)


class TwoDatabases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        LOGS.mkdir(parents=True, exist_ok=True)
        cls.a = Server(dict(os.environ))
        with tempfile.NamedTemporaryFile(suffix='.json') as told:
            tell = 'import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], "w"))'
            cls.other = subprocess.Popen((TOP / 'test/tools/with-postgres', 'bash', '-c',
                                          f"/usr/bin/python3 -c '{tell}' {told.name} && read -r forever"),
                                         stdin=subprocess.PIPE)
            wait_until(lambda: pathlib.Path(told.name).read_text().endswith('}'), 'the second server runs')
            cls.b = Server(json.loads(pathlib.Path(told.name).read_text()))
        for server, name in (cls.a, 'bank_a'), (cls.b, 'bank_b'):
            server.query('CREATE EXTENSION stacksaga')
            server.query((FOLDER / f'{name}.sql').read_text())
            server.query(f'INSERT INTO account SELECT i, {OPENING} FROM generate_series(1, {ACCOUNTS}) AS i')
        # The same saga with a last step that fails, so that the credit is taken back.
        cls.a.query("""
            CREATE FUNCTION refuse(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql
                AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'SG424'; END $$;
            SELECT stacksaga.define_saga('send_in_vain', ARRAY[
                stacksaga.sql_step('debit', 'debit(stacksaga.step_call)', 'refund(stacksaga.step_call)'),
                stacksaga.queue_step('credit', queue => 'bank_b', compensable => true),
                stacksaga.sql_step('refuse', 'refuse(stacksaga.step_call)')],
                compensation_retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '50 milliseconds'))""")

    @classmethod
    def tearDownClass(cls):
        cls.other.stdin.close()
        cls.other.wait()

    def setUp(self):
        self.services = []
        self.log = (LOGS / f'two_databases.{self._testMethodName}.log').open('wb')

    def tearDown(self):
        for service in self.services:
            service.kill()
            service.wait()
        self.log.close()

    def start(self, *command, **environment):
        service = subprocess.Popen(('/usr/bin/python3', '-B', *command), stdout=self.log, stderr=self.log, env={
            **os.environ, 'BANK_A': self.a.conninfo, 'BANK_B': self.b.conninfo, 'LEASE': '200 milliseconds',
            **environment})
        self.services.append(service)
        return service

    def start_saga(self, saga, to=None):
        return self.a.value('SELECT saga_id FROM stacksaga.start_saga(%s, %s::jsonb)', saga, json.dumps(
            {'from': random.randint(1, ACCOUNTS), 'to': to or random.randint(1, ACCOUNTS), 'amount': 3}))

    def run_pending(self):
        self.a.query('SELECT stacksaga.run_pending()')

    def claimable(self):
        """Runs what is A's own until the service has something to do, or the saga is over."""
        def ready():
            self.run_pending()
            return self.a.value("""SELECT NOT EXISTS (SELECT FROM stacksaga.work) OR EXISTS (SELECT FROM stacksaga.work
                WHERE queue = 'bank_b' AND lease_until IS NULL AND due_at <= stacksaga.clock_now())""")
        wait_until(ready, 'a step is due')

    def finish(self, saga_id):
        """A service that nobody kills, turn by turn, to the end of the saga."""
        def over():
            self.claimable()
            self.assertEqual(self.start(__file__, 'turn').wait(), 0)
            self.run_pending()
            return self.a.value("SELECT status IN ('completed', 'failed') FROM stacksaga.sagas WHERE saga_id = %s", saga_id)
        wait_until(over, 'the saga ends')

    def prove(self):
        """No money is lost or made, nothing is done twice, and each saga's entries are those of its end."""
        total = sum(server.value('SELECT sum(balance) FROM account') for server in (self.a, self.b))
        self.assertEqual(total, 2 * ACCOUNTS * OPENING)
        entries = {}
        for server in self.a, self.b:
            for key, amount in server.query('SELECT idempotency_key, amount FROM entry'):
                self.assertNotIn(key, entries, 'an effect happened twice')
                entries[key] = amount
        self.assertEqual(self.b.value('SELECT count(*) FROM account a WHERE balance <> %s + coalesce('
                                      '(SELECT sum(amount) FROM entry e WHERE e.account = a.id), 0)', OPENING), 0)
        ends = self.a.query('SELECT saga_id, status FROM stacksaga.sagas')
        for saga_id, status in ends:
            own = {key.split(':', 1)[1]: amount for key, amount in entries.items() if key.startswith(str(saga_id))}
            with self.subTest(saga_id=saga_id, status=status):
                if status == 'completed':
                    self.assertEqual(own, {'1:act': -3, '2:act': 3})
                else:
                    self.assertEqual(sum(own.values()), 0)
                    self.assertEqual(('2:act' in own), ('2:compensate' in own))
        return dict(self.a.query('SELECT status, count(*) FROM stacksaga.sagas GROUP BY status'))

    def killed_at_each_point(self, saga, turns_before):
        """Kills the service at one point after the other of its turn, until a turn has no further point."""
        for point in range(100):
            saga_id = self.start_saga(saga)
            for _ in range(turns_before):
                self.claimable()
                self.assertEqual(self.start(__file__, 'turn').wait(), 0)
            self.claimable()
            code = self.start(__file__, 'turn', DIE_AT=str(point)).wait()
            self.finish(saga_id)
            self.prove()
            if code == 0:
                return point
            self.assertEqual(code, -signal.SIGKILL)
        return self.fail('the turn does not end')

    def test_a_service_killed_at_any_point_credits_once(self):
        # Claim, begin, update, insert, finish, commit, complete, and two ends.
        self.assertEqual(self.killed_at_each_point('send_money', 0), 9)

    def test_a_service_killed_at_any_point_takes_back_once(self):
        # Claim, begin twice, update, insert, finish, commit, complete, and two ends.
        self.assertEqual(self.killed_at_each_point('send_in_vain', 1), 10)

    def test_a_step_that_bank_b_refuses_gives_the_money_back(self):
        saga_id = self.start_saga('send_money', to=ACCOUNTS + 1)
        self.finish(saga_id)
        self.assertEqual(self.a.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id), 'failed')
        self.prove()

    def test_a_late_credit_after_its_compensation_does_nothing(self):
        sys.path.insert(0, str(FOLDER))
        import service
        order, key = {'to': 1, 'amount': 3}, 'late:2'
        with psycopg.connect(self.b.conninfo) as b:
            self.assertEqual(service.take_back(b, f'{key}:compensate', order), {'taken_back': False})
            b.commit()
            self.assertEqual(service.credit(b, f'{key}:act', order), {'credited': False})
        self.prove()

    def test_services_and_servers_killed_at_random(self):
        random.seed(SEED)
        services = [self.start(FOLDER / 'service.py') for _ in range(3)]
        self.a.query('SELECT stacksaga.worker_ensure()')
        for turn in range(40):
            for _ in range(10):
                self.start_saga(random.choice(('send_money', 'send_money', 'send_in_vain')),
                                random.choice((None, None, None, ACCOUNTS + 1)))
            victim = random.randrange(3)
            services[victim].kill()
            services[victim].wait()
            services[victim] = self.start(FOLDER / 'service.py')
            if turn % 10 == 4:
                server = random.choice((self.a, self.b))
                server.kill()
                server.start()
                self.a.query('SELECT stacksaga.worker_ensure()')
            time.sleep(random.random() / 5)
        wait_until(lambda: self.a.value("SELECT count(*) FROM stacksaga.sagas"
                                        " WHERE status NOT IN ('completed', 'failed')") == 0, 'all sagas end')
        ends = self.prove()
        self.assertGreater(ends['completed'], 0)
        self.assertGreater(ends['failed'], 0)


if __name__ == '__main__':
    if sys.argv[1:] == ['turn']:
        one_turn()
    print(f'seed {SEED}')
    unittest.main(verbosity=2)
