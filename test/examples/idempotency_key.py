"""Tests docs/examples/idempotency-key: each server, a process of its own, over HTTP on the loopback.

Run by test/tools/examples inside a private PostgreSQL server. A gate, an advisory lock that a
trigger of the effect waits for, stops a request exactly where the test wants it. What the servers
print is left in tmp_check/examples.
"""

import concurrent.futures
import http.client
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

import psycopg

from tcp_to_server import serve_by_tcp
from waiting import LOGS, PATIENCE, TOP, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'idempotency-key'
GATE = 4711
JARS = [pathlib.Path(f'/usr/share/java/{name}.jar') for name in (
    'postgresql', 'spring3-web', 'spring3-core', 'commons-logging', 'jackson-databind', 'jackson-core', 'jackson-annotations')]

GATES = f'''
    CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared({GATE});
        RETURN NULL;
    END $$;
    CREATE TRIGGER in_the_effect AFTER INSERT ON charge FOR EACH ROW
        WHEN (NEW.account LIKE 'stops in the effect%') EXECUTE FUNCTION pass_gate();
    CREATE CONSTRAINT TRIGGER in_the_commit AFTER INSERT ON charge
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (NEW.account LIKE 'stops in the commit%') EXECUTE FUNCTION pass_gate();
'''


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Example:
    """What holds for the server of every language; a subclass names its command."""

    command = ()
    environment = {}

    @classmethod
    def setUpClass(cls):
        cls.database = cls.__name__.lower()
        with psycopg.connect(autocommit=True) as db:
            db.execute(f'CREATE DATABASE {cls.database}')
        cls.db = psycopg.connect(dbname=cls.database, autocommit=True)
        cls.db.execute('CREATE EXTENSION stacksaga')
        cls.db.execute((FOLDER / 'schema.sql').read_text())
        cls.db.execute(GATES)
        LOGS.mkdir(parents=True, exist_ok=True)
        cls.log = (LOGS / f'{cls.database}.log').open('wb')
        cls.start_server()

    @classmethod
    def tearDownClass(cls):
        cls.kill_server()
        cls.db.close()
        cls.log.close()

    @classmethod
    def start_server(cls):
        cls.port = free_port()
        cls.server = subprocess.Popen(
            cls.command, cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=cls.log,
            env={**os.environ, 'PORT': str(cls.port), 'PGDATABASE': cls.database, **cls.environment})

        def listens():
            if cls.server.poll() is not None:
                raise AssertionError(f'the server ended with status {cls.server.returncode}')
            with socket.socket() as probe:
                return probe.connect_ex(('127.0.0.1', cls.port)) == 0

        wait_until(listens, 'the server listens')

    @classmethod
    def kill_server(cls):
        cls.server.kill()
        cls.server.wait()

    def post(self, key, body, header=None):
        """Returns the status and the answer. A key is quoted, as the header wants it."""
        headers = {'Content-Type': 'application/json'}
        if key is not None or header is not None:
            headers['Idempotency-Key'] = f'"{key}"' if header is None else header
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=PATIENCE)
        try:
            text = body if isinstance(body, str) else json.dumps(body)
            connection.request('POST', '/charges', text, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def post_until_known(self, key, body):
        """Retries as a client does, until the answer is not that the first try is in progress."""
        return wait_until(lambda: (answer := self.post(key, body))[0] != 409 and answer,
                          'the first try ends')

    def charges(self, account):
        """The ids of the charges of an account: the effects that committed."""
        rows = self.db.execute('SELECT id::text FROM charge WHERE account = %s', (account,))
        return [row[0] for row in rows]

    def at_the_gate(self):
        """How many transactions wait at the gate."""
        return self.db.execute("""
            SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
             WHERE locktype = 'advisory' AND objid = %s AND NOT granted
               AND datname = current_database()""", (GATE,)).fetchone()[0]

    def close_gate(self):
        """Closes the gate until open_gate(), at the latest until the end of the test."""
        self.db.execute('SELECT pg_advisory_lock(%s)', (GATE,))
        self.addCleanup(self.db.execute, 'SELECT pg_advisory_unlock_all()')

    def open_gate(self):
        self.db.execute('SELECT pg_advisory_unlock_all()')

    def in_background(self, *request):
        """Starts a request in a thread and returns its future; its connection may be lost."""
        executor = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(executor.shutdown)
        return executor.submit(self.post, *request)

    # ------------------------------------------------------------------------------ the tests

    def test_64_concurrent_requests_have_one_effect(self):
        body = {'account': 'one of 64', 'amount': 10}
        barrier = threading.Barrier(64)

        def request(_):
            barrier.wait()
            return self.post('one-of-64', body)

        with concurrent.futures.ThreadPoolExecutor(64) as executor:
            answers = list(executor.map(request, range(64)))
        (charge,) = self.charges('one of 64')
        for status, answer in answers:
            self.assertIn(status, (201, 409), answer)
            if status == 201:
                self.assertEqual(answer['id'], charge)
        self.assertIn(201, [status for status, _ in answers])
        self.assertEqual(self.post('one-of-64', body), (201, {'status': 201, 'id': charge}))

    def test_while_one_is_in_progress_63_others_are_refused(self):
        body = {'account': 'stops in the effect of 64', 'amount': 10}
        self.close_gate()
        first = self.in_background('held', body)
        wait_until(self.at_the_gate, 'the first request is in its effect')
        with concurrent.futures.ThreadPoolExecutor(63) as executor:
            answers = list(executor.map(lambda _: self.post('held', body), range(63)))
        self.assertEqual({status for status, _ in answers}, {409}, answers)
        self.open_gate()
        self.assertEqual(first.result()[0], 201)
        self.assertEqual(self.post('held', body), first.result())
        self.assertEqual(len(self.charges(body['account'])), 1)

    def test_another_body_is_422(self):
        body = {'account': 'mismatch', 'amount': 10}
        self.assertEqual(self.post('mismatch', body)[0], 201)
        self.assertEqual(self.post('mismatch', {**body, 'amount': 11})[0], 422)
        self.assertEqual(len(self.charges('mismatch')), 1)

    def test_the_order_of_members_and_white_space_do_not_matter(self):
        first = self.post('form', '{"account": "form", "amount": 10}')
        self.assertEqual(self.post('form', '{"amount":10,  "account":"form"}'), first)
        self.assertEqual(len(self.charges('form')), 1)

    def test_a_missing_or_malformed_key_is_400(self):
        body = {'account': 'no key', 'amount': 10}
        for header in (None, '', '""', 'bare', '"open', '"a" "b"', '"' + 'k' * 256 + '"'):
            with self.subTest(header=header):
                self.assertEqual(self.post(None, body, header)[0], 400)
        self.assertEqual(self.charges('no key'), [])

    def test_a_body_that_is_no_json_is_400_and_leaves_the_key_free(self):
        for body in ('', '{', '{"account": "\\u0000"}'):
            with self.subTest(body=body):
                self.assertEqual(self.post('json', body)[0], 400)
        self.assertEqual(self.post('json', {'account': 'json', 'amount': 10})[0], 201)

    def test_a_final_refusal_is_replayed_and_has_no_effect(self):
        body = {'account': 'refused', 'amount': 5000}
        first = self.post('refused', body)
        self.assertEqual(first[0], 402)
        self.assertEqual(self.post('refused', body), first)
        self.assertEqual(self.charges('refused'), [])

    def test_a_failure_leaves_the_key_free(self):
        body = {'account': None, 'amount': 10}
        self.assertEqual(self.post('failure', body)[0], 500)
        self.assertEqual(self.post('failure', {**body, 'account': 'failure'})[0], 201)

    def test_killed_before_the_commit_then_a_retry_succeeds_once(self):
        body = {'account': 'stops in the effect', 'amount': 10}
        self.close_gate()
        first = self.in_background('killed', body)
        wait_until(self.at_the_gate, 'the request is in its effect')
        self.kill_server()
        self.assertIsInstance(first.exception(), (OSError, http.client.HTTPException))
        self.start_server()
        self.assertEqual(self.post('killed', body)[0], 409)
        self.open_gate()
        status, answer = self.post_until_known('killed', body)
        self.assertEqual(status, 201, answer)
        self.assertEqual(self.charges(body['account']), [answer['id']])
        self.assertEqual(self.post('killed', body), (201, answer))

    def test_killed_during_the_commit_then_a_retry_is_replayed(self):
        body = {'account': 'stops in the commit', 'amount': 10}
        self.close_gate()
        first = self.in_background('killed-late', body)
        wait_until(self.at_the_gate, 'the request is in its commit')
        self.kill_server()
        self.assertIsInstance(first.exception(), (OSError, http.client.HTTPException))
        self.start_server()
        self.open_gate()
        (charge,) = wait_until(lambda: self.charges(body['account']), 'the commit is done')
        self.assertEqual(self.post('killed-late', body), (201, {'status': 201, 'id': charge}))
        self.assertEqual(self.charges(body['account']), [charge])

    def test_a_lost_connection_leaves_the_key_free(self):
        body = {'account': 'stops in the effect: lost', 'amount': 10}
        self.close_gate()
        first = self.in_background('lost', body)
        wait_until(self.at_the_gate, 'the request is in its effect')
        self.db.execute("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event = 'advisory'""")
        self.assertEqual(first.result()[0], 500)
        self.open_gate()
        status, answer = self.post_until_known('lost', body)
        self.assertEqual(status, 201, answer)
        self.assertEqual(self.charges(body['account']), [answer['id']])


class Wrappers(unittest.TestCase):
    def test_those_to_copy_have_fewer_than_25_lines(self):
        for name in ('idempotent.js', 'idempotent.py'):
            lines = map(str.strip, (FOLDER / name).read_text().splitlines())
            self.assertLess(len([line for line in lines if line and line[0] not in '/#']), 25, name)


@unittest.skipUnless(shutil.which('npm'), 'needs nodejs and npm')
class Node(Example, unittest.TestCase):
    command = ('node', 'server.js')


class Python(Example, unittest.TestCase):
    command = ('/usr/bin/python3', 'server.py')


@unittest.skipUnless(importlib.util.find_spec('flask'), 'needs python3-flask')
class Flask(Example, unittest.TestCase):
    command = ('/usr/bin/python3', 'flask_app.py')


@unittest.skipUnless(shutil.which('npm'), 'needs nodejs and npm')
class Express(Example, unittest.TestCase):
    command = ('node', 'express_app.js')


@unittest.skipUnless(shutil.which('javac') and all(jar.exists() for jar in JARS), 'needs javac, libpostgresql-jdbc-java, '
                     'libspring-web-java and libjackson2-databind-java')
class Spring(Example, unittest.TestCase):
    """The controller's methods, called by a small server: Spring's dispatcher has no part in it."""

    @classmethod
    def setUpClass(cls):
        cls.classes = tempfile.TemporaryDirectory()
        path = ':'.join((cls.classes.name, *map(str, JARS)))
        sources = (FOLDER / 'Idempotent.java', FOLDER / 'ChargesController.java', pathlib.Path(__file__).parent / 'ChargesServer.java')
        subprocess.run(('javac', '-d', cls.classes.name, '-cp', path, *sources), check=True)
        cls.command = ('java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', path, 'ChargesServer')
        cls.environment = {'JDBC_URL': f"jdbc:postgresql://127.0.0.1:{serve_by_tcp()}/spring?user={os.environ['PGUSER']}"}
        super().setUpClass()


if __name__ == '__main__':
    unittest.main(verbosity=2)
