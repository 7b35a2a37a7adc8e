"""The clients that start things: each class is a kind, whose turn() is repeated while the harness runs."""

import time

import psycopg
from psycopg.types.json import Jsonb

from session import Refused, Unknown

ACCOUNTS = 24
KEYS = 12


def one(connection, sql, parameters=()):
    """The first row of a query, or None."""
    return connection.execute(sql, parameters).fetchone()


def transfer_input(random):
    return {'from': random.randint(1, ACCOUNTS), 'to': random.randint(1, ACCOUNTS),
            'amount': random.randint(1, 900)}


class Starter:
    """Starts sagas, each by a key of its own, and asks again by that key when the answer got lost."""

    def __init__(self, session):
        self.session = session
        self.asked = []

    def turn(self):
        random = self.session.random
        saga = random.choice(('transfer', 'transfer', 'order', 'family', 'patient'))
        wanted = transfer_input(random)
        fails_at = {'transfer': 'confirm', 'order': random.choice(('charge', 'close')), 'family': 'close',
                    'patient': random.choice(('hold', 'charge', 'close'))}
        if random.randrange(5) == 0:
            wanted['fails_at'] = fails_at[saga]
        if random.randrange(20) == 0:
            wanted['to'] = 900
        self.asked.append((saga, wanted, self.session.nonce()))
        self.start(*self.asked[-1])
        if random.randrange(10) == 0:
            self.start(*random.choice(self.asked[-100:]))
        if random.randrange(25) == 0:
            self.start_many()
        time.sleep(0.03)

    def start(self, saga, wanted, key):
        def body(connection):
            saga_id, created = one(
                connection, 'SELECT saga_id, created FROM stacksaga.start_saga(%s, %s, key => %s)',
                (saga, Jsonb(wanted), key))
            return {'saga_id': saga_id, 'created': created}
        self.session.insist('start', {'saga': saga, 'keys': [key], 'input': wanted}, body)

    def start_many(self):
        inputs = [transfer_input(self.session.random) for _ in range(5)]
        keys = [self.session.nonce() for _ in inputs]

        def body(connection):
            rows = connection.execute(
                'SELECT saga_id, created FROM stacksaga.start_sagas(%s, %s, %s)',
                ('transfer', [Jsonb(wanted) for wanted in inputs], keys)).fetchall()
            return {'saga_ids': [row[0] for row in rows]}
        self.session.insist('start', {'saga': 'transfer', 'keys': keys}, body)

    def drain(self):
        """Asks once more for some of what it asked for: the answer must be the one it was."""
        for asked in self.session.random.sample(self.asked, min(50, len(self.asked))):
            self.start(*asked)
        return True


class Publisher:
    """Publishes messages, whose number counts per key under a row lock, and sometimes rolls back."""

    def __init__(self, session):
        self.session = session

    def turn(self):
        random = self.session.random
        key = None if random.randrange(6) == 0 else f'k{random.randint(1, KEYS)}'
        count = random.choice((1, 1, 1, 2, 5))
        delayed = random.randrange(10) == 0
        payloads = [{'nonce': self.session.nonce(), 'delayed': delayed, 'busy': random.randrange(10) == 0,
                     'poison': random.randrange(40) == 0} for _ in range(count)]
        args = {'key': key, 'nonces': [payload['nonce'] for payload in payloads]}

        def body(connection):
            first = 0
            if key is not None:
                first = one(connection, 'UPDATE bank.stream SET n = n + %s WHERE key = %s RETURNING n',
                            (count, key))[0] - count
            numbers = [first + i + 1 for i in range(count)]
            for n, payload in zip(numbers, payloads):
                payload['n'] = n
            if delayed or count == 1:
                ids = [one(connection, """SELECT stacksaga.publish('event', %s, key => %s,
                               deliver_at => CASE WHEN %s THEN clock_timestamp() + %s * interval '1 s' END)""",
                           (Jsonb(payload), key, delayed, random.random() * 3))[0] for payload in payloads]
            else:
                ids = [row[0] for row in connection.execute(
                    "SELECT stacksaga.publish_batch('event', %s, %s)",
                    ([Jsonb(payload) for payload in payloads], [key] * count))]
            for payload, message_id in zip(payloads, ids):
                connection.execute("INSERT INTO bank.sent VALUES ('event', %s, %s, %s, %s, %s)",
                                   (key, payload['n'], payload['nonce'], message_id, delayed))
            if random.randrange(20) == 0:
                raise Refused('rollback')
            return {'numbers': numbers}
        self.session.attempt('publish', args, body)
        time.sleep(0.02)


