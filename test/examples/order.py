"""Tests docs/examples/order: the whole story, over HTTP, while each fault that it has a switch for happens, and while
its services and the worker are killed.

Run by test/tools/examples inside a private PostgreSQL server. What the services print is left in
tmp_check/examples. Without a Java compiler and the JDBC driver it says so, and shipping is in Python only.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import psycopg

from tcp_to_server import serve_by_tcp
from waiting import LOGS, TOP, wait_for_end, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'order'
JDBC = pathlib.Path('/usr/share/java/postgresql.jar')
ORDER = {'item': 'book', 'price': 20, 'customer': 'ann', 'address': '1 Ring Road'}


def rows(database, query):
    with psycopg.connect(dbname=database) as db:
        return db.execute(query).fetchall()


def children(pid):
    found = subprocess.run(('pgrep', '-P', str(pid)), stdout=subprocess.PIPE, text=True)
    return [int(line) for line in found.stdout.split()]


class Story:
    """The tests, with shipping in the language of a subclass."""

    @classmethod
    def setUpClass(cls):
        LOGS.mkdir(parents=True, exist_ok=True)
        cls.log = (LOGS / f'order.{cls.__name__}.log').open('w+')
        cls.mails = tempfile.TemporaryDirectory()
        with socket.create_server(('127.0.0.1', 0)) as free:
            cls.port = free.getsockname()[1]
        cls.start_all()
        cls.earlier = {order for order, _, _ in rows('shop', 'SELECT order_id, status, saga_id FROM orders')}

    @classmethod
    def start_all(cls):
        begin = len(cls.printed())
        cls.start = subprocess.Popen(FOLDER / 'start', stdout=cls.log, stderr=cls.log, env={
            **os.environ, 'PORT': str(cls.port), 'MAILS': cls.mails.name, 'LEASE': '1', **cls.environment()})
        wait_until(lambda: 'Ctrl-C ends it' in cls.printed()[begin:], 'the services run')

    @classmethod
    def tearDownClass(cls):
        cls.start.kill()
        cls.start.wait()
        cls.mails.cleanup()
        cls.log.close()

    @classmethod
    def printed(cls):
        return pathlib.Path(cls.log.name).read_text()

    def setUp(self):
        self.expected = {}

    def request(self, path, body=None, key=None):
        headers = {'Idempotency-Key': f'"{key}"'} if key else {}
        data = json.dumps(body).encode() if body is not None else None
        try:
            request = urllib.request.Request(f'http://127.0.0.1:{self.port}{path}', data, headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def place(self, key, outcome='confirmed', **changes):
        """Posts an order until it is answered, as a client does that wants to know, and notes what is to become of it."""
        def answered():
            try:
                self.answer = self.request('/orders', {**ORDER, **changes}, key)
                return self.answer[0] < 500 and self.answer[0] != 409
            except OSError:
                return False
        wait_until(answered, 'the order is answered')
        self.assertEqual(self.answer[0], 201, self.answer)
        self.expected[self.answer[1]['order']] = outcome
        return self.answer[1]['order']

    def pid_of(self, program):
        try:
            for keeper in children(self.start.pid):
                for service in children(keeper):
                    if program in pathlib.Path(f'/proc/{service}/cmdline').read_text():
                        return service
        except (FileNotFoundError, ProcessLookupError):
            pass  # one has ended between two looks
        return None

    def kill(self, program):
        killed = self.pid_of(program)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: self.pid_of(program) not in (killed, None), f'{program} runs again')

    def texts(self):
        return [mail.read_text() for mail in pathlib.Path(self.mails.name).glob('*.txt')]

    def assert_story(self):
        """Each order is charged and shipped once, or not at all; one mail says which."""
        wait_until(lambda: rows('shop', 'SELECT FROM stacksaga.work') == [], 'all sagas end')
        numbers = '|'.join(map(str, self.expected))
        mail = re.compile(rf'Your order ({numbers}) is (\w+)\.')
        wait_until(lambda: len(set(filter(None, map(mail.search, self.texts())))) >= len(self.expected), 'mails are sent')
        mails = collections.Counter(found.groups() for found in map(mail.search, self.texts()) if found)
        self.assertEqual(mails, {(str(order), outcome): 1 for order, outcome in self.expected.items()})
        orders = {order: (status, str(saga)) for order, status, saga in
                  rows('shop', 'SELECT order_id, status, saga_id FROM orders') if order not in self.earlier}
        charges = collections.Counter(key[:36] for key, in rows('bank', 'SELECT key FROM charge WHERE NOT refunded'))
        parcels = collections.Counter(key[:36] for key, in rows('depot', 'SELECT key FROM parcel WHERE NOT recalled'))
        for order, outcome in self.expected.items():
            status, saga = orders[order]
            once = 1 if outcome == 'confirmed' else 0
            self.assertEqual((status, charges[saga], parcels[saga]), (outcome, once, once), f'order {order}')
        self.assertEqual(rows('shop', """SELECT 100 - on_hand - (SELECT count(*) FROM orders WHERE status = 'confirmed')
                                           FROM stock WHERE item = 'book'"""), [(0,)], 'books')

    def test_1_an_order_that_is_posted_often_is_one(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.request('/orders', ORDER, f'{self.id()}-often'), range(8)))
        self.assertLessEqual({status for status, _ in answers}, {201, 409})
        order = self.place(f'{self.id()}-often')
        self.assertEqual({answer['order'] for status, answer in answers if status == 201}, {order})
        self.assertEqual(self.request('/orders', {**ORDER, 'price': 21}, f'{self.id()}-often')[0], 422)
        self.assertEqual(self.request('/orders', ORDER)[0], 400)
        self.assertEqual(self.request('/orders', {}, f'{self.id()}-empty')[0], 400)
        self.assertEqual(self.request('/orders/0')[0], 404)
        self.assert_story()

    def test_2_each_fault(self):
        for again in range(2):
            self.place(f'{self.id()}-declined', 'cancelled', card='declined')
            self.place(f'{self.id()}-no-stock', 'cancelled', item='moon')
            self.place(f'{self.id()}-nowhere', 'cancelled', address='nowhere')
            charged = self.place(f'{self.id()}-crash', card='crash')
            self.place(f'{self.id()}-mail', mail='crash')
        self.assertEqual(len(self.expected), 5)
        self.assert_story()
        self.assertIn('node payments.js ended with status 137', self.printed())
        self.assertIn('mails.py ended with status 137', self.printed())
        timeline = self.request(f'/orders/{charged}')[1]['timeline']
        self.assertTrue([line for line in timeline if 'charge: completed (attempt 2)' in line], timeline)


@unittest.skipUnless(shutil.which('npm'), 'needs nodejs and npm')
class ShippingInPython(Story, unittest.TestCase):
    @staticmethod
    def environment():
        return {'TCP_PORT': ''}

    def test_3_everything_is_killed(self):
        for turn, program in enumerate(('payments', 'hipping', 'mails', 'orders')):
            for number in range(8):
                self.place(f'{self.id()}-{turn}-{number}')
            self.kill(program)
            rows('shop', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'")
        self.assert_story()

    def test_4_it_ends_with_all_services_when_it_is_killed_or_told_to(self):
        for ending, status in (signal.SIGKILL, -9), (signal.SIGTERM, 0), (signal.SIGINT, 0):
            services = [pid for keeper in children(self.start.pid) for pid in children(keeper)]
            self.assertEqual(len(services), 4)
            self.start.send_signal(ending)
            self.assertEqual(wait_for_end(self.start), status)
            wait_until(lambda: not any(pathlib.Path(f'/proc/{pid}').exists() for pid in services), 'all services end')
            if ending != signal.SIGINT:
                self.start_all()


@unittest.skipUnless(shutil.which('npm') and shutil.which('javac') and JDBC.exists(),
                     'needs npm, javac and libpostgresql-jdbc-java')
class ShippingInJava(Story, unittest.TestCase):
    @staticmethod
    def environment():
        return {'TCP_PORT': str(serve_by_tcp())}

    def test_0_it_is_in_java(self):
        self.assertIn('Shipping is in Java', self.printed())


if __name__ == '__main__':
    unittest.main(verbosity=2)
