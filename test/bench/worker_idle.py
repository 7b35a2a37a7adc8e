"""A worker that has nothing to do: its share of a core, and what one look for work costs it."""

import contextlib
import pathlib
import time

import psycopg

import measure

DEFINE = """
    CREATE FUNCTION act(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
    SELECT stacksaga.define_saga('order', ARRAY[stacksaga.queue_step('charge', queue => 'payments', compensable => true)]);
    SELECT stacksaga.define_saga('local', ARRAY[stacksaga.sql_step('act', 'act(stacksaga.step_call)')]);
"""
START = 'SELECT count(*) FROM (SELECT stacksaga.start_saga(%s) FROM generate_series(1, %s)) AS s'
WORKERS_WORK = """
    SELECT count(*) FROM stacksaga.work WHERE queue IS NULL OR verifying OR lease_until IS NOT NULL
"""


@contextlib.contextmanager
def held_snapshot(db):
    """A transaction that is open elsewhere: nothing that ends meanwhile can be removed."""
    with psycopg.connect(dbname=db.name) as holder:
        holder.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        holder.execute('SELECT 1')
        yield


def cpu_of(worker):
    """The CPU time that a process of one thread has used, in seconds; far finer than ticks (see sched-stats)."""
    return int(pathlib.Path(f'/proc/{worker}/schedstat').read_text().split()[0]) / 1e9


def poll_every(db, milliseconds):
    db.sql(f"ALTER SYSTEM SET stacksaga.poll_interval = '{milliseconds} ms'")
    db.sql('SELECT pg_reload_conf()')


def turns(db):
    """How many turns the worker has had, when it has just said so."""
    before = db.sql('SELECT turns FROM stacksaga.worker_stats')
    measure.wait_until(lambda: db.sql('SELECT turns <> %s FROM stacksaga.worker_stats', before),
                       'the worker reports its turns', patience=60, pause=0.05)
    return db.sql('SELECT turns FROM stacksaga.worker_stats')


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    backlog = 100_000 if bench.quick else 1_000_000
    done = 5_000 if bench.quick else 50_000
    seconds = bench.asked_seconds or (5 if bench.quick else 20)
    rounds = 1 if bench.quick else 3
    bench.extent = f'{rounds} times {seconds} s'
    measure.wait_until(lambda: db.sql('SELECT count(*) = 1 FROM stacksaga.worker_stats'), 'the worker works')
    worker = db.sql('SELECT pid FROM stacksaga.worker_stats')

    def share(_):
        """Of a core, in percent."""
        before = cpu_of(worker)
        time.sleep(seconds)
        return 100 * (cpu_of(worker) - before) / seconds

    def cost_of_turn(_):
        """Microseconds of CPU."""
        first, before = turns(db), cpu_of(worker)
        time.sleep(seconds)
        last, after = turns(db), cpu_of(worker)
        return 1e6 * (after - before) / (last - first)

    def figures(what, **goal):
        poll_every(db, 1000)
        bench.figure(f'a worker, {what}', [share(i) for i in range(rounds)], '% of a core', **goal)
        poll_every(db, 10)
        bench.figure(f'one turn, {what}', [cost_of_turn(i) for i in range(rounds)], 'µs')
        db.must('SELECT pid = %s FROM stacksaga.worker_stats', worker)

    figures('with nothing to do')
    db.sql(START, 'order', backlog)
    db.must('SELECT count(*) = %s FROM stacksaga.work', backlog)
    db.sql('VACUUM ANALYZE')
    figures(f'while {backlog:,} steps wait for services', at_most=0.5)
    with held_snapshot(db):
        db.sql(START, 'local', done)
        measure.wait_until(lambda: db.sql(WORKERS_WORK) == 0, 'all local sagas end', pause=0.1)
        db.must('SELECT count(*) = %s FROM stacksaga.effect', done)
        figures(f'the same, with {done:,} steps done under a snapshot held open', at_most=0.5)


measure.main(run, measure.Figures)
