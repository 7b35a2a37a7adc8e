"""Claimers of one queue with a backlog: 4, 16 and 64 at once against one alone, and 16 against as many in an
empty queue."""

import contextlib
import dataclasses

import psycopg

import measure

DEFINE = """
    SELECT stacksaga.define_saga('order', ARRAY[
        stacksaga.queue_step('charge', queue => 'payments', compensable => true)])
"""

FILL = """
    SELECT stacksaga.start_saga('order', '{"amount": 20}') FROM generate_series(1, %s)
"""

CLAIM = """
SELECT count(*) AS claimed, max(saga_id::text) AS saga_id, max(lease) AS lease
  FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int) \\gset
\\if :claimed
SELECT stacksaga.complete_step(:saga_id, 'charge', :lease, '{"receipt": 4711}');
\\endif
"""

# As many steps come as are done: the backlog stays what it is, and so does the empty queue.
START_AND_CLAIM = """
SELECT * FROM stacksaga.start_saga('order', '{"amount": 20}');
""" + CLAIM

FORGET_STATISTICS = """
    DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class
                                                 WHERE relnamespace = 'stacksaga'::regnamespace);
    UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0
     WHERE relnamespace = 'stacksaga'::regnamespace AND relkind IN ('r', 'i')
"""


@contextlib.contextmanager
def held_snapshot(db):
    """A transaction that is open elsewhere: nothing that ends meanwhile can be removed."""
    with psycopg.connect(dbname=db.name) as holder:
        holder.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        holder.execute('SELECT 1')
        yield


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    backlog = 100_000 if bench.quick else 1_000_000
    bench.extent = f'{bench.seconds} s on a backlog of {backlog:,}'
    completed = "SELECT count(*) FROM stacksaga.effect"
    empty = bench.database('empty')
    empty.sql(DEFINE)

    def refill():
        missing = backlog - db.sql('SELECT count(*) FROM stacksaga.work')
        db.sql(FILL, max(0, missing))
        db.sql('VACUUM')

    def claims(clients, script=CLAIM, database=db):
        def measured(_):
            before = database.sql(completed)
            cost = database.load(script, clients=clients, seconds=bench.seconds)
            # A transaction whose claim found nothing is no step done, but its cost counts.
            return dataclasses.replace(cost, items=max(1, database.sql(completed) - before))
        return measured

    def compare(what):
        refill()
        for clients in (4, 16, 64):
            bench.compare(what, claims(clients), 'one claimer', claims(1), clients=clients, goal=1)
        empty.sql('VACUUM')
        bench.compare(what, claims(16, START_AND_CLAIM), 'the empty queue', claims(16, START_AND_CLAIM, empty),
                      clients=16, goal=1.11)

    # Plans that are made, and kept, for one of these must do for the others.
    db.sql(FORGET_STATISTICS)
    compare('without statistics')
    db.sql('ANALYZE')
    compare('after ANALYZE')
    with held_snapshot(db):
        compare('with a snapshot held open')


measure.main(run)
