"""Handlers in SQL: two workers drain a backlog with a handler that takes a batch at once."""

import measure
from outbox_peers import KEYS, PAYLOAD

PROCESSORS = 2
BATCH = 1000

PREPARE = f"""
    CREATE TABLE ledger (key text NOT NULL, amount integer NOT NULL);
    CREATE FUNCTION book(messages stacksaga.message[]) RETURNS void LANGUAGE sql AS $$
        INSERT INTO ledger SELECT key, (payload -> 'amount')::integer FROM unnest(messages)
    $$;
    CREATE FUNCTION nothing(messages stacksaga.message[]) RETURNS void LANGUAGE sql AS '';

    CREATE PROCEDURE fill(messages bigint) LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..messages / {BATCH} LOOP
            PERFORM stacksaga.publish_batch('order.placed',
                array_fill('{PAYLOAD}'::jsonb, ARRAY[{BATCH}]),
                (SELECT array_agg('key-' || n % {KEYS}) FROM generate_series(1, {BATCH}) AS n));
            COMMIT;
        END LOOP;
    END $$;
"""


def run(bench):
    db = bench.database()
    messages = 100_000 if bench.quick else 1_000_000
    bench.extent = f'{bench.rounds} rounds of {messages:,} messages, two workers'
    db.sql(PREPARE)
    measure.wait_until(lambda: db.sql('SELECT count(*) = 2 FROM stacksaga.worker_stats'),
                       'two workers work', patience=60)
    # The slots are shared out a while after the second one is there.
    measure.wait_until(
        lambda: db.sql('SELECT count(*) = 2 AND min(slots) > 100 FROM ('
                       '  SELECT count(*) AS slots FROM stacksaga.slot GROUP BY owner) AS o'),
        'the slots are shared', patience=120, pause=0.1)
    workers = db.session.execute('SELECT pid FROM stacksaga.worker_stats').fetchall()

    def cpu():
        return sum(measure.cpu_of(pid) for pid, in workers)

    def handled():
        return int(db.sql('SELECT sum(items) FROM stacksaga.worker_stats'))

    def drain(handler):
        db.sql('TRUNCATE ledger')
        db.sql('CALL fill(%s)', messages)
        db.sql('VACUUM ANALYZE')
        db.sql('CHECKPOINT')
        before, handled_before = cpu(), handled()
        db.sql(f"SELECT stacksaga.create_subscription('drain', 'order.placed',"
               f" '{handler}(stacksaga.message[])', start_at => 'earliest')")
        begun = db.sql('SELECT clock_timestamp()')
        measure.wait_until(lambda: handled() - handled_before >= messages, 'all is handled',
                           patience=120, pause=0.02)
        seconds = db.sql('SELECT EXTRACT(epoch FROM max(written_at) - %s)::float8'
                         '  FROM stacksaga.subscription_position', begun)
        cost = measure.Cost(messages, seconds, cpu() - before)
        db.must("SELECT lag_messages = 0 FROM stacksaga.subscriptions"
                " WHERE subscription = 'drain'")
        if handler == 'book':
            db.must('SELECT count(*) = %s FROM ledger', messages)
        db.sql("SELECT stacksaga.drop_subscription('drain', true)")
        db.sql('TRUNCATE stacksaga.outbox_message')
        print(f'  {handler}: {cost}', flush=True)
        return cost

    for handler, what in (('nothing', 'that does nothing'), ('book', 'that inserts a row for each')):
        costs = [drain(handler) for _ in range(bench.rounds)]
        bench.figure(f'a handler {what}: messages by the clock, commits flushed to disk',
                     [cost.items / cost.seconds / 1000 for cost in costs], 'thousand a second')
        # The commits wait for the disk; what the work itself allows is seen by its CPU time.
        bench.figure(f'a handler {what}: messages in the time of {PROCESSORS} processors',
                     [PROCESSORS / cost.per_item()[1] / 1000 for cost in costs],
                     'thousand a second', at_least=500)


measure.main(run, measure.Figures)
