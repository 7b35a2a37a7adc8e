"""Starting sagas: start_saga() against the INSERTs of a saga written by hand."""

import pathlib

import measure

DEFINE = """
    SELECT stacksaga.define_saga('order', ARRAY[
        stacksaga.queue_step('charge', queue => 'payments', compensable => true)])
"""
INPUT = """'{"account": "4711", "amount": 20, "currency": "EUR"}'"""

OURS = f"SELECT * FROM stacksaga.start_saga('order', {INPUT});"

OURS_KEYED = f"""\\set key random(1, 1000000000000000000)
SELECT * FROM stacksaga.start_saga('order', {INPUT}, 'order-' || :key::bigint);
"""

# The work names its saga in the same statement, as one round trip does.
THEIRS = f"""
WITH new AS (
    INSERT INTO hand.saga (saga, input, input_hash)
    VALUES ('order', {INPUT}, sha256(convert_to({INPUT}::jsonb::text, 'UTF8')))
    RETURNING saga_id
), work AS (
    INSERT INTO hand.work (saga_id, step, queue) SELECT saga_id, 1, 'payments' FROM new
)
SELECT saga_id FROM new;
"""

THEIRS_KEYED = f"""\\set key random(1, 1000000000000000000)
WITH new AS (
    INSERT INTO hand.saga (saga, key, input, input_hash)
    VALUES ('order', 'order-' || :key::bigint, {INPUT},
            sha256(convert_to({INPUT}::jsonb::text, 'UTF8')))
    ON CONFLICT DO NOTHING RETURNING saga_id
), work AS (
    INSERT INTO hand.work (saga_id, step, queue) SELECT saga_id, 1, 'payments' FROM new
)
SELECT saga_id FROM new;
"""

# A transaction of one row: the floor of anything that commits for each saga.
BARE_COMMIT = "INSERT INTO hand.bare (written_at) VALUES (clock_timestamp());"


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    db.sql('CREATE TABLE hand.bare (written_at timestamptz)')
    db.sql(DEFINE)
    started = {}

    def starts(script, table, clients):
        def measured(seed):
            cost = db.load(script, clients=clients, seconds=bench.seconds, seed=seed)
            started[table] = started.get(table, 0) + cost.items
            return cost
        return measured

    for clients in (1, 4, 16):
        bench.compare('`start_saga`', starts(OURS, 'stacksaga.saga', clients),
                      'INSERT of saga and work', starts(THEIRS, 'hand.saga', clients),
                      clients=clients, cpu_goal=1.1)
    for clients in (1, 4, 16):
        bench.compare('`start_saga` with a key', starts(OURS_KEYED, 'stacksaga.saga', clients),
                      'INSERT … ON CONFLICT', starts(THEIRS_KEYED, 'hand.saga', clients),
                      clients=clients, cpu_goal=1.1)
    bench.compare('as many transactions of one INSERT', starts(BARE_COMMIT, 'hand.bare', 16), 'INSERT … ON CONFLICT',
                  starts(THEIRS_KEYED, 'hand.saga', 16), clients=16)
    for table, count in started.items():
        db.must(f'SELECT count(*) = %s FROM {table}', count)


measure.main(run)
