"""A client's session: recorded transactions, whose outcome is known as far as a client can know it."""

import random
import sys
import time

import psycopg

from recorder import Recorder

ISOLATION = ('READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
# One COMMIT in so many is cut: the client closes its socket before the answer comes.
CUT = 80


class Refused(Exception):
    """The transaction did not commit."""

    def __init__(self, sqlstate):
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Unknown(Exception):
    """The connection broke at COMMIT: it may have committed or not."""


class Session:
    """What all clients share: randomness from the seed, the phase of the run, recorded transactions."""

    def __init__(self, name, folder, seed):
        self.name = name
        self.folder = folder
        self.random = random.Random(f'{seed}/{name}')
        self.recorder = Recorder(folder / 'history', name)
        self.connection = None
        self.nonces = 0
        self.is_doubtful = False

    def phase(self):
        """run, then drain (start nothing new, finish what there is), then stop."""
        return (self.folder / 'phase').read_text()

    def nonce(self):
        self.nonces += 1
        return f'{self.name}-{self.nonces}'

    def connect(self):
        while self.connection is None or self.connection.closed:
            if self.phase() == 'stop':
                sys.exit(0)
            try:
                self.connection = psycopg.connect(
                    autocommit=True, connect_timeout=5, application_name=f'chaos {self.name}')
                self.connection.add_notice_handler(self.notice)
                # So that a session that was stopped does not hold its locks for long.
                self.connection.execute("SET idle_in_transaction_session_timeout = '4s'")
            except psycopg.OperationalError:
                self.close()
                time.sleep(0.1)
        return self.connection

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def notice(self, diagnostic):
        """Waiting for a synchronous standby was cut short: the server answers COMMIT, and warns."""
        self.is_doubtful = self.is_doubtful or 'might not have been replicated' in (diagnostic.message_detail or '')

    def begin(self, isolation):
        """Begins a transaction, with a short timeout now and then."""
        connection = self.connect()
        level = isolation or self.random.choice(ISOLATION)
        connection.execute(f'BEGIN ISOLATION LEVEL {level}')
        if self.random.randrange(12) == 0:
            setting = self.random.choice(('lock_timeout', 'statement_timeout'))
            connection.execute(f"SET LOCAL {setting} = '{self.random.randrange(5, 200)}ms'")
        if self.random.randrange(200) == 0:
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
        return connection

    def commit(self, connection):
        if self.random.randrange(CUT) == 0:
            connection.pgconn.send_query(b'COMMIT')
            connection.pgconn.flush()
            self.close()
            raise Unknown('cut')
        try:
            cursor = connection.execute('COMMIT')
        except psycopg.Error as error:
            if connection.closed:
                raise Unknown(error.sqlstate or '08006') from error
            raise
        if cursor.statusmessage != 'COMMIT':
            raise Refused('25P02')
        if self.is_doubtful:
            self.is_doubtful = False
            raise Unknown('01000')

    def transaction(self, op, args, body, isolation=None):
        """Runs body(connection) and COMMIT as one recorded call, and returns what body returned.

        Raises Refused when it did not commit, and Unknown when nobody can tell. args may be completed by
        body, in which case the answer tells them.
        """
        connection = None
        self.connect()
        call = self.recorder.call(op, args)
        try:
            connection = self.begin(isolation)
            value = body(connection)
            if self.random.randrange(150) == 0:
                time.sleep(0.05)
            self.commit(connection)
        except Unknown as unknown:
            self.close()
            self.recorder.answer(call, 'unknown', sqlstate=str(unknown))
            raise
        except (psycopg.Error, Refused) as error:
            # COMMIT was not sent, or it was answered by an error: this transaction is no more.
            sqlstate = error.sqlstate or '08006'
            self.recorder.answer(call, 'error', sqlstate=sqlstate)
            self.roll_back()
            raise Refused(sqlstate) from error
        self.recorder.answer(call, 'ok', value)
        return value

    def roll_back(self):
        try:
            if self.connection is not None and not self.connection.closed:
                self.connection.execute('ROLLBACK')
        except psycopg.Error:
            self.close()

    def read(self, sql, parameters=()):
        """Rows of a query, unrecorded; none while the server is away."""
        try:
            return self.connect().execute(sql, parameters).fetchall()
        except psycopg.Error:
            self.roll_back()
            return []

    def wait(self, call, parameters=()):
        """A CALL that returns when there may be work; or a pause, as a client has that polls."""
        if self.random.randrange(4) == 0:
            time.sleep(0.1)
            return
        try:
            self.connect().execute(call, parameters)
        except psycopg.Error:
            self.roll_back()
            time.sleep(0.1)

    def attempt(self, op, args, body, isolation=None):
        """transaction(), with None for what did not commit or may not have."""
        try:
            return self.transaction(op, args, body, isolation)
        except (Refused, Unknown):
            return None

    def insist(self, op, args, body, tries=8):
        """Asks again with the same arguments until the answer is known; returns it, or None."""
        for _ in range(tries):
            try:
                return self.transaction(op, args, body)
            except Unknown:
                continue
            except Refused as refused:
                if refused.sqlstate[:2] not in ('40', '08', '55', '57', 'SR', '25', '53'):
                    return None
                time.sleep(self.random.random() * 0.1)
        return None
