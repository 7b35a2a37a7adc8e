"""Publishing: publish() against PgQ and an INSERT, publish_batch() against INSERT ... SELECT."""

import pathlib

import measure
import outbox_peers
from outbox_peers import KEYS, PAYLOAD

CLIENTS = 16
BATCH = 100

KEY = f"\\set key random(1, {KEYS})\n"
OURS = f"{KEY}SELECT stacksaga.publish('order.placed', '{PAYLOAD}', 'key-' || :key::int);"
PGQ = f"{KEY}SELECT pgq.insert_event('orders', 'order.placed', '{PAYLOAD}', " \
      "'key-' || :key::int, NULL, NULL, NULL);"
THEIRS = f"""{KEY}INSERT INTO hand.outbox (topic, key, payload)
VALUES ('order.placed', 'key-' || :key::int, '{PAYLOAD}') RETURNING message_id;"""

# The same arrays for both, as a client that has a hundred messages would send them.
ARRAYS = f"""array_fill('{PAYLOAD}'::jsonb, ARRAY[{BATCH}])"""
KEY_ARRAY = f"(SELECT array_agg('key-' || (:key::int + n)) FROM generate_series(1, {BATCH}) AS n)"
OURS_BATCH = f"{KEY}SELECT stacksaga.publish_batch('order.placed', {ARRAYS}, {KEY_ARRAY});"
THEIRS_BATCH = f"""{KEY}INSERT INTO hand.outbox (topic, key, payload)
SELECT 'order.placed', m.key, m.payload FROM unnest({ARRAYS}, {KEY_ARRAY}) AS m(payload, key)
RETURNING message_id;"""


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_outbox.sql').read_text())
    outbox_peers.add_pgq(db)

    def publishes(script, table, items=1):
        def measured(seed):
            db.sql(f'TRUNCATE {table}')
            db.sql('CHECKPOINT')
            cost = db.load(script, clients=CLIENTS, seconds=bench.seconds, items=items, seed=seed)
            db.must(f'SELECT count(*) = %s FROM {table}', cost.items)
            return cost
        return measured

    ours, theirs = 'stacksaga.outbox_message', 'hand.outbox'
    bench.compare('`publish`', publishes(OURS, ours), 'PgQ, `pgq.insert_event`',
                  publishes(PGQ, 'pgq.event_template'), clients=CLIENTS, goal=round(1 / 1.2, 2))
    bench.compare('`publish`', publishes(OURS, ours), 'INSERT', publishes(THEIRS, theirs),
                  clients=CLIENTS, goal=round(1 / 0.9, 2))
    bench.compare(f'`publish_batch` of {BATCH}', publishes(OURS_BATCH, ours, BATCH),
                  'INSERT … SELECT', publishes(THEIRS_BATCH, theirs, BATCH), clients=CLIENTS,
                  goal=1)


measure.main(run)
