"""Latency: from the call of publish() to the handler in a worker, at a hundred messages a second."""

import statistics
import time

import measure
from outbox_peers import PAYLOAD

RATE = 100

PREPARE = """
    CREATE TABLE arrived (published_at timestamptz NOT NULL, handled_at timestamptz NOT NULL);
    CREATE FUNCTION note(message stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO arrived VALUES (message.published_at, clock_timestamp());
    END $$;
    SELECT stacksaga.create_subscription('latency', 'order.placed', 'note(stacksaga.message)');
"""


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method='inclusive')[percent - 1]


def run(bench):
    db = bench.database()
    db.sql(PREPARE)
    seconds = bench.seconds
    bench.extent = f'{bench.rounds} rounds of {seconds} s, fsync on, one worker'

    def publish():
        db.sql(f"SELECT stacksaga.publish('order.placed', '{PAYLOAD}', 'key')")

    def arrived(count):
        return lambda: db.sql('SELECT count(*) = %s FROM arrived', count)

    publish()
    measure.wait_until(arrived(1), 'the worker handles messages', patience=60)
    halves, tops = [], []
    for _ in range(bench.rounds):
        db.sql('TRUNCATE arrived')
        db.sql('VACUUM ANALYZE')
        begun = time.monotonic()
        for number in range(seconds * RATE):
            time.sleep(max(0, begun + number / RATE - time.monotonic()))
            publish()
        measure.wait_until(arrived(seconds * RATE), 'all messages are handled')
        taken = [row[0] for row in db.session.execute(
            'SELECT EXTRACT(epoch FROM handled_at - published_at)::float8 * 1000 FROM arrived')]
        halves.append(statistics.median(taken))
        tops.append(percentile(taken, 99))
    bench.figure('from `publish` to the handler: half of the messages within', halves, 'ms', at_most=2)
    bench.figure('from `publish` to the handler: 99 % of the messages within', tops, 'ms', at_most=15)


measure.main(run, measure.Figures)
