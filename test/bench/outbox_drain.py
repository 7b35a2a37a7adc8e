"""Draining a backlog: four consumers that receive batches of a thousand, against the same by hand
(DELETE of what SKIP LOCKED finds) and against PgQ."""

import pathlib

import measure
import outbox_peers
from outbox_peers import KEYS, PAYLOAD

CONSUMERS = 4
BATCH = 1000

# Each is a session that takes batch after batch, a transaction each, until there are no more. What
# it does with them is to count them.
PROCEDURES = f"""
    CREATE TABLE drained (messages bigint NOT NULL);

    CREATE PROCEDURE drain_ours() LANGUAGE plpgsql AS $$
    DECLARE
        batch bigint;
        messages bigint;
        total bigint := 0;
    BEGIN
        LOOP
            SELECT count(payload), max(batch_id) INTO messages, batch
              FROM stacksaga.receive_messages('drain', 'bench', {BATCH});
            EXIT WHEN batch IS NULL;
            PERFORM stacksaga.ack_messages(batch);
            total := total + messages;
            COMMIT;
        END LOOP;
        INSERT INTO drained VALUES (total);
    END $$;

    CREATE PROCEDURE drain_theirs() LANGUAGE plpgsql AS $$
    DECLARE
        found bigint;
        total bigint := 0;
    BEGIN
        LOOP
            WITH gone AS (
                DELETE FROM hand.outbox WHERE number = ANY (ARRAY(
                    SELECT number FROM hand.outbox ORDER BY number LIMIT {BATCH}
                       FOR UPDATE SKIP LOCKED))
                RETURNING payload)
            SELECT count(payload) INTO found FROM gone;
            EXIT WHEN found = 0;
            total := total + found;
            COMMIT;
        END LOOP;
        INSERT INTO drained VALUES (total);
    END $$;

    CREATE PROCEDURE drain_pgq() LANGUAGE plpgsql AS $$
    DECLARE
        batch bigint;
        found bigint;
        total bigint := 0;
    BEGIN
        LOOP
            batch := pgq.next_batch('orders', 'drain');
            EXIT WHEN batch IS NULL;
            SELECT count(ev_data) INTO found FROM pgq.get_batch_events(batch);
            PERFORM pgq.finish_batch(batch);
            total := total + found;
            COMMIT;
        END LOOP;
        INSERT INTO drained VALUES (total);
    END $$;

    CREATE PROCEDURE fill_ours(messages bigint) LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..messages / {BATCH} LOOP
            PERFORM stacksaga.publish_batch('order.placed',
                array_fill('{PAYLOAD}'::jsonb, ARRAY[{BATCH}]),
                (SELECT array_agg('key-' || n % {KEYS}) FROM generate_series(1, {BATCH}) AS n));
            COMMIT;
        END LOOP;
    END $$;

    -- A tick after each thousand events: they are the batch.
    CREATE PROCEDURE fill_pgq(messages bigint) LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..messages / {BATCH} LOOP
            PERFORM pgq.insert_event('orders', 'order.placed', '{PAYLOAD}', 'key-' || n % {KEYS},
                                     NULL, NULL, NULL)
               FROM generate_series(1, {BATCH}) AS n;
            COMMIT;
            PERFORM pgq.ticker('orders');
            COMMIT;
        END LOOP;
    END $$;
"""

FILL_THEIRS = f"""
    INSERT INTO hand.outbox (topic, key, payload)
    SELECT 'order.placed', 'key-' || n %% {KEYS}, '{PAYLOAD}' FROM generate_series(1, %s) AS n
"""


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_outbox.sql').read_text())
    outbox_peers.add_pgq(db)
    db.sql(PROCEDURES)
    db.sql("SELECT stacksaga.create_subscription('drain', 'order.placed'),"
           "       stacksaga.create_subscription('tick', 'nothing')")
    messages = 100_000 if bench.quick else 1_000_000
    bench.extent = f'{messages:,} messages'

    def drain(procedure, consumers):
        db.sql('TRUNCATE drained')
        db.sql('CHECKPOINT')
        cost = db.load(f'CALL {procedure}();', clients=consumers, transactions=1,
                       items=messages // consumers)
        db.must('SELECT sum(messages) = %s FROM drained', messages)
        return cost

    def ours(_):
        db.sql('CALL fill_ours(%s)', messages)
        # Inside a procedure the tick is made by the commit, for the next call: so make one before.
        db.sql("SELECT count(*) FROM stacksaga.receive_messages('tick', 'bench')")
        db.sql('VACUUM ANALYZE')
        cost = drain('drain_ours', CONSUMERS)
        db.sql('SELECT stacksaga.maintain_outbox(true)')
        db.sql('SELECT stacksaga.maintain_outbox(true)')
        db.must('SELECT count(*) = 0 FROM stacksaga.outbox_message')
        return cost

    def theirs(_):
        db.sql(FILL_THEIRS, messages)
        db.sql('VACUUM ANALYZE')
        cost = drain('drain_theirs', CONSUMERS)
        db.must('SELECT count(*) = 0 FROM hand.outbox')
        db.sql('TRUNCATE hand.outbox')
        return cost

    def pgq(_):
        db.sql("SELECT pgq.drop_queue('orders', true), pgq.create_queue('orders'),"
               "       pgq.register_consumer('orders', 'drain'),"
               "       pgq.set_queue_config('orders', 'ticker_max_count', '1')")
        db.sql('CALL fill_pgq(%s)', messages)
        db.sql('VACUUM ANALYZE')
        return drain('drain_pgq', 1)

    bench.compare(f'{CONSUMERS} consumers, batches of {BATCH}', ours,
                  'DELETE … SKIP LOCKED, as many', theirs, clients=CONSUMERS, goal=0.5)
    bench.compare(f'{CONSUMERS} consumers, batches of {BATCH}', ours,
                  f'PgQ, ticks of {BATCH}, one consumer', pgq, clients=CONSUMERS, goal=1)


measure.main(run)
