"""Tests docs/examples/service-loop: services that are killed, and one that is told to end.

Run by test/tools/examples inside a private PostgreSQL server. What the services print is left in
tmp_check/examples.
"""

import os
import subprocess
import unittest

import psycopg

from waiting import LOGS, TOP, wait_for_end, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'service-loop'


class ServiceLoop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.db = psycopg.connect(autocommit=True)
        cls.db.execute('CREATE EXTENSION stacksaga')
        cls.db.execute((FOLDER / 'schema.sql').read_text())
        LOGS.mkdir(parents=True, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        cls.db.close()

    def setUp(self):
        self.db.execute('TRUNCATE charge')
        self.services = []
        self.log = (LOGS / f'service_loop.{self._testMethodName}.log').open('wb')

    def tearDown(self):
        for service in self.services:
            service.kill()
            service.wait()
        # A session whose client was killed waits on.
        self.db.execute("""SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
                            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'""")
        self.log.close()

    def start_service(self, lease='30 seconds'):
        service = subprocess.Popen(('/usr/bin/python3', 'service.py'), cwd=FOLDER, stdout=self.log,
                                   stderr=self.log, env={**os.environ, 'LEASE': lease})
        self.services.append(service)
        return service

    def start_sagas(self, count, amount=10):
        self.db.execute("""SELECT stacksaga.start_saga('pay', jsonb_build_object('amount', %s::int))
                             FROM generate_series(1, %s)""", (amount, count))

    def value(self, query):
        return self.db.execute(query).fetchone()[0]

    def wait_for_all(self):
        wait_until(lambda: self.value('SELECT count(*) = 0 FROM stacksaga.work'), 'all sagas end')

    def wait_for_waiting(self, count):
        wait_until(lambda: self.value("SELECT count(*) FROM pg_stat_activity"
                                      " WHERE wait_event = 'Extension' AND query LIKE 'CALL%'") == count,
                   f'{count} services wait')

    def test_each_step_is_done_once_by_services_that_waited(self):
        for _ in range(3):
            self.start_service()
        self.wait_for_waiting(3)
        self.start_sagas(200)
        self.wait_for_all()
        self.assertEqual(self.value('SELECT count(*) FROM charge'), 200)

    def test_steps_of_a_killed_service_are_done_under_the_same_keys(self):
        self.start_sagas(100)
        with psycopg.connect() as gate:
            gate.execute('LOCK TABLE charge IN EXCLUSIVE MODE')
            killed = self.start_service(lease='1 second')
            wait_until(lambda: self.value("SELECT count(*) = 1 FROM pg_locks WHERE NOT granted"),
                       'the service is in the middle of a step')
            killed.kill()
        self.start_service()
        self.wait_for_all()
        self.assertEqual(self.value('SELECT count(*) FROM charge'), 100)
        self.assertEqual(self.value("""
            SELECT count(*) FROM charge AS c JOIN stacksaga.effect AS e
                ON c.step = format('%s:%s', e.saga_id, e.step_no)"""), 100)

    def test_a_step_that_fails_for_good_ends_its_saga(self):
        self.start_service()
        self.start_sagas(1, amount=-1)
        self.wait_for_all()
        self.assertEqual(self.value("SELECT status FROM stacksaga.sagas WHERE input = '{\"amount\": -1}'"),
                         'failed')
        self.assertEqual(self.value('SELECT count(*) FROM charge'), 0)

    def test_a_compensation_undoes(self):
        self.db.execute("SELECT stacksaga.start_saga('pay', '{\"amount\": 7}')")
        saga_id, lease = self.db.execute("SELECT saga_id, lease FROM stacksaga.claim_steps('payments', 'by hand')").fetchone()
        self.db.execute('SELECT stacksaga.cancel_saga(%s, %s)', (saga_id, 'changed their mind'))
        self.db.execute("SELECT stacksaga.fail_step(%s, 'charge', %s, 'no answer', 'unknown')", (saga_id, lease))
        self.start_service()
        self.wait_for_all()
        self.assertEqual(self.db.execute('SELECT step, undone FROM charge').fetchall(), [(f'{saga_id}:1', True)])

    def test_an_act_that_comes_after_its_compensation_is_refused(self):
        saga_id = self.value("SELECT (stacksaga.start_saga('pay', '{\"amount\": 7}')).saga_id")
        self.db.execute('INSERT INTO charge VALUES (%s, 7, true)', (f'{saga_id}:1',))
        self.start_service()
        self.wait_for_all()
        self.assertEqual(self.value(f"SELECT status FROM stacksaga.sagas WHERE saga_id = '{saga_id}'"), 'failed')
        self.assertEqual(self.value('SELECT count(*) FROM charge WHERE NOT undone'), 0)

    def test_a_service_that_waits_ends_when_it_is_told_to(self):
        service = self.start_service()
        self.wait_for_waiting(1)
        service.terminate()
        self.assertEqual(service.wait(timeout=10), 0)

    def test_a_deployment_burns_no_attempts(self):
        service = self.start_service()
        self.start_sagas(200, amount=3)
        wait_until(lambda: self.value('SELECT count(*) > 20 FROM charge'), 'it works')
        with psycopg.connect() as gate:
            gate.execute('LOCK TABLE charge IN EXCLUSIVE MODE')
            wait_until(lambda: self.value("SELECT count(*) = 1 FROM pg_locks WHERE NOT granted"), 'it is in the middle of a step')
            service.terminate()
        self.assertEqual(wait_for_end(service), 0)
        self.assertGreater(self.value("SELECT count(*) FROM stacksaga.saga_history WHERE status = 'released'"), 0)
        self.assertEqual(self.value('SELECT count(*) FROM stacksaga.work WHERE lease_until IS NOT NULL OR attempt > attempt_base'), 0)
        self.start_service()
        self.wait_for_all()
        self.assertEqual(self.value('SELECT count(*) FROM charge'), 200)
        self.assertEqual(self.value("""SELECT count(*) FROM stacksaga.saga_history JOIN stacksaga.sagas AS s USING (saga_id)
                                        WHERE saga_history.status = 'failed' AND s.input = '{"amount": 3}'"""), 0)

    def test_a_busy_service_answers_for_its_steps_before_it_ends(self):
        service = self.start_service()
        self.start_sagas(500)
        wait_until(lambda: self.value('SELECT count(*) > 0 FROM charge'), 'it works')
        service.terminate()
        self.assertEqual(wait_for_end(service), 0)
        self.assertEqual(self.value('SELECT count(*) FROM stacksaga.work WHERE lease IS NOT NULL'), 0)
        self.start_service()
        self.wait_for_all()
        self.assertEqual(self.value('SELECT count(*) FROM charge'), 500)


if __name__ == '__main__':
    unittest.main(verbosity=2)
