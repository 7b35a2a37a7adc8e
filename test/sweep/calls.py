"""The calls of the sweep: what a client does again and again, what must be there before it does, and what counts.

To add one, write a subclass of Call that has a name; the sweep finds it by itself.
"""

import pathlib

import measure
from filled import add_messages, add_sagas
from floors import ANSWER, BATCH, READ, READ_KEY, START, TAKE, WRITE
from load import WARM, pgbench


class Call:
    """A call whose every transaction is one item, and that needs nothing but the rows of its database."""
    name = ''
    area = 'sagas'
    script = ''
    # How many rows a database has for it that counts as empty: a call that reads rows needs some.
    least = 0
    floor = WRITE
    # What brings a database without rows back to none before each round, where the call adds some.
    empty = ''

    def prepare(self, db, rows, seconds):
        """Makes what a round will use up."""
        if rows == 0 and self.empty:
            db.sql(self.empty)

    def floor_under(self, conditions):
        """What is done by hand under the same conditions."""
        return self.floor

    def items(self, db):
        """A number that rises by one with each item; None: each transaction is one."""

    def used_up(self, db):
        """Whether a round ended with nothing left to do: then its rate says nothing, and more is needed."""
        return False

    def rate(self, db, rows, clients, seconds, seed, conditions):
        """Items a second in one round."""
        while True:
            self.prepare(db, rows, WARM + seconds)
            before = self.items(db)
            count, per_second = pgbench(db, self.script.replace('{rows}', str(max(rows, self.least))), clients,
                                        ['-T', str(WARM + seconds)], seed)
            if not self.used_up(db):
                return per_second if before is None else per_second * (self.items(db) - before) / max(1, count)