class Payer:
    """Uses idempotency keys that all payers share, in one transaction or under a lease of two seconds."""

    def __init__(self, session):
        self.session = session
        self.used = []

    def turn(self):
        random = self.session.random
        key = f'{int(time.monotonic() / 10)}-{random.randint(1, 40)}'
        request = {'key': key, 'variant': 'other' if random.randrange(20) == 0 else 'usual'}
        self.used.append((key, request))
        if random.randrange(3) == 0:
            self.pay_under_lease(key, request)
        else:
            self.pay(key, request)
        time.sleep(0.03)

    def begin(self, connection, key, request, on_locked):
        return one(connection, """SELECT outcome, response, lease FROM stacksaga.idempotency_begin(
                       'pay', %s, %s, lease => '2 seconds', on_locked => %s)""",
                   (key, Jsonb(request), on_locked))

    def finish(self, connection, key, lease, nonce):
        connection.execute('INSERT INTO bank.paid VALUES (%s, %s)', (key, nonce))
        connection.execute("SELECT stacksaga.idempotency_finish('pay', %s, %s, %s)",
                           (key, lease, Jsonb({'nonce': nonce})))
        return {'nonce': nonce, 'replay': False}

    def pay(self, key, request):
        nonce = self.session.nonce()

        def body(connection):
            on_locked = self.session.random.choice(('wait', 'error'))
            outcome, response, lease = self.begin(connection, key, request, on_locked)
            if outcome == 'replay':
                return {'nonce': response['nonce'], 'replay': True}
            return self.finish(connection, key, lease, nonce)
        self.session.attempt('pay', {'key': key, 'request': request, 'nonce': nonce}, body)

    def pay_under_lease(self, key, request):
        nonce = self.session.nonce()
        begun = self.session.attempt(
            'pay_begin', {'key': key, 'request': request},
            lambda connection: self.begin(connection, key, request, 'error'))
        if begun is None:
            return
        outcome, response, lease = begun
        if outcome == 'replay':
            return
        random = self.session.random
        time.sleep(random.choice((0, 0, 0.1, 2.2)))
        if random.randrange(10) == 0:
            self.session.attempt('pay_release', {'key': key}, lambda connection: one(
                connection, "SELECT stacksaga.idempotency_release('pay', %s, %s)", (key, lease)) and None)
            return
        self.session.attempt('pay', {'key': key, 'request': request, 'nonce': nonce},
                             lambda connection: self.finish(connection, key, lease, nonce))

    def drain(self):
        for key, request in self.used[-100:]:
            self.pay(key, request)
        return True


class Deduper:
    """Versioned values and producers' sequences, shared by all of its kind."""

    def __init__(self, session):
        self.session = session
        self.epoch = None
        self.sequence = 0

    def turn(self):
        if self.session.random.randrange(2):
            self.compare_and_set()
        else:
            self.produce()
        time.sleep(0.05)

    def compare_and_set(self):
        key, nonce = f'v{self.session.random.randint(1, 3)}', self.session.nonce()

        def body(connection):
            row = one(connection, "SELECT version FROM stacksaga.read_value('chaos', %s)", (key,))
            version = one(connection, "SELECT stacksaga.compare_and_set('chaos', %s, %s, %s)",
                          (key, row[0] if row else None, Jsonb({'nonce': nonce})))[0]
            connection.execute('INSERT INTO bank.versioned VALUES (%s, %s, %s)', (key, version, nonce))
            return {'version': version}
        self.session.attempt('set', {'key': key, 'nonce': nonce}, body)

    def produce(self):
        """One producer with many owners: each new epoch fences the owner before it."""
        if self.epoch is None or self.session.random.randrange(15) == 0:
            self.epoch, self.sequence = time.monotonic_ns() // 1000, 0
        epoch, sequence = self.epoch, self.sequence + 1

        def body(connection):
            answer = one(connection, "SELECT stacksaga.accept_sequence('producer', %s, %s)",
                         (epoch, sequence))[0]
            if answer == 'accepted':
                connection.execute("INSERT INTO bank.sequenced VALUES ('producer', %s, %s)", (epoch, sequence))
            return {'accepted': answer == 'accepted'}
        try:
            self.session.transaction('sequence', {'epoch': epoch, 'sequence': sequence}, body)
            self.sequence = sequence
        except Unknown:
            pass
        except Refused as refused:
            if refused.sqlstate == 'SG412':
                self.epoch = None


class Brawler:
    """Moves money between hot accounts in any order of locks, so that deadlocks with the steps arise."""

    def __init__(self, session):
        self.session = session

    def turn(self):
        random = self.session.random
        debtor, creditor = random.sample(range(1, 5), 2)
        amount, nonce = random.randint(1, 50), self.session.nonce()

        def body(connection):
            for account, change in ((debtor, -amount), (creditor, amount)):
                connection.execute('UPDATE bank.account SET balance = balance + %s WHERE id = %s', (change, account))
                connection.execute('INSERT INTO bank.direct VALUES (%s, %s, %s)', (nonce, account, change))
                time.sleep(0.01)
        self.session.attempt('move', {'nonce': nonce}, body)
        time.sleep(0.2)


class Watcher:
    """Notes from time to time which tokens each node may work on.

    Each node is asked by itself, with what is committed then. So the epoch is read before and after: if it is the
    same, no owner has changed in between, and the answers are those of an instant.
    """

    def __init__(self, session):
        self.session = session

    @staticmethod
    def epoch(connection):
        return one(connection, "SELECT epoch FROM stacksaga.ring_status WHERE region = 'default'")[0]

    def turn(self):
        self.session.attempt('ranges', {}, lambda connection: {
            'epoch': self.epoch(connection),
            'ranges': [{'node': row[0], 'start': row[1], 'end': row[2]} for row in connection.execute(
                """SELECT n.node, r.range_start, r.range_end
                     FROM stacksaga.nodes n, stacksaga.node_ranges(n.node) r""")],
            'epoch_after': self.epoch(connection)})
        time.sleep(0.3)
