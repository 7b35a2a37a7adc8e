"""Databases of the sweep: filled once, copied for each group of points.

Their statistics are those of almost empty tables (stale), because nothing analyzes them after they were filled,
until a copy is told to be fresh.
"""

import contextlib
import pathlib
import time

import psycopg

import measure

BENCH = pathlib.Path(measure.__file__).parent
SAGAS_A_CALL = 10_000
MESSAGES_A_CALL = 1000

# A lease ends with the timeout of its step: one that lasts longer than a group keeps a claimed step claimed.
SAGAS = """
    SELECT stacksaga.define_saga('order', ARRAY[
        stacksaga.queue_step('charge', queue => 'payments', compensable => true, timeout => '1 hour')]);
    CREATE TABLE ledger (n bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE FUNCTION book(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO ledger DEFAULT VALUES;
        RETURN '{}';
    END $$;
    SELECT stacksaga.define_saga('transfer', ARRAY[stacksaga.sql_step('debit', action => 'book(stacksaga.step_call)')]);
    CREATE TABLE leased (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, saga_id uuid NOT NULL, lease bigint NOT NULL);
    CREATE SEQUENCE answered;
"""
START_SAGAS = """SELECT count(*) FROM stacksaga.start_sagas('order', array_fill('{"amount": 20}'::jsonb, ARRAY[%s]))"""

# The first key that copy_key copies.
KEYS = """
    SELECT stacksaga.idempotency_finish('charges', 'key-1', lease, '{"status": 201}')
      FROM stacksaga.idempotency_begin('charges', 'key-1', '{"amount": 20}')
"""

# Four subscriptions of sixteen partitions each, so that each of 64 consumers has one, and one that nobody reads.
MESSAGES = """
    SELECT stacksaga.create_subscription('sweep-' || n, 'order.*') FROM generate_series(0, 3) AS n;
    SELECT stacksaga.create_subscription('never', 'order.*');
    CREATE TABLE received (messages bigint NOT NULL);
"""
PUBLISH = """
    SELECT count(*) FROM stacksaga.publish_batch('order.placed', array_fill('{"amount": 20}'::jsonb, ARRAY[%s]),
        (SELECT array_agg('key-' || n %% 1000) FROM generate_series(1, %s) AS n))
"""


class Database(measure.Database):
    """A database that may be a copy of a filled one."""

    def __init__(self, name, template=None):
        with psycopg.connect(dbname='postgres', autocommit=True) as server:
            # The WAL of a copied million of rows would cost more than a checkpoint.
            copied = '' if server.info.server_version < 150000 or not template else ' STRATEGY file_copy'
            server.execute(f'CREATE DATABASE {name}' + (f' TEMPLATE {template}{copied}' if template else ''))
        self.name = name
        self.session = psycopg.connect(dbname=name, autocommit=True)

    def drop(self):
        self.session.close()
        with psycopg.connect(dbname='postgres', autocommit=True) as server:
            server.execute(f'DROP DATABASE {self.name} WITH (FORCE)')


def add_sagas(db, count):
    """Starts so many sagas that wait for a service."""
    while count > 0:
        db.sql(START_SAGAS, min(count, SAGAS_A_CALL))
        count -= SAGAS_A_CALL


def add_messages(db, count):
    """Publishes so many messages of a thousand keys."""
    while count > 0:
        db.sql(PUBLISH, MESSAGES_A_CALL, MESSAGES_A_CALL)
        count -= MESSAGES_A_CALL


def add_keys(db, count):
    """Completes the keys key-2 to key-COUNT; key-1 is there."""
    db.sql("SELECT copy_key('charges', 'key-1', 2, %s)", count)


AREAS = {'sagas': (SAGAS, add_sagas), 'messages': (MESSAGES, add_messages),
         'keys': ((BENCH / 'copy_key.sql').read_text() + KEYS, add_keys)}


class Filled:
    """The filled databases of the run: made when first asked for, and copied. What is planted is SQL that breaks them."""

    def __init__(self, planted):
        self.planted = planted
        self.made = set()

    def fill(self, area, rows):
        name = f'filled_{area}_{rows}'
        if name not in self.made:
            started = time.monotonic()
            prepare, add = AREAS[area]
            db = Database(name)
            db.sql('CREATE EXTENSION stacksaga')
            db.sql(prepare)
            if self.planted:
                db.sql(self.planted)
            db.sql('VACUUM ANALYZE')
            add(db, rows)
            # Nobody may be connected to a database that is copied.
            db.session.close()
            self.made.add(name)
            print(f'{rows:,} rows of {area} in {time.monotonic() - started:.0f} s', flush=True)
        return name

    @contextlib.contextmanager
    def copies(self, call, all_rows, conditions):
        """Databases by number of rows, under the conditions, for as long as the block runs."""
        databases = {rows: Database(f'sweep_{rows}', self.fill(call.area, max(rows, call.least))) for rows in all_rows}
        try:
            with contextlib.ExitStack() as stack:
                for db in databases.values():
                    if conditions.statistics == 'fresh':
                        db.sql('VACUUM ANALYZE')
                    if conditions.snapshot == 'held':
                        stack.enter_context(held_snapshot(db))
                if conditions.worker == 'worker':
                    stack.enter_context(workers(databases.values()))
                yield databases
        finally:
            for db in databases.values():
                db.drop()


@contextlib.contextmanager
def held_snapshot(db):
    """A transaction that is open elsewhere: nothing that ends meanwhile can be removed."""
    with psycopg.connect(dbname=db.name) as holder:
        holder.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        holder.execute('SELECT txid_current()')
        yield


@contextlib.contextmanager
def workers(databases):
    """A worker in each database."""
    databases = list(databases)
    work_in(databases, databases)
    yield
    work_in([], databases)


def work_in(databases, asked):
    """Has the server's workers work in these databases only, and waits until it is so."""
    with psycopg.connect(dbname='postgres', autocommit=True) as server:
        names = ','.join(db.name for db in databases)
        server.execute(f"ALTER SYSTEM SET stacksaga.databases = '{names}'")
        server.execute('SELECT pg_reload_conf()')
        measure.wait_until(
            lambda: server.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'"
                                   ' AND datname = ANY (%s)',
                                   [[db.name for db in asked]]).fetchone()[0] == len(databases),
            f'{len(databases)} workers run', patience=60)