class PooledCall(Call):
    """A call that uses up what is prepared for it: so much a second, and twice as much when that was too little."""
    pool = 6000

    def left(self, db):
        """How many are left to do."""
        raise NotImplementedError

    def add(self, db, count):
        """Makes more of them."""
        raise NotImplementedError

    def prepare(self, db, rows, seconds):
        # The number of rows may be a tenth off: what a round takes from a million need not be replaced.
        self.add(db, max(self.pool * seconds, rows * 9 // 10) - self.left(db))

    def used_up(self, db):
        if self.left(db) > self.pool // 100:
            return False
        self.pool *= 2
        return True


class Start(Call):
    name = 'start'
    script = """SELECT * FROM stacksaga.start_saga('order', '{"amount": 20}');"""
    floor = START
    empty = 'TRUNCATE stacksaga.saga, stacksaga.work'


class Claim(PooledCall):
    name = 'claim'
    script = "SELECT count(*) FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int, lease => '1 day');"
    floor = TAKE
    add = staticmethod(add_sagas)

    def left(self, db):
        return db.sql('SELECT count(*) FROM stacksaga.work WHERE queue IS NOT NULL AND lease IS NULL')

    def items(self, db):
        return db.sql('SELECT count(*) FROM stacksaga.work WHERE lease IS NOT NULL')


class Complete(PooledCall):
    """Answers of steps that were claimed before the round, each by one session."""
    name = 'complete'
    floor = ANSWER
    answer = """complete_step(saga_id, 'charge', lease, '{"receipt": 4711}')"""
    BATCH = 1000

    @property
    def script(self):
        return f"SELECT stacksaga.{self.answer} FROM leased WHERE n = (SELECT nextval('answered'));"

    def left(self, db):
        return db.sql('SELECT max(n) - (SELECT last_value FROM answered) FROM leased') or 0

    def add(self, db, count):
        # The rows of the backlog stay; what is claimed comes on top of them.
        add_sagas(db, count)
        while count > 0:
            db.sql("INSERT INTO leased (saga_id, lease) SELECT saga_id, lease"
                   " FROM stacksaga.claim_steps('payments', 'sweep', %s, '1 day')", self.BATCH)
            count -= self.BATCH
        db.sql('ANALYZE leased')

    def prepare(self, db, rows, seconds):
        self.add(db, self.pool * seconds - self.left(db))


class Fail(Complete):
    name = 'fail'
    answer = "fail_step(saga_id, 'charge', lease, 'the bank is closed', 'retryable', retry_after => '1 day')"


def queued_seconds(pid):
    """For how long a process of one thread has been ready to run while others had the processors."""
    return int(pathlib.Path(f'/proc/{pid}/schedstat').read_text().split()[1]) / 1e9


class SqlSteps(Call):
    """Sagas of one SQL step from start to end: by the worker, or by run_pending() of whoever starts them."""
    name = 'sql_steps'
    script = "SELECT * FROM stacksaga.start_saga('transfer');\n"
    pool = 3000

    def floor_under(self, conditions):
        return WRITE if conditions.worker == 'worker' else TAKE

    def rate(self, db, rows, clients, seconds, seed, conditions):
        if conditions.worker != 'worker':
            before = db.sql('SELECT count(*) FROM ledger')
            count, per_second = pgbench(db, self.script + 'SELECT stacksaga.run_pending(1);\n', clients,
                                        ['-T', str(WARM + seconds)], seed)
            return per_second * (db.sql('SELECT count(*) FROM ledger') - before) / max(1, count)
        # All numbers of clients start as many sagas. What is measured is how fast their steps are done, but for the
        # time in which the clients leave the worker no processor.
        each = self.pool * (WARM + seconds) // clients
        first = db.sql('SELECT coalesce(max(n), 0) + 1 FROM ledger')
        worker = db.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'"
                        ' AND datname = current_database()')
        queued = queued_seconds(worker)
        pgbench(db, self.script, clients, ['-t', str(each)], seed)
        measure.wait_until(lambda: db.sql('SELECT count(*) FROM ledger WHERE n >= %s', first) == each * clients,
                           'all sagas end', pause=0.05)
        queued = queued_seconds(worker) - queued
        took = db.sql('SELECT extract(epoch FROM max(at) - min(at))::float8 FROM ledger WHERE n >= %s', first)
        return each * clients / (took - queued)


class Publish(Call):
    name = 'publish'
    area = 'messages'
    script = ("\\set key random(1, 1000)\n"
              """SELECT stacksaga.publish('order.placed', '{"amount": 20}', 'key-' || :key::int);""")
    empty = 'TRUNCATE stacksaga.outbox_message'


class Receive(PooledCall):
    """Ten messages received, and acknowledged in a transaction of their own; an item is a message."""
    name = 'receive'
    area = 'messages'
    floor = BATCH
    pool = 20_000
    script = """
SELECT count(*) AS messages, max(batch_id) AS batch
  FROM stacksaga.receive_messages('sweep-' || :client_id::int % 4, 'till-' || :client_id::int, 10) \\gset
\\if :messages
INSERT INTO received SELECT stacksaga.ack_messages(:batch);
\\endif
"""
    add = staticmethod(add_messages)

    def left(self, db):
        return db.sql("SELECT min(lag_messages) FROM stacksaga.subscriptions WHERE subscription LIKE 'sweep-%'")

    def items(self, db):
        return db.sql('SELECT coalesce(sum(messages), 0)::bigint FROM received')


class Idempotency(Call):
    """A new key: begun and finished in one transaction."""
    name = 'idempotency'
    area = 'keys'
    script = """\\set key random(1000000000, 1000000000000000000)
BEGIN;
SELECT lease FROM stacksaga.idempotency_begin('charges', 'key-' || :key::bigint, '{"amount": 20}') \\gset
SELECT stacksaga.idempotency_finish('charges', 'key-' || :key::bigint, :lease, '{"status": 201}');
END;
"""
    empty = 'TRUNCATE stacksaga.idempotency_key'


class Replay(Call):
    """A key that is completed, begun again."""
    name = 'replay'
    floor = READ_KEY
    area = 'keys'
    least = 1000
    script = ("\\set key random(1, {rows})\n"
              "SELECT outcome FROM stacksaga.idempotency_begin('charges', 'key-' || :key::int, '{\"amount\": 20}');")


class Sagas(Call):
    name = 'sagas'
    floor = READ
    least = 1000
    script = 'SELECT * FROM stacksaga.sagas ORDER BY created_at DESC LIMIT 20;'


class Status(Call):
    name = 'status'
    floor = READ
    script = 'SELECT stacksaga.status();'


class Metrics(Call):
    name = 'metrics'
    floor = READ
    script = 'SELECT count(*) FROM stacksaga.metrics();'


def every_call():
    """The calls by name, in the order of this file."""
    return {kind.name: kind() for kind in globals().values()
            if isinstance(kind, type) and issubclass(kind, Call) and kind.name}
