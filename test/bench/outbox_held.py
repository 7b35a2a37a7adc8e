"""A transaction held open for ten minutes while 4,000 messages a second are published and handled.

--seconds is how long it is held. With --write the plot goes into docs/images.
"""

import collections

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import psycopg

import measure
import outbox_plot
from outbox_peers import KEYS, PAYLOAD

BATCH = 10
RATE = 4000
PLOT = measure.PAGE.parent / 'images' / 'outbox_held.svg'

# The handler notes when it got how many messages; that is what is drawn.
PREPARE = """
    CREATE TABLE handled (at timestamptz NOT NULL, messages integer NOT NULL);
    CREATE FUNCTION note(messages stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO handled VALUES (clock_timestamp(), cardinality(messages));
    END $$;
    SELECT stacksaga.create_subscription('held', 'order.placed', 'note(stacksaga.message[])');
"""
PUBLISH = f"""\\set key random(1, {KEYS})
SELECT count(*) FROM stacksaga.publish_batch('order.placed',
    array_fill('{PAYLOAD}'::jsonb, ARRAY[{BATCH}]),
    (SELECT array_agg('key-' || (:key::int + n)) FROM generate_series(1, {BATCH}) AS n));
"""


def publish(seconds, folder):
    """Starts pgbench, which publishes at RATE and logs each transaction in `folder`."""
    script = pathlib.Path(folder) / 'publish.sql'
    script.write_text(PUBLISH)
    return subprocess.Popen(
        [measure.PGBENCH, '-n', '-M', 'prepared', '-c', '4', '-j', '1', '-R', str(RATE // BATCH),
         '-T', str(seconds), '-l', '--log-prefix', f'{folder}/log', '-f', script, 'bench'],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def published(folder, begun):
    """Second -> times of the transactions that ended in it, in ms, waiting for their turn left out."""
    seconds = collections.defaultdict(list)
    for file in pathlib.Path(folder).glob('log*'):
        for line in file.read_text().splitlines():
            _, _, taken, _, epoch, _, lag = map(int, line.split())
            seconds[epoch - begun].append((taken - lag) / 1000)
    return seconds


def top(seconds, first, last):
    """The 99th percentile of what ended in the seconds first..last - 1, in ms."""
    values = [value for second in range(first, last) for value in seconds[second]]
    return statistics.quantiles(values, n=100, method='inclusive')[98]


def run(bench):
    held = 20 if bench.quick else 600
    held = bench.asked_seconds or held
    around = max(5, held // 10)
    phases = (around, held, around)
    bench.extent = f'{held} s held, {around} s before and after, {RATE:,} messages a second'
    db = bench.database()
    db.sql(PREPARE)
    holder = psycopg.connect(dbname='bench')
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with tempfile.TemporaryDirectory() as folder:
        # As long before that as well: tables that are still empty are not what is compared with. A
        # moment more at both ends: the first second and the last are not whole.
        load = publish(around + sum(phases) + 4, folder)
        time.sleep(around + 2)
        begun = int(time.time()) + 1
        time.sleep(begun + phases[0] - time.time())
        holder.execute('SELECT pg_current_xact_id()')
        time.sleep(begun + phases[0] + phases[1] - time.time())
        dead = db.sql("SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables"
                      " WHERE relname LIKE 'outbox\\_message\\_%'")
        holder.rollback()
        if load.wait() != 0:
            sys.exit(f'pgbench failed:\n{load.stderr.read()}')
        taken = published(folder, begun)
    count = sum(map(len, taken.values())) * BATCH
    measure.wait_until(lambda: db.sql('SELECT sum(messages) >= %s FROM handled', count),
                       'all is handled')
    db.must('SELECT sum(messages) = %s FROM handled', count)
    rates = dict(db.session.execute(
        'SELECT floor(EXTRACT(epoch FROM at) - %s)::int, sum(messages)::int'
        '  FROM handled GROUP BY 1', (begun,)).fetchall())
    opened, closed = phases[0], phases[0] + phases[1]
    rate = {name: statistics.mean(rates.get(second, 0) for second in range(first, last))
            for name, first, last in (('before', 0, opened), ('end', closed - phases[0], closed))}
    before, end = top(taken, 0, opened), top(taken, closed - phases[0], closed)
    bench.figure('handled before', [rate['before']], 'messages a second')
    bench.figure('handled at the end of it, of what was before',
                 [100 * rate['end'] / rate['before']], '%', at_least=90)
    bench.figure('99 % of the calls of `publish_batch` before, within', [before], 'ms')
    bench.figure('the same at the end of it, of what was before', [100 * end / before], '%', at_most=110)
    bench.figure('dead rows in the log', [dead], 'rows', at_most=0)
    plot = outbox_plot.draw(
        f'{RATE:,} messages a second, a transaction held open for {held} s',
        [('handled', 'messages a second', [rates.get(s, 0) for s in range(sum(phases))]),
         ('99 % of publish_batch within', 'ms', [top(taken, s, s + 1) for s in range(sum(phases))])],
        shaded=(opened, closed))
    (PLOT if '--write' in sys.argv else pathlib.Path('/dev/null')).write_text(plot)


measure.main(run, measure.Figures)
