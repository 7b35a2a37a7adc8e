"""The log as it grows: publishing and consuming with ten million messages kept against ten thousand."""

import measure
from outbox_peers import KEYS, PAYLOAD

BATCH = 100

# Nobody reads what is kept, and without a worker nobody empties the log.
PREPARE = f"""
    CREATE PROCEDURE fill(messages bigint, topic text) LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..messages / {BATCH} LOOP
            PERFORM stacksaga.publish_batch(topic, array_fill('{PAYLOAD}'::jsonb, ARRAY[{BATCH}]),
                (SELECT array_agg('key-' || (n * i) % {KEYS}) FROM generate_series(1, {BATCH}) AS n));
            COMMIT;
        END LOOP;
    END $$;
    CREATE PROCEDURE consume(messages bigint) LANGUAGE plpgsql AS $$
    DECLARE
        batch bigint;
        found bigint;
    BEGIN
        WHILE messages > 0 LOOP
            SELECT count(payload), max(batch_id) INTO found, batch
              FROM stacksaga.receive_messages('tail', 'bench', {BATCH});
            IF batch IS NOT NULL THEN
                PERFORM stacksaga.ack_messages(batch);
            END IF;
            messages := messages - found;
            COMMIT;
        END LOOP;
    END $$;
"""

PUBLISH = f"""\\set key random(1, {KEYS})
SELECT stacksaga.publish('kept', '{PAYLOAD}', 'key-' || :key::int);"""


def run(bench):
    little = 10_000
    much = 500_000 if bench.quick else 10_000_000
    taken = 10_000 if bench.quick else 50_000
    small, large = bench.database('small'), bench.database('large')
    for db in small, large:
        db.sql(PREPARE)
        db.sql("CALL fill(1000, 'kept')")
        db.sql("SELECT stacksaga.create_subscription('tail', 'order.placed')")
    large.sql('CALL fill(%s, %s)', much, 'kept')
    large.sql('VACUUM ANALYZE')

    def keep_little():
        small.sql('TRUNCATE stacksaga.outbox_message')
        small.sql('CALL fill(%s, %s)', little, 'kept')

    def publishes(db):
        def measured(seed):
            if db is small:
                keep_little()
            db.sql('CHECKPOINT')
            return db.load(PUBLISH, clients=4, seconds=bench.seconds, seed=seed)
        return measured

    def consumes(db):
        def measured(seed):
            if db is small:
                keep_little()
            db.sql('CALL fill(%s, %s)', taken, 'order.placed')
            db.sql('CHECKPOINT')
            return db.load(f'CALL consume({taken});', clients=1, transactions=1, items=taken,
                           seed=seed)
        return measured

    bench.compare(f'`publish`, {much:,} messages kept', publishes(large), f'{little:,} kept',
                  publishes(small), clients=4, goal=1.2)
    bench.extent = f'{bench.seconds} s or {taken:,} messages'
    bench.compare(f'receive and acknowledge {BATCH}, {much:,} messages kept', consumes(large),
                  f'{little:,} kept', consumes(small), clients=1, goal=1.2)
    large.must('SELECT count(*) >= %s FROM stacksaga.outbox_message', much)


measure.main(run)
