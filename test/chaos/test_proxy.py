"""The proxy's own test: it outlives connections whose peers are gone when they are cut."""

import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from world import replace_file

HERE = pathlib.Path(__file__).parent
NAME = 's'


def wait_for(condition):
    """Until a condition holds, at most ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except BlockingIOError:
            pass
        time.sleep(0.01)


class TheProxy(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / 'p'
        self.folder.mkdir()
        self.set_mode('pass')
        target = pathlib.Path(folder.name) / NAME
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(target))
        self.server.listen()
        self.proxy = subprocess.Popen([sys.executable, '-B', HERE / 'proxy.py', self.folder, target])
        self.addCleanup(self.server.close)
        self.addCleanup(self.proxy.wait)
        self.addCleanup(self.proxy.kill)
        wait_for((self.folder / NAME).exists)

    def set_mode(self, mode):
        replace_file(self.folder / 'mode', mode)

    def connection(self):
        """A client's end, and the server's."""
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.folder / NAME))
        server, _ = self.server.accept()
        self.addCleanup(server.close)
        self.addCleanup(client.close)
        return client, server

    def is_cut(self, client):
        """Whether a connection ends within ten seconds."""
        client.settimeout(10)
        try:
            return client.recv(64) == b''
        except ConnectionResetError:
            return True

    def test_cut_after_a_reset(self):
        other, _ = self.connection()
        client, server = self.connection()
        server.send(b'never read')
        wait_for(lambda: client.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        self.set_mode('hold')
        time.sleep(0.2)         # the proxy reads its mode every 20 ms
        server.send(b'held')
        client.close()          # a reset, as something in its socket was not read
        time.sleep(0.2)
        self.set_mode('cut')
        self.assertTrue(self.is_cut(other))
        self.set_mode('pass')
        client, server = self.connection()
        client.send(b'through')
        self.assertEqual(server.recv(64), b'through')
        self.assertIsNone(self.proxy.poll(), 'the proxy ended')


if __name__ == '__main__':
    unittest.main()
