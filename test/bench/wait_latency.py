"""Waiting for steps: from the commit that makes one due to a service's claim, and what the waking costs."""

import collections
import contextlib
import dataclasses
import multiprocessing
import pathlib
import statistics
import time

import psycopg

import measure

RATE = 50      # steps a second: each one finds the services waiting
WAIT = '20 seconds'
COUNTS = (0, 1, 16)

PREPARE = """
    SELECT stacksaga.define_saga('one', ARRAY[stacksaga.queue_step('a', 'services', compensable => true)]);
    SELECT stacksaga.define_saga('two', ARRAY[stacksaga.queue_step('a', 'bench', compensable => true),
                                              stacksaga.queue_step('b', 'services', compensable => true)]);
    SELECT stacksaga.define_saga('nobody waits', ARRAY[stacksaga.queue_step('a', 'nobody', compensable => true)]);
"""

WAITING = """
    SELECT count(*) = %s FROM pg_stat_activity
     WHERE application_name = 'service' AND wait_event = 'Extension' AND query LIKE 'CALL%%'
"""


def serve(database, place, arrived):
    """A service: one transaction a turn, which answers for what is done and claims what is next."""
    with psycopg.connect(dbname=database, application_name='service', autocommit=True) as db:
        done = None
        while True:
            with db.transaction():
                if done:
                    db.execute('SELECT stacksaga.complete_step(%s, %s, %s)', done, prepare=True)
                done = db.execute("SELECT saga_id, step, lease FROM stacksaga.claim_steps('services', %s)",
                                  (f'service-{place}',), prepare=True).fetchone()
                claimed_at = time.monotonic()
            if done:
                arrived.put((done[0], claimed_at, time.monotonic()))
            else:
                db.execute(f"CALL stacksaga.wait_for_steps('services', '{WAIT}')")


@contextlib.contextmanager
def services(db, count):
    """So many services that wait. Gives the queue of what they have claimed."""
    arrived = multiprocessing.SimpleQueue()
    processes = [multiprocessing.Process(target=serve, args=(db.name, i, arrived), daemon=True)
                 for i in range(count)]
    for process in processes:
        process.start()
    measure.wait_until(lambda: db.sql(WAITING, count), f'{count} services wait')
    try:
        yield arrived
    finally:
        for process in processes:
            process.terminate()
            process.join()


def start_one(client):
    return client.execute("SELECT saga_id FROM stacksaga.start_saga('one')", prepare=True).fetchone()[0]


def start_unwatched(client):
    return client.execute("SELECT saga_id FROM stacksaga.start_saga('nobody waits')", prepare=True).fetchone()[0]


def complete_first(client):
    saga_id, lease = client.execute("SELECT saga_id, lease FROM stacksaga.claim_steps('bench', 'bench')",
                                    prepare=True).fetchone()
    client.execute("SELECT stacksaga.complete_step(%s, 'a', %s)", (saga_id, lease), prepare=True)
    return saga_id


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method='inclusive')[percent - 1]


@dataclasses.dataclass
class Due:
    """Steps that became due one by one, each by a commit, and microseconds of CPU for each of them."""
    sent: dict      # saga: when its COMMIT was sent
    own_cpu: float  # of the session that made them due
    all_cpu: float  # of all processes


def run_time(pid):
    """As measure.cpu_of(), to the nanosecond."""
    return int(pathlib.Path(f'/proc/{pid}/schedstat').read_text().split()[0]) / 1e9


def make_due(db, number, start):
    """Makes so many steps due by start(client), which returns the saga."""
    sent = {}
    with psycopg.connect(dbname=db.name) as client:
        # The flush of the commit to disk is no part of what is measured.
        client.execute('SET synchronous_commit = off')
        client.commit()
        own, everything = run_time(client.info.backend_pid), db.cpu()
        begun = time.monotonic()
        for i in range(number):
            time.sleep(max(0, begun + i / RATE - time.monotonic()))
            saga_id = start(client)
            sent[saga_id] = time.monotonic()
            client.commit()
        return Due(sent, 1e6 * (run_time(client.info.backend_pid) - own) / number,
                   1e6 * (db.cpu() - everything) / number)


def measured_round(bench, db, count, start, what, figures):
    """Adds the figures of one round, in which so many services wait, to those of their lines."""
    number = RATE * bench.seconds
    with services(db, count) as arrived:
        due = make_due(db, number, start)
        taken = [arrived.get() for _ in range(number if count else 0)]
        if count:
            measure.wait_until(lambda: db.sql(WAITING, count), 'the services have answered')
    who = f'{what}, {count} wait'
    print(f'  {who}: {due.own_cpu:.0f} us CPU of the session, {due.all_cpu:.0f} of all', flush=True)
    figures[f'{who}: CPU of the session that commits', 'us', None].append(due.own_cpu)
    figures[f'{who}: CPU of all processes', 'us', None].append(due.all_cpu)
    if count:
        claimed, committed = ([1000 * (row[i] - due.sent[row[0]]) for row in taken] for i in (1, 2))
        figures[f'{who}: half of the steps claimed within', 'ms', 3].append(statistics.median(claimed))
        figures[f'{who}: 99 % within', 'ms', 20].append(percentile(claimed, 99))
        figures[f'{who}: half of the claims committed within', 'ms', None].append(
            statistics.median(committed))


def run(bench):
    db = bench.database()
    db.sql(PREPARE)
    bench.extent = f'{bench.rounds} rounds of {bench.seconds} s, {RATE} steps a second, fsync on'
    figures = collections.defaultdict(list)
    for i in range(bench.rounds):
        for count in COUNTS if i % 2 else COUNTS[::-1]:
            measured_round(bench, db, count, start_one if count else start_unwatched, 'a saga starts',
                           figures)
        db.sql("SELECT stacksaga.start_saga('two') FROM generate_series(1, %s)", RATE * bench.seconds)
        measured_round(bench, db, 1, complete_first, 'the step before is completed', figures)
    for (what, unit, at_most), values in figures.items():
        bench.figure(what, values, unit, at_most=at_most)


measure.main(run, measure.Figures)
