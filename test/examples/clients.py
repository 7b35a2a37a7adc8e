"""Tests docs/examples/clients: workers and consumers in each language that is at hand, killed, cut off and told to end.

Run by test/tools/examples inside a private PostgreSQL server. What the programs print is left in
tmp_check/examples. What is not installed of Java (a compiler, the JDBC driver) and Go (a compiler, pgx below GOPATH) is left out and said.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import psycopg
import psycopg.types.json

from tcp_to_server import serve_by_tcp
from turned_standby import TurnedStandby
from waiting import LOGS, TOP, wait_for_end, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'clients'
JDBC = pathlib.Path('/usr/share/java/postgresql.jar')
BALANCE = 1000000
GOPATH = pathlib.Path(os.environ.get('GOPATH', '/usr/share/gocode'))

# The schema's charge(), with what the tests need: a step that lasts and one that fails as it is told to.
TROUBLE = """
CREATE FUNCTION trouble(input jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF input ? 'raise' THEN
        RAISE 'as told' USING ERRCODE = input->>'raise';
    END IF;
    IF input ? 'gate' THEN   -- lasts until nobody holds the gate
        PERFORM pg_advisory_xact_lock_shared((input->>'gate')::bigint);
    END IF;
END $$;
ALTER FUNCTION charge(text, text, jsonb) RENAME TO charge_at_once;
CREATE FUNCTION charge(idempotency_key text, direction text, input jsonb) RETURNS json LANGUAGE sql AS $$
    SELECT trouble(input) WHERE direction = 'act';
    SELECT charge_at_once(idempotency_key, direction, input);
    SELECT CASE WHEN direction <> 'act' THEN '{}'
                WHEN input ? 'large' THEN to_json(repeat('x', (input->>'large')::int))
                WHEN input ? 'output' THEN (input->>'output')::json   -- which holds what jsonb does not
                ELSE '{"charged": true}' END
$$;
SELECT stacksaga.define_saga('pay', ARRAY[stacksaga.queue_step('charge', queue => 'payments', compensable => true, timeout => '10 minutes',
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '10 ms'))]);
-- A step may be lost with each of the workers that are killed.
SELECT stacksaga.define_saga('pay patiently', ARRAY[stacksaga.queue_step('charge', queue => 'payments', compensable => true,
    timeout => '10 minutes', retry => stacksaga.retry_policy(max_attempts => 20, initial_interval => '10 ms'))]);
