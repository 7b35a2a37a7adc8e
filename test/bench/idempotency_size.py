"""Idempotency keys as the table grows: the same calls in databases with few and many keys."""

import measure

REQUEST = """'{"account": "4711", "amount": 20}'"""
RESPONSE = """'{"status": 201, "id": "8e03978e-40d5-43e8-bc93-6894a57f9324"}'"""

NEW = f"""\\set key random(1000000000, 1000000000000000000)
BEGIN;
SELECT outcome, lease
  FROM stacksaga.idempotency_begin('charges', 'key-' || :key::bigint, {REQUEST}) \\gset
SELECT stacksaga.idempotency_finish('charges', 'key-' || :key::bigint, :lease, {RESPONSE});
END;
"""

AGAIN = f"""\\set key random(1, {{kept}})
SELECT outcome, response
  FROM stacksaga.idempotency_begin('charges', 'key-' || :key::bigint, {REQUEST});
"""

# Keys that look as if they had been begun and finished, for ten million of which there is no time:
# copies of one that has been, with keys and tokens of their own, swept at different instants.
FILL = f"""
    SELECT stacksaga.idempotency_finish('charges', 'key-1', lease, {RESPONSE})
      FROM stacksaga.idempotency_begin('charges', 'key-1', {REQUEST});
    CREATE TEMPORARY TABLE copied AS
        SELECT * FROM stacksaga.idempotency_key WHERE scope = 'charges' AND key = 'key-1';
"""

CHUNK = 1_000_000


def fill(db, kept):
    """Brings a new database to so many keys, key-1 to key-N."""
    db.sql(FILL)
    columns = db.sql("""
        SELECT string_agg(CASE attname
                   WHEN 'key' THEN 'key.name'
                   WHEN 'token' THEN
                       $$stacksaga.token('charges' || chr(31) || key.name)::stacksaga.ring_token$$
                   WHEN 'sweep_at' THEN $$copied.sweep_at + g * interval '1 ms'$$
                   ELSE 'copied.' || quote_ident(attname) END, ', ' ORDER BY attnum)
          FROM pg_attribute
         WHERE attrelid = 'stacksaga.idempotency_key'::regclass AND attnum > 0
           AND NOT attisdropped""")
    for first in range(2, kept + 1, CHUNK):
        db.sql(f"""
            INSERT INTO stacksaga.idempotency_key
            SELECT {columns} FROM copied, generate_series(%s::bigint, %s::bigint) AS g,
                   LATERAL (SELECT 'key-' || g AS name) AS key""",
               first, min(first + CHUNK - 1, kept))
    db.sql('VACUUM ANALYZE stacksaga.idempotency_key')
    db.sql('CHECKPOINT')
    db.must('SELECT count(*) = %s FROM stacksaga.idempotency_key', kept)
    db.must(f"""SELECT outcome = 'replay' FROM stacksaga.idempotency_begin(
                'charges', 'key-{kept}', {REQUEST})""")


def run(bench):
    few = 10_000
    sizes = (100_000, 500_000) if bench.quick else (1_000_000, 10_000_000)
    databases = {}
    for kept in (few, *sizes):
        databases[kept] = bench.database(f'keys_{kept}')
        fill(databases[kept], kept)

    def requests(script, kept, clients):
        return lambda number: databases[kept].load(
            script.replace('{kept}', str(kept)), clients=clients, seconds=bench.seconds,
            seed=100 * number + clients)

    for what, script in (('new key', NEW), ('replay', AGAIN)):
        for kept in sizes:
            # One round of the largest table brings it into memory before it counts.
            requests(script, kept, 4)(0)
            bench.compare(f'{what}, {kept:,} keys', requests(script, kept, 4),
                          f'{few:,} keys', requests(script, few, 4), clients=4, goal=1.25)


measure.main(run)
