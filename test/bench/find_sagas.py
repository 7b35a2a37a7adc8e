"""A page of 50 of find_sagas() by each filter and by filters together, with ten million sagas or SAGAS=n.

The tables are filled by direct INSERTs, not by calls: ten million calls would take an hour."""

import os
import time

import psycopg

import measure

DEFINE = """
    SELECT stacksaga.define_saga(saga, ARRAY[stacksaga.queue_step('only', saga || version, compensable => true)])
      FROM unnest('{order,refund,invoice,import,report}'::text[]) AS saga, generate_series(1, 2) AS version
     ORDER BY version, saga;
    -- As saga_traits.cpp hashes a name and its value.
    CREATE FUNCTION hash_of(name text, value text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
        SELECT ('x' || string_agg(substr(hex, 2 * i - 1, 2), '' ORDER BY i DESC))::bit(64)::bigint
          FROM encode(stacksaga.murmur3_x64_128(convert_to(name || chr(31) || value, 'UTF8')), 'hex') AS hex,
               generate_series(1, 8) AS i
    $$;
    CREATE TABLE attribute AS
        SELECT 'customer' AS name, n AS number, hash_of('customer', n::text) AS hash FROM generate_series(0, 9999) AS n
        UNION ALL
        SELECT 'country', n, hash_of('country', '"' || (ARRAY['de', 'fr', 'it'])[n + 1]) FROM generate_series(0, 2) AS n;
"""

# Saga n: its definition, status and key do not depend on each other. A fifth has attributes.
FILL = """
    INSERT INTO stacksaga.saga (saga_id, token, ring_id, slot, definition_id, status, direction, created_at,
            updated_at, finished_at, key, fingerprint, input, headers, attributes)
    SELECT id, stacksaga.token_uuid(id), 1, stacksaga.slot(stacksaga.token_uuid(id)), 1 + (n * 7919 %% 10), status,
           CASE WHEN status IN ('failed', 'compensating') THEN 'compensate' ELSE 'act' END, at, at,
           CASE WHEN status IN ('completed', 'failed') THEN at END, kind || '-' || n, '', '{"amount": 20}', '{}',
           CASE WHEN n %% 5 = 0 THEN jsonb_build_object('customer', n / 5 * 6007 %% 10000,
                                                        'country', (ARRAY['de', 'fr', 'it'])[1 + n / 5 %% 3]) END
      FROM generate_series(%s::bigint, %s::bigint) AS n,
           LATERAL (SELECT stacksaga.saga_id_of('order', 'key ' || n) AS id, '2026-01-01'::timestamptz + n * interval '1 ms' AS at,
                           CASE WHEN n * 31 %% 10007 = 0 THEN 'parked' WHEN n * 37 %% 1009 = 0 THEN 'running'
                                WHEN n * 41 %% 1013 = 0 THEN 'pending' WHEN n * 43 %% 101 = 0 THEN 'failed'
                                WHEN n * 47 %% 5003 = 0 THEN 'compensating' ELSE 'completed' END AS status,
                           CASE WHEN n * 53 %% 211 = 0 THEN 'rare' WHEN n %% 2 = 0 THEN 'web' ELSE 'shop' END AS kind) AS v
"""
FILL_ATTRIBUTES = """
    INSERT INTO stacksaga.saga_attribute (saga_id, token, attribute, definition_id, status, created_at)
    SELECT s.saga_id, s.token, a.hash, s.definition_id, s.status, s.created_at
      FROM (SELECT * FROM stacksaga.saga WHERE attributes IS NOT NULL) AS s, LATERAL (
           VALUES ('customer', (s.attributes ->> 'customer')::int),
                  ('country', array_position(ARRAY['de', 'fr', 'it'], s.attributes ->> 'country') - 1)) AS v(name, number)
      JOIN attribute a USING (name, number)
"""

NEWEST = "created_before => '2026-01-01'::timestamptz + {at} * interval '1 ms'"
FILTERS = {
    'nothing': '',
    'time': NEWEST,
    'name': "'order'",
    'status completed': "status => 'completed'",
    'status failed': "status => 'failed'",
    'status running': "status => 'running'",
    'status parked': "status => 'parked'",
    'name, status, time': "'order', 'failed', " + NEWEST,
    'key_prefix of half of the sagas': "key_prefix => 'web-'",
    'key_prefix of one in 211': "key_prefix => 'rare-'",
    'key_prefix of one in 180, all started at one time': "key_prefix => 'web-77'",
    'key_prefix of one in 211, status failed': "status => 'failed', key_prefix => 'rare-'",
    'key_prefix of one': "key_prefix => 'shop-77777'",
    'key_prefix, name, status, time': "'order', 'failed', key_prefix => 'web-', " + NEWEST,
    'attribute of one in 50,000': "attributes => '{{\"customer\": 777}}'",
    'attribute of one in 15': "attributes => '{{\"country\": \"fr\"}}'",
    'attribute, name, status, time': "'order', 'failed', attributes => '{{\"country\": \"fr\"}}', " + NEWEST,
    'attribute, status parked': "status => 'parked', attributes => '{{\"country\": \"fr\"}}'",
    'two attributes': "attributes => '{{\"country\": \"fr\", \"customer\": 777}}'",
}
PART = 500_000
AT_MOST = 5


def fill(db, size):
    for part in range(1, size + 1, PART):
        db.sql(FILL, part, min(size, part + PART - 1))
    db.sql(FILL_ATTRIBUTES)
    db.sql('VACUUM ANALYZE')


def ask(bench, db, query):
    """Milliseconds of each time but the first, and the CPU time of each time by the session's process."""
    used = "SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::bigint / 1e6"
    times, cpu = [], []
    with psycopg.connect(dbname=db.name, autocommit=True, prepare_threshold=None) as session:
        def used_cpu():
            return float(session.execute(used).fetchone()[0])
        used_cpu()
        for _ in range(1 + max(5, bench.rounds)):
            before = used_cpu()
            begun = time.monotonic()
            session.execute(query).fetchall()
            times.append(1000 * (time.monotonic() - begun))
            cpu.append(used_cpu() - before)
    return times[1:], cpu[1:]


def run(bench):
    size = int(os.environ.get('SAGAS', 20_000 if bench.quick else 10_000_000))
    db = bench.database()
    db.sql(DEFINE)
    fill(db, size)
    for what, arguments in FILTERS.items():
        times, cpu = ask(bench, db, f'SELECT * FROM stacksaga.find_sagas({arguments.format(at=size // 2)})')
        bench.figure(f'{what}, of {size:,} sagas', times, 'ms', at_most=AT_MOST)
        bench.figure(f'{what}, CPU', cpu, 'ms')
    bench.extent = 'A page of 50, in a session that has asked before'


if __name__ == '__main__':
    measure.main(run, measure.Figures)
