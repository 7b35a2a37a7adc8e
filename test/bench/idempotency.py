"""Idempotency keys: a new request and a replay, against the same statements by hand."""

import pathlib

import measure

REQUEST = """jsonb_build_object('account', :key::bigint, 'amount', 20)"""
RESPONSE = """'{"status": 201, "id": "8e03978e-40d5-43e8-bc93-6894a57f9324"}'"""
HASH = f"sha256(convert_to({REQUEST}::text, 'UTF8'))"

NEW_KEY = "\\set key random(1000000000, 1000000000000000000)\n"

OURS = f"""{NEW_KEY}
BEGIN;
SELECT outcome, lease
  FROM stacksaga.idempotency_begin('charges', 'key-' || :key::bigint, {REQUEST}) \\gset
SELECT stacksaga.idempotency_finish('charges', 'key-' || :key::bigint, :lease, {RESPONSE});
END;
"""

THEIRS = f"""{NEW_KEY}
BEGIN;
INSERT INTO hand.idempotency (scope, key, request_hash)
VALUES ('charges', 'key-' || :key::bigint, {HASH}) ON CONFLICT (scope, key) DO NOTHING;
UPDATE hand.idempotency
   SET status = 'completed', response = {RESPONSE}, expires_at = clock_timestamp() + '7 days'
 WHERE scope = 'charges' AND key = 'key-' || :key::bigint;
END;
"""

# The round trips of both alone: what no implementation of them can save.
ROUND_TRIPS = f"""{NEW_KEY}
BEGIN;
SELECT 1 AS outcome, 2 AS lease \\gset
SELECT :lease;
END;
"""

KEPT_KEY = "\\set key random(1, {kept})\n"

OURS_AGAIN = KEPT_KEY + f"""
SELECT outcome, response
  FROM stacksaga.idempotency_begin('charges', 'key-' || :key::bigint, {REQUEST});
"""

THEIRS_AGAIN = KEPT_KEY + """
SELECT response FROM hand.idempotency
 WHERE scope = 'charges' AND key = 'key-' || :key::bigint;
"""

INSERT_FIRST = KEPT_KEY + f"""
INSERT INTO hand.idempotency (scope, key, request_hash)
VALUES ('charges', 'key-' || :key::bigint, {HASH}) ON CONFLICT (scope, key) DO NOTHING;
SELECT response FROM hand.idempotency
 WHERE scope = 'charges' AND key = 'key-' || :key::bigint;
"""

# Keys that are completed, by the functions that are measured. A transaction holds a lock for each
# key that it begins, so there is room for some thousands only.
KEEP_OURS = f"""
    SELECT count(*)
      FROM (SELECT g AS key FROM generate_series(%s::bigint, %s::bigint) AS g) AS keys,
           LATERAL stacksaga.idempotency_begin('charges', 'key-' || key,
                                               {REQUEST.replace(':key', 'key')}) AS begun,
           LATERAL stacksaga.idempotency_finish('charges', 'key-' || key, begun.lease, {RESPONSE})
"""

KEEP_THEIRS = f"""
    INSERT INTO hand.idempotency (scope, key, request_hash, status, response, expires_at)
    SELECT 'charges', 'key-' || key, {HASH.replace(':key', 'key')}, 'completed', {RESPONSE},
           clock_timestamp() + '7 days'
      FROM generate_series(%s::bigint, %s::bigint) AS key
"""


CHUNK = 1000


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_idempotency.sql').read_text())
    kept = 10_000 if bench.quick else 100_000
    for first in range(1, kept, CHUNK):
        db.sql(KEEP_OURS, first, first + CHUNK - 1)
        db.sql(KEEP_THEIRS, first, first + CHUNK - 1)
    db.sql('VACUUM ANALYZE')
    db.sql('CHECKPOINT')

    def requests(script, clients):
        return lambda seed: db.load(script.replace('{kept}', str(kept)), clients=clients,
                                    seconds=bench.seconds, seed=seed)

    for clients in (1, 4, 16):
        before = db.sql('SELECT count(*) FROM hand.idempotency')
        bench.compare('`idempotency_begin` + `idempotency_finish`, one transaction',
                      requests(OURS, clients), 'INSERT … ON CONFLICT + UPDATE',
                      requests(THEIRS, clients), clients=clients, goal=1.5)
        db.must('SELECT count(*) > %s FROM hand.idempotency', before)
    # With the flush of the commit out of the way, what the statements themselves cost shows.
    db.sql('ALTER DATABASE bench SET synchronous_commit = off')
    bench.compare('`idempotency_begin` + `idempotency_finish`, one transaction, `synchronous_commit` off',
                  requests(OURS, 16), 'INSERT … ON CONFLICT + UPDATE', requests(THEIRS, 16), clients=16, goal=0.83)
    bench.compare('as many round trips that do nothing', requests(ROUND_TRIPS, 16), 'INSERT … ON CONFLICT + UPDATE, '
                  '`synchronous_commit` off', requests(THEIRS, 16), clients=16)
    db.sql('ALTER DATABASE bench RESET synchronous_commit')
    for clients in (1, 4, 16):
        bench.compare('replay by `idempotency_begin`', requests(OURS_AGAIN, clients),
                      'SELECT by primary key', requests(THEIRS_AGAIN, clients),
                      clients=clients, goal=1.5)
    bench.compare('replay by `idempotency_begin`', requests(OURS_AGAIN, 16),
                  'INSERT … ON CONFLICT, then SELECT', requests(INSERT_FIRST, 16), clients=16, cpu_goal=0.5)
    bench.compare('a round trip that does nothing', requests('SELECT 1;', 16), 'INSERT … ON CONFLICT, then SELECT',
                  requests(INSERT_FIRST, 16), clients=16)
    db.must(f"""SELECT outcome = 'replay' FROM stacksaga.idempotency_begin('charges', 'key-1',
                jsonb_build_object('account', 1, 'amount', 20))""")


measure.main(run)