"""


class Programs:
    """The tests, for the language of a subclass."""

    address = {name: os.environ[name] for name in ('PGHOST', 'PGPORT')}  # of what the programs connect to

    @classmethod
    def setUpClass(cls):
        cls.db = psycopg.connect(autocommit=True)
        cls.db.execute('CREATE EXTENSION stacksaga')
        cls.db.execute((FOLDER / 'schema.sql').read_text())
        cls.db.execute(TROUBLE)
        LOGS.mkdir(parents=True, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        cls.db.execute('DROP EXTENSION stacksaga CASCADE')
        cls.db.execute('DROP SCHEMA public CASCADE; CREATE SCHEMA public')
        cls.db.close()

    def run(self, result=None):
        bad = len(result.errors) + len(result.failures)
        super().run(result)
        if len(result.errors) + len(result.failures) > bad:
            print('what its programs said:', pathlib.Path(self.log.name).read_text(errors='replace')[-4000:], sep='\n')

    def setUp(self):
        self.db.execute('TRUNCATE charge, ledger')
        self.db.execute('UPDATE account SET balance = %s', (BALANCE,))
        self.programs = []
        self.log = (LOGS / f'{type(self).__name__}.{self._testMethodName}.log').open('wb')

    def tearDown(self):
        for program in self.programs:
            program.kill()
            program.wait()
        # A session whose client was killed waits on.
        self.end_sessions()
        self.log.close()

    def end_sessions(self):
        self.db.execute("""SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
                            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'""")

    def start(self, what, lease=30, address={}):
        program = subprocess.Popen((*self.command, what), cwd=FOLDER, stdout=self.log, stderr=self.log,
                                   env={**os.environ, **self.address, **self.environment, **address, 'LEASE': str(lease)})
        self.programs.append(program)
        return program

    def start_sagas(self, count, amount=1, saga='pay', **more):
        more = psycopg.types.json.Jsonb({'amount': amount, **more})
        return self.db.execute("SELECT (stacksaga.start_saga(%s, %s)).saga_id FROM generate_series(1, %s)",
                               (saga, more, count)).fetchone()[0]

    def value(self, query, *arguments):
        return self.db.execute(query, arguments).fetchone()[0]

    def wait_for_all(self):
        wait_until(lambda: self.value('SELECT count(*) = 0 FROM stacksaga.work'), 'all sagas end')

    def wait_for_waiting(self, count):
        wait_until(lambda: self.value("SELECT count(*) FROM pg_stat_activity"
                                      " WHERE wait_event = 'Extension' AND query LIKE 'CALL%%'") == count,
                   f'{count} programs wait')

    def wait_for_sessions(self, count):
        # Before its first call a program may not know yet what to do when it is told to end.
        asking = """SELECT count(*) FROM pg_stat_activity
                     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
                       AND query ~ 'claim_steps|complete_step|wait_for_steps'"""
        wait_until(lambda: self.value(asking) >= count, f'{count} programs have asked for steps')

    def forget_killed(self):
        """Afterwards wait_for_sessions() does not count programs that were killed."""
        self.end_sessions()

    def wait_for_gate(self, count=1):
        wait_until(lambda: self.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
                   == count, f'{count} steps or messages wait at the gate')

    def assert_charged(self, count):
        self.assertEqual(self.value('SELECT count(*) FROM charge WHERE NOT undone'), count)
        self.assertEqual(self.value('SELECT balance FROM account'), BALANCE - count)

    def test_steps_are_done_once_while_workers_are_killed_and_told_to_end(self):
        self.start_sagas(300, saga='pay patiently')
        for turn in range(3):
            done = self.value('SELECT count(*) FROM charge')
            killed, told = self.start('work', lease=1), self.start('work', lease=1)
            wait_until(lambda: self.value('SELECT count(*) FROM charge') >= min(done + 50, 300), 'they work')
            self.wait_for_sessions(2)
            killed.kill()
            told.terminate()
            self.assertEqual(wait_for_end(told), 0)
            self.forget_killed()
        self.start('work', lease=1)
        self.wait_for_all()
        self.assert_charged(300)

    def test_a_killed_worker_s_step_is_done_under_the_same_key(self):
        with psycopg.connect() as gate:
            gate.execute('SELECT pg_advisory_lock(1)')
            saga_id = self.start_sagas(1, gate=1)
            killed = self.start('work', lease=1)
            self.wait_for_gate()
            killed.kill()
            self.start('work', lease=1)
            self.wait_for_gate(2)
        self.wait_for_all()
        self.assert_charged(1)
        self.assertEqual(self.value('SELECT max(attempt) FROM stacksaga.saga_history WHERE saga_id = %s', saga_id), 2)

    def test_a_long_step_is_kept_by_its_heartbeat(self):
        with psycopg.connect() as gate:
            gate.execute('SELECT pg_advisory_lock(1)')
            saga_id = self.start_sagas(1, gate=1)
            self.start('work', lease=2)
            self.wait_for_gate()
            self.start('work', lease=2)  # it would take the step when the lease runs out
            first = self.value('SELECT clock_timestamp()')
            wait_until(lambda: self.value("SELECT clock_timestamp() > %s + interval '5 s'", first), 'time passes')
            self.wait_for_gate(1)
        self.wait_for_all()
        self.assert_charged(1)
        self.assertEqual(self.value('SELECT max(attempt) FROM stacksaga.saga_history WHERE saga_id = %s', saga_id), 1)

    def test_a_worker_ends_though_its_heartbeat_is_connecting(self):
        with psycopg.connect() as gate, psycopg.connect() as startup:
            gate.execute('SELECT pg_advisory_xact_lock(1)')
            self.start_sagas(1, gate=1)
            worker = self.start('work', lease=15)  # the first heartbeat comes after five seconds, behind the lock
            self.wait_for_gate()
            # New sessions read it before they are ready.
            startup.execute('LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE')
            wait_until(lambda: self.value("SELECT count(*) FROM pg_locks WHERE NOT granted"
                                          " AND relation = 'pg_db_role_setting'::regclass") > 0, 'its heartbeat connects')
            worker.terminate()
            gate.rollback()
            self.wait_for_all()
        self.assertEqual(wait_for_end(worker), 0)
        self.assert_charged(1)

    def test_a_failure_is_answered_by_the_class_of_its_sqlstate(self):
        self.start('work')
        for state, outcome in (('SG424', ['non_retryable']), ('SR503', ['retryable'] * 2),
                               ('SR504', ['unknown'] * 2), ('22012', ['unknown'] * 2)):
            saga_id = self.start_sagas(1, **{'raise': state})
            self.wait_for_all()
            self.assertEqual(self.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id), 'failed')
            self.assertEqual(self.value("""SELECT array_agg(error_class ORDER BY attempt) FROM stacksaga.saga_history
                                            WHERE saga_id = %s AND direction = 'act'""", saga_id), outcome, state)

    def test_an_act_that_comes_after_its_compensation_is_refused(self):
        saga_id = self.start_sagas(1)
        self.db.execute("INSERT INTO charge VALUES (%s, 0, true)", (f'{saga_id}:1',))
        self.start('work')
        self.wait_for_all()
        self.assertEqual(self.value("""SELECT array_agg(error_class) FROM stacksaga.saga_history
                                        WHERE saga_id = %s AND direction = 'act'""", saga_id), ['non_retryable'])
        self.assert_charged(0)

    def test_a_step_whose_output_the_server_refuses_says_so_and_is_undone(self):
        worker = self.start('work')
        for why, trouble in (('too large', {'large': 2000000}), ('Unicode', {'output': r'"\u0000"'})):
            saga_id = self.start_sagas(1, **trouble)
            self.wait_for_all()
            self.assertEqual(self.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id), 'failed')
            attempts = self.db.execute("SELECT error_class, error FROM stacksaga.saga_history"
                                       " WHERE saga_id = %s AND direction = 'act'", (saga_id,)).fetchall()
            self.assertEqual([error_class for error_class, _ in attempts], ['unknown'] * 2)  # not by its lease's end
            self.assertIn(why, attempts[0][1])
        self.assert_charged(0)  # else what was charged would stay
        self.start_sagas(1)
        self.wait_for_all()
        self.assert_charged(1)
        self.assertIsNone(worker.poll())

    def test_an_answer_of_a_worker_that_lost_its_step_is_dropped(self):
        with psycopg.connect(autocommit=True) as gate:
            gate.execute('SELECT pg_advisory_lock(1)')
            saga_id = self.start_sagas(1, gate=1)
            slow = self.start('work')
            self.wait_for_gate()
            step, lease = self.db.execute("SELECT step, lease FROM stacksaga.work JOIN stacksaga.saga_history"
                                          " USING (saga_id) WHERE saga_id = %s", (saga_id,)).fetchone()
            self.db.execute("SELECT stacksaga.fail_step(%s, %s, %s, 'by hand', 'retryable', retry_after => '0')",
                            (saga_id, step, lease))
            lease = self.value("SELECT lease FROM stacksaga.claim_steps('payments', 'by hand')")
        wait_until(lambda: b'lost' in pathlib.Path(self.log.name).read_bytes(), 'it logs that the lease is lost')
        self.assertIsNone(slow.poll())
        self.wait_for_waiting(1)
        self.assertEqual(self.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id), 'running')
        self.db.execute('SELECT stacksaga.complete_step(%s, %s, %s)', (saga_id, step, lease))

    def test_a_worker_whose_sessions_end_connects_again(self):
        self.start('work', lease=1)
        self.wait_for_waiting(1)
        self.end_sessions()
        self.start_sagas(100)
        wait_until(lambda: self.value('SELECT count(*) FROM charge') >= 10, 'it works')
        self.end_sessions()
        self.wait_for_all()
        self.assert_charged(100)

    def test_a_worker_that_waits_ends_when_it_is_told_to(self):
        worker = self.start('work')
        self.wait_for_waiting(1)
        started = time.monotonic()
        worker.terminate()
        self.assertEqual(wait_for_end(worker), 0)
        self.wait_for_waiting(0)
        self.assertLess(time.monotonic() - started, 10)  # the wait is of 20 seconds

    def released(self, saga_id):
        return self.db.execute("""SELECT status, error FROM stacksaga.saga_history
                                   WHERE saga_id = %s ORDER BY attempt""", (saga_id,)).fetchall()

    def test_a_worker_that_is_told_to_end_gives_back_what_it_has_not_begun(self):
        pooler = TurnedStandby()
        self.addCleanup(pooler.stop)
        worker = self.start('work', address=self.through(pooler))
        self.wait_for_waiting(1)
        pooler.holds_claims = True
        saga_id = self.start_sagas(1)
        wait_until(lambda: self.released(saga_id), 'it has claimed, and waits for the answer')
        worker.terminate()
        time.sleep(0.5)  # it has nothing to show before its claim returns
        pooler.holds_claims = False
        self.assertEqual(wait_for_end(worker), 0)
        self.assertEqual(self.released(saga_id), [('released', 'the service stops')])
        self.start('work')
        self.wait_for_all()
        self.assert_charged(1)

    def test_a_step_that_comes_too_early_is_given_back_for_a_while(self):
        self.start('work')
        saga_id = self.start_sagas(1, **{'raise': 'SR425'})
        wait_until(lambda: ('released',) in [row[:1] for row in self.released(saga_id)], 'it is given back')
        self.assertIn('as told', self.released(saga_id)[0][1])
        self.assertTrue(self.value("""SELECT attempt = attempt_base AND due_at - stacksaga.clock_now() BETWEEN '5 s' AND '10 s'
                                        FROM stacksaga.work WHERE saga_id = %s""", saga_id))
        self.db.execute('SELECT stacksaga.cancel_saga(%s, %s)', (saga_id, 'not of the next test'))

    def test_a_worker_whose_pooler_leads_to_a_standby_connects_again(self):
        pooler = TurnedStandby()
        self.addCleanup(pooler.stop)
        self.start('work', address=self.through(pooler))
        self.wait_for_waiting(1)
        pooler.turn()
        started = time.monotonic()
        self.start_sagas(1)
        self.wait_for_all()
        self.assertLess(time.monotonic() - started, 10)
        self.assert_charged(1)

    def through(self, pooler):
        return pooler.address

    def publish(self, count, keys, topic='booking.made'):
        self.db.execute("""SELECT stacksaga.publish(%s, jsonb_build_object('number', n), key => 'k' || n %% %s)
                             FROM generate_series(1, %s) AS n""", (topic, keys, count))

    def test_messages_arrive_once_and_in_order_per_key_across_a_kill(self):
        with psycopg.connect() as gate:
            self.publish(1000, 7)
            gate.execute('LOCK TABLE ledger IN EXCLUSIVE MODE')
            killed, told = self.start('consume', lease=1), self.start('consume', lease=1)
            wait_until(lambda: self.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == 2,
                       'both are in the middle of a batch')
            killed.kill()
            told.terminate()
        self.assertEqual(wait_for_end(told), 0)
        self.publish(1000, 7)
        self.start('consume', lease=1)
        wait_until(lambda: self.value('SELECT count(*) FROM ledger') >= 2000, 'all messages are booked')
        self.assertEqual(self.value('SELECT count(*) FROM ledger'), 2000)
        per_key = self.db.execute("""SELECT array_agg((payload->>'number')::int ORDER BY position)
                                       FROM ledger GROUP BY key""").fetchall()
        for (numbers,) in per_key:
            half = len(numbers) // 2
            self.assertEqual(numbers, sorted(numbers[:half]) + sorted(numbers[half:]))

    def test_a_message_that_fails_holds_its_key_only(self):
        self.db.execute("ALTER TABLE ledger ADD CONSTRAINT odd CHECK (payload->>'number' <> '3')")
        try:
            self.publish(10, 2)
            self.start('consume')
            wait_until(lambda: self.value('SELECT count(*) FROM ledger') == 6, 'the rest is booked')
            self.assertEqual(self.value("SELECT array_agg((payload->>'number')::int ORDER BY position)"
                                        " FROM ledger WHERE key = 'k1'"), [1])
        finally:
            self.db.execute('ALTER TABLE ledger DROP CONSTRAINT odd')
        wait_until(lambda: self.value('SELECT count(*) FROM ledger') == 10, 'it is tried again')
        self.assertEqual(self.value("SELECT array_agg((payload->>'number')::int ORDER BY position)"
                                    " FROM ledger WHERE key = 'k1'"), [1, 3, 5, 7, 9])

    def test_a_batch_is_kept_by_its_heartbeat(self):
        with psycopg.connect() as gate:
            gate.execute('LOCK TABLE ledger IN EXCLUSIVE MODE')
            self.publish(1, 1)
            self.start('consume', lease=2)
            wait_until(lambda: self.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1, 'it is at work')
            first = self.value('SELECT clock_timestamp()')
            wait_until(lambda: self.value("SELECT clock_timestamp() > %s + interval '5 s'", first), 'time passes')
            self.assertIsNone(self.db.execute("SELECT FROM stacksaga.receive_messages('ledger', 'by hand')").fetchone())
        wait_until(lambda: self.value('SELECT count(*) FROM ledger') == 1, 'it is booked')


