"""Tests docs/examples/broker: a publisher to a RabbitMQ of its own, which is killed and restarted.

Run by test/tools/examples inside a private PostgreSQL server. What the programs print is left in tmp_check/examples.
"""

import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import unittest

import psycopg

try:
    import pika
except ImportError:
    pika = None
from waiting import LOGS, TOP, wait_for_end, wait_until

FOLDER = TOP / 'docs' / 'examples' / 'broker'
RABBIT = pathlib.Path('/usr/lib/rabbitmq/bin/rabbitmq-server')


def free_port():
    """Below the ports that connections get by themselves: a connection to such a port, until it listens, can be its own peer."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', port))
                return port
            except OSError:
                continue
    raise AssertionError('no free port')


@unittest.skipUnless(pika and RABBIT.exists() and shutil.which('erl'), 'needs python3-pika and rabbitmq-server')
class Broker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        LOGS.mkdir(parents=True, exist_ok=True)
        cls.log = (LOGS / 'broker.log').open('wb')
        cls.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.port, cls.epmd_port = free_port(), free_port()
        cls.environment = {**os.environ, 'AMQP_URL': f'amqp://guest:guest@127.0.0.1:{cls.port}/'}
        # A private one: its own name, folder, cookie and port mapper, and no plugin.
        cls.rabbit = {
            'PATH': os.environ['PATH'], 'HOME': cls.home.name, 'RABBITMQ_NODENAME': f'r{os.getpid()}@localhost',
            'RABBITMQ_NODE_PORT': str(cls.port), 'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1', 'RABBITMQ_DIST_PORT': str(free_port()),
            'RABBITMQ_MNESIA_BASE': cls.home.name, 'RABBITMQ_LOG_BASE': cls.home.name, 'RABBITMQ_ENABLED_PLUGINS_FILE': '/dev/null',
            'RABBITMQ_CONF_ENV_FILE': '/dev/null', 'RABBITMQ_PID_FILE': f'{cls.home.name}/pid', 'RABBITMQ_LOGS': '-',
            'ERL_EPMD_PORT': str(cls.epmd_port), 'ERL_EPMD_ADDRESS': '127.0.0.1'}
        cls.epmd = subprocess.Popen(('epmd',), env=cls.rabbit, stdout=cls.log, stderr=cls.log)
        cls.start_broker()
        cls.db = psycopg.connect(autocommit=True)
        cls.db.execute('CREATE EXTENSION stacksaga')
        cls.db.execute((FOLDER / 'schema.sql').read_text().replace('max_attempts => 300', "max_attempts => 300, max_interval => '1 s'"))
        cls.publisher = subprocess.Popen(('/usr/bin/python3', 'publisher.py', 'to-rabbit', 'shop'), cwd=FOLDER, stdout=cls.log,
                                         stderr=cls.log, env=cls.environment)

    @classmethod
    def tearDownClass(cls):
        cls.publisher.terminate()
        code = wait_for_end(cls.publisher)
        cls.stop_broker()
        cls.epmd.kill()
        cls.epmd.wait()
        cls.db.close()
        cls.log.close()
        cls.home.cleanup()
        assert code == 0, code

    @classmethod
    def start_broker(cls):
        cls.broker = subprocess.Popen((RABBIT,), env=cls.rabbit, stdout=cls.log, stderr=cls.log, start_new_session=True)

        def answers():
            assert cls.broker.poll() is None, 'RabbitMQ ends'
            try:
                return pika.BlockingConnection(pika.URLParameters(cls.environment['AMQP_URL']))
            except (pika.exceptions.AMQPError, OSError):
                return None

        cls.channel = wait_until(answers, 'RabbitMQ answers').channel()
        cls.channel.exchange_declare('shop', 'topic', durable=True)
        cls.channel.queue_declare('orders', durable=True)
        cls.channel.queue_bind('orders', 'shop', 'order.placed')

    @classmethod
    def stop_broker(cls):
        os.killpg(cls.broker.pid, 9)
        cls.broker.wait()

    def publish(self, numbers):
        for number in numbers:
            self.db.execute("SELECT stacksaga.publish('order.placed', jsonb_build_object('n', %s::int), key => 'o-1')", (number,))

    def arrived(self, last):
        """The messages until this one, by id: a repetition has the id of the first one."""
        found = {}

        def enough():
            while True:
                method, properties, body = self.channel.basic_get('orders', auto_ack=True)
                if method is None:
                    return any(number == last for number, _ in found.values())
                found.setdefault(properties.message_id, (json.loads(body)['n'], properties))

        wait_until(enough, f'message {last} arrives')
        return found

    def test_messages_arrive_in_order_with_their_ids_also_while_the_broker_is_away(self):
        self.publish(range(20))
        first = self.arrived(19)
        self.assertEqual([number for number, _ in first.values()], list(range(20)))
        properties = next(iter(first.values()))[1]
        self.assertEqual((properties.headers['stacksaga-key'], properties.delivery_mode), ('o-1', 2))

        self.stop_broker()
        self.publish(range(20, 40))
        retried = "SELECT count(*) > 0 FROM stacksaga.message_retries WHERE last_error IS NOT NULL"
        wait_until(lambda: self.db.execute(retried).fetchone()[0], 'a message waits for the broker')
        self.start_broker()
        later = self.arrived(39)  # a broker that was killed may send the last ones of before again
        self.assertEqual([number for name, (number, _) in later.items() if name not in first], list(range(20, 40)))
        self.assertEqual(self.db.execute('SELECT count(*) FROM stacksaga.dead_messages').fetchone()[0], 0)

        # No queue takes this topic: the broker returns the message, and it is not acknowledged.
        self.db.execute("SELECT stacksaga.publish('order.unknown', '{}')")
        unroutable = "SELECT count(*) > 0 FROM stacksaga.message_retries WHERE topic = 'order.unknown'"
        wait_until(lambda: self.db.execute(unroutable).fetchone()[0], 'the message that no queue takes waits')


if __name__ == '__main__':
    unittest.main(verbosity=2)
