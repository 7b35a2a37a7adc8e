"""Tests docs/examples/http-step: a provider that answers as each test says, and the class that the service makes of it.

Run by test/tools/examples inside a private PostgreSQL server. What the services print is left in tmp_check/examples.
"""

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import unittest

import psycopg

from waiting import LOGS, TOP, wait_for_end, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'http-step'


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers from `answers`, the last one again and again, and keeps what it was asked."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.asked.append((self.path, self.headers['Idempotency-Key'], body))
        answers = self.server.answers
        status, headers, text = answers.pop(0) if len(answers) > 1 else answers[0]
        if status is None:  # carried out, but the answer is lost
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


class HttpStep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.db = psycopg.connect(autocommit=True)
        cls.db.execute('CREATE EXTENSION stacksaga')
        cls.db.execute((FOLDER / 'schema.sql').read_text().replace("'2 seconds'", "'10 ms'"))
        LOGS.mkdir(parents=True, exist_ok=True)
        cls.log = (LOGS / 'http_step.log').open('wb')
        cls.provider = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Provider)
        threading.Thread(target=cls.provider.serve_forever, daemon=True).start()
        cls.url = f'http://127.0.0.1:{cls.provider.server_port}'
        cls.services = [cls.start_service('payments', cls.url + '/charges'), cls.start_service('refunds', cls.url + '/refunds')]

    @classmethod
    def tearDownClass(cls):
        for service in cls.services:
            service.terminate()
        for service in cls.services:
            wait_for_end(service)
            assert service.returncode == 0, service.returncode
        cls.provider.shutdown()
        cls.log.close()
        cls.db.close()

    @classmethod
    def start_service(cls, queue, url):
        return subprocess.Popen(('/usr/bin/python3', 'service.py', queue, url), cwd=FOLDER, stdout=cls.log, stderr=cls.log)

    def run_saga(self, *answers):
        """The status of a saga whose provider answers so, its output, and the classes of its failures."""
        self.provider.answers, self.provider.asked = list(answers), []
        saga = self.db.execute("SELECT saga_id FROM stacksaga.start_saga('pay', '{\"amount\": 10}')").fetchone()[0]
        status = self.db.execute("SELECT stacksaga.await_saga(%s, '20 seconds')", (saga,)).fetchone()[0]
        output = self.db.execute('SELECT output FROM stacksaga.saga_result(%s)', (saga,)).fetchone()[0]
        classes = self.db.execute("""SELECT coalesce(array_agg(error_class ORDER BY attempt), '{}') FROM stacksaga.saga_history
                                      WHERE saga_id = %s AND status = 'failed' AND direction = 'act'""", (saga,)).fetchone()[0]
        return status, output, classes

    def paths(self):
        return [path for path, _, _ in self.provider.asked]

    def test_an_answer_of_success_is_the_output(self):
        self.assertEqual(self.run_saga((201, {}, b'{"id": "c-1"}')), ('completed', {'charge': {'id': 'c-1'}}, []))
        self.assertEqual(self.run_saga((200, {}, b'thanks'))[1], {'charge': {'body': 'thanks'}})
        self.assertEqual(self.run_saga((204, {}, b''))[:2], ('completed', {'charge': None}))
        self.assertIn('omitted', self.run_saga((200, {}, b'"%s"' % (b'x' * 1000001)))[1]['charge'])
        self.assertIn('omitted', self.run_saga((200, {}, b'"\\u0000"'))[1]['charge'])

    def test_what_was_not_begun_is_retryable(self):
        for status, headers in ((425, {}), (429, {}), (503, {'Retry-After': '0'})):
            self.assertEqual(self.run_saga((status, headers, b''), (200, {}, b'{}'))[::2], ('completed', ['retryable']))
        self.assertEqual(len({key for _, key, _ in self.provider.asked}), 1, 'one key for all attempts')

    def test_what_may_have_been_begun_is_unknown(self):
        for status in (408, 409, 500, 502, 503, 504, None):
            self.assertEqual(self.run_saga((status, {}, b''), (200, {}, b'{}'))[::2], ('completed', ['unknown']), status)

    def test_a_refusal_is_final_and_nothing_is_undone(self):
        for status in (302, 400, 402, 404, 422):
            self.assertEqual(self.run_saga((status, {'Location': self.url}, b'no'))[::2], ('failed', ['non_retryable']))
            self.assertEqual(self.paths(), ['/charges'])

    def test_a_charge_that_stays_unknown_is_refunded_by_its_reference(self):
        unknown = (500, {}, b'')
        self.assertEqual(self.run_saga(*[unknown] * 8, (200, {}, b'{}'))[::2], ('failed', ['unknown'] * 8))
        self.assertEqual(self.paths(), ['/charges'] * 8 + ['/refunds'])
        self.assertEqual(len({body['reference'] for _, _, body in self.provider.asked}), 1)
        self.assertEqual(len({key for _, key, _ in self.provider.asked}), 2, 'the refund has a key of its own')

    def test_a_refund_that_is_refused_parks(self):
        self.assertEqual(self.run_saga(*[(500, {}, b'')] * 8, (404, {}, b'no such charge'))[0], 'parked')

    def test_retry_after_is_the_pause(self):
        self.provider.answers, self.provider.asked = [(429, {'Retry-After': '600'}, b'')], []
        saga = self.db.execute("SELECT saga_id FROM stacksaga.start_saga('pay', '{\"amount\": 10}')").fetchone()[0]
        paused = "SELECT paused_until > now() + '9 minutes' FROM stacksaga.sagas WHERE saga_id = %s"
        wait_until(lambda: self.db.execute(paused, (saga,)).fetchone()[0], 'it pauses for ten minutes')
        self.db.execute("SELECT stacksaga.cancel_saga(%s, 'test')", (saga,))

    def test_a_refused_connection_is_retryable_and_nothing_was_sent(self):
        sys.path.insert(0, str(FOLDER))
        import service
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            closed = free.getsockname()[1]
        with self.assertRaises(service.Failed) as failed:
            service.post(f'http://127.0.0.1:{closed}', 'k', {})
        self.assertEqual(failed.exception.sqlstate, 'SR503')


if __name__ == '__main__':
    unittest.main(verbosity=2)