class Python(Programs, unittest.TestCase):
    command, environment = ('/usr/bin/python3', '-B', 'example.py'), {}

    def test_an_output_that_is_no_json_fails_the_step_and_not_the_worker(self):
        worker = """from stacksaga import Client
Client().work('payments', lambda db, step: step['deadline'] if step['direction'] == 'act' else None)"""
        program = subprocess.Popen(('/usr/bin/python3', '-B', '-c', worker), cwd=FOLDER, stdout=self.log,
                                   stderr=self.log, env={**os.environ, **self.address})
        self.programs.append(program)
        saga_id = self.start_sagas(1)
        self.wait_for_all()
        self.assertEqual(self.value("""SELECT array_agg(error_class) FROM stacksaga.saga_history
                                        WHERE saga_id = %s AND direction = 'act'""", saga_id), ['unknown'] * 2)
        self.assertIsNone(program.poll())


@unittest.skipUnless(shutil.which('npm'), 'needs nodejs and npm')
class JavaScript(Programs, unittest.TestCase):
    command, environment = ('node', 'example.js'), {}


@unittest.skipUnless(shutil.which('javac') and JDBC.exists(), 'needs javac and libpostgresql-jdbc-java')
class Java(Programs, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.classes = tempfile.TemporaryDirectory()
        sources = [FOLDER / name for name in ('Stacksaga.java', 'Example.java')]
        subprocess.run(('javac', '-d', cls.classes.name, *sources), check=True)
        cls.command = ('java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', f'{cls.classes.name}:{JDBC}',
                       'Example')
        url = f"jdbc:postgresql://127.0.0.1:{serve_by_tcp(cls.address)}/postgres?user={os.environ['PGUSER']}"
        cls.environment = {'JDBC_URL': url}
        super().setUpClass()

    def through(self, pooler):
        return {'JDBC_URL': f"jdbc:postgresql://127.0.0.1:{pooler.port}/postgres?sslmode=disable&user={os.environ['PGUSER']}"}

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.classes.cleanup()


@unittest.skipUnless(shutil.which('go') and (GOPATH / 'src/github.com/jackc/pgx').exists(), 'needs golang-go and golang-github-jackc-pgx-v4-dev')
class Go(Programs, unittest.TestCase):
    environment = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.command = (f'{cls.folder.name}/example',)
        sources = ('stacksaga.go', 'heartbeat.go', 'consumer.go', 'example.go')
        subprocess.run(('go', 'build', '-o', *cls.command, *sources), cwd=FOLDER, check=True,
                       env={**os.environ, 'GO111MODULE': 'off', 'GOPATH': str(GOPATH), 'GOFLAGS': '',
                            'GOCACHE': str(TOP / 'tmp_check' / 'go')})
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()


if __name__ == '__main__':
    unittest.main(verbosity=2)
