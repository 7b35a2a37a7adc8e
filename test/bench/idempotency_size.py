"""Idempotency keys as the table grows: the same calls in databases with few and many keys."""

import pathlib
import time

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

FIRST = f"""
    SELECT stacksaga.idempotency_finish('charges', 'key-1', lease, {RESPONSE})
      FROM stacksaga.idempotency_begin('charges', 'key-1', {REQUEST});
"""

CHUNK = 1_000_000

# What the indexes of the table are, and how to make them anew. A primary key that grew key by key has
# leaves that are two thirds full, since tokens come in no order; one that is built has full ones,
# and would split with the first keys of a round.
INDEXES = """
    SELECT string_agg(format('ALTER TABLE stacksaga.idempotency_key DROP CONSTRAINT %I', conname), ';'),
           string_agg(format('ALTER TABLE stacksaga.idempotency_key ADD CONSTRAINT %I %s '
                             'WITH (fillfactor = 68)', conname, pg_get_constraintdef(oid)), ';')
      FROM pg_constraint
     WHERE conrelid = 'stacksaga.idempotency_key'::regclass AND contype = 'p'
    UNION ALL
    SELECT string_agg(format('DROP INDEX %s', indexrelid::regclass), ';'),
           string_agg(pg_get_indexdef(indexrelid), ';')
      FROM pg_index
     WHERE indrelid = 'stacksaga.idempotency_key'::regclass AND NOT indisprimary
"""


def fill(db, kept):
    """Brings a new database to so many keys, key-1 to key-N: first the rows, then their indexes."""
    started = time.monotonic()
    db.sql((pathlib.Path(__file__).parent / 'copy_key.sql').read_text())
    db.sql(FIRST)
    indexes = db.session.execute(INDEXES).fetchall()
    for drop, _ in indexes:
        db.sql(drop)
    for first in range(2, kept + 1, CHUNK):
        db.sql("SELECT copy_key('charges', 'key-1', %s, %s)", first, min(first + CHUNK - 1, kept))
    db.sql("SET maintenance_work_mem = '512MB'")
    for _, create in indexes:
        db.sql(create)
    db.sql('VACUUM (FREEZE, ANALYZE) stacksaga.idempotency_key')
    db.sql('CHECKPOINT')
    db.must('SELECT count(*) = %s FROM stacksaga.idempotency_key', kept)
    db.must(f"""SELECT outcome = 'replay' FROM stacksaga.idempotency_begin(
                'charges', 'key-{kept}', {REQUEST})""")
    size = db.sql("SELECT pg_size_pretty(pg_total_relation_size('stacksaga.idempotency_key'))")
    print(f'{kept:,} keys, {size}, in {time.monotonic() - started:.0f} s', flush=True)


def run(bench):
    few = 10_000
    sizes = (100_000, 500_000) if bench.quick else (1_000_000, 10_000_000)
    databases = {}
    for kept in (few, *sizes):
        databases[kept] = bench.database(f'keys_{kept}')
        fill(databases[kept], kept)

    def requests(script, kept, clients):
        return lambda seed: databases[kept].load(
            script.replace('{kept}', str(kept)), clients=clients, seconds=bench.seconds, seed=seed)

    for what, script in (('new key', NEW), ('replay', AGAIN)):
        for kept in sizes:
            # One round of the largest table brings it into memory before it counts.
            requests(script, kept, 4)(0)
            bench.compare(f'{what}, {kept:,} keys', requests(script, kept, 4),
                          f'{few:,} keys', requests(script, few, 4), clients=4, goal=1.25)


measure.main(run)
