"""A pooler whose target becomes a standby: it leads to the private server, until turn(). From then on each call of a client that is
connected is answered by 25006, and its socket stays open; who connects again is led to the server, the new primary. While
holds_claims is true, the answers to claim_steps do not arrive."""

import contextlib
import os
import socket
import struct
import threading
import time

MESSAGE = b'SERROR\0VERROR\0C25006\0Mcannot execute in a read-only transaction\0\0'
REFUSAL = b'E' + struct.pack('!I', len(MESSAGE) + 4) + MESSAGE + b'Z' + struct.pack('!I', 5) + b'I'


def read(client, size):
    data = b''
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise OSError
        data += part
    return data


class Pair:
    """A client and its session of the server."""

    def __init__(self, client, pooler):
        self.client, self.server, self.pooler = client, socket.socket(socket.AF_UNIX), pooler
        self.is_turned = self.is_claiming = self.is_asking = False  # asking: it waits for an answer
        self.sending = threading.Lock()
        self.server.connect(f"{os.environ['PGHOST']}/.s.PGSQL.{os.environ['PGPORT']}")
        for work in (self.pass_on, self.answer):
            threading.Thread(target=self.until_closed, args=(work,), daemon=True).start()

    def until_closed(self, work):
        with contextlib.suppress(OSError):
            work()
        if not self.is_turned:
            self.client.close()
        self.server.close()

    def pass_on(self):
        """The client's messages: the first has no type, as have requests for encryption, which the server declines."""
        is_started = False
        while True:
            kind = read(self.client, 1) if is_started else b''
            length = read(self.client, 4)
            body = read(self.client, struct.unpack('!I', length)[0] - 4)
            is_started = is_started or body[:2] != b'\x04\xd2'
            with self.sending:
                if kind in (b'Q', b'P'):
                    self.is_claiming = b'claim_steps' in body
                if kind in (b'Q', b'S'):
                    self.is_asking = True
                    if self.is_turned:
                        self.refuse()
                if not self.is_turned:
                    self.server.sendall(kind + length + body)
            if kind == b'X':
                raise OSError

    def refuse(self):
        self.is_asking = False
        self.client.sendall(REFUSAL)

    def answer(self):
        while data := self.server.recv(65536):
            while self.is_claiming and self.pooler.holds_claims:
                time.sleep(0.01)
            with self.sending:
                if self.is_turned:
                    return
                # An answer ends with ReadyForQuery, six bytes.
                self.is_asking = self.is_asking and data[-6:-1] != b'Z\0\0\0\5'
                self.client.sendall(data)

    def turn(self):
        with self.sending:
            self.is_turned = True
            self.server.shutdown(socket.SHUT_RDWR)
            if self.is_asking:
                self.refuse()


class TurnedStandby:
    """address has the variables by which libpq finds it."""

    def __init__(self):
        self.pairs, self.holds_claims = [], False
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.address = {'PGHOST': '127.0.0.1', 'PGPORT': str(self.port)}
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                self.pairs.append(Pair(self.listener.accept()[0], self))

    def turn(self):
        for pair in list(self.pairs):
            with contextlib.suppress(OSError):
                pair.turn()

    def stop(self):
        self.listener.close()
