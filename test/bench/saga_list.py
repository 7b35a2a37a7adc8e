"""What a person asks of the view sagas first, with 200 thousand and with ten million sagas in the table."""

import time

import psycopg

import measure

DEFINE = """
    CREATE FUNCTION act(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
    SELECT stacksaga.define_saga('order', ARRAY[stacksaga.sql_step('only', 'act(stacksaga.step_call)')])
"""

# One in a hundred has failed, one in a thousand runs; the oldest ten thousand wait for a step.
FILL = """
    INSERT INTO stacksaga.saga (saga_id, token, ring_id, slot, definition_id, status, direction, created_at,
            updated_at, finished_at, key, fingerprint, input, headers)
    SELECT id, stacksaga.token_uuid(id), 1, stacksaga.slot(stacksaga.token_uuid(id)), 1, status,
           CASE status WHEN 'failed' THEN 'compensate' ELSE 'act' END, at, at,
           CASE WHEN status IN ('completed', 'failed') THEN at END, 'key ' || n, '', '{"amount": 20}', '{}'
      FROM generate_series(%s::bigint, %s::bigint) AS n,
           LATERAL (SELECT stacksaga.saga_id_of('order', 'key ' || n) AS id, now() + n * interval '1 ms' AS at,
                           CASE WHEN n %% 1000 = 0 THEN 'running' WHEN n %% 100 = 1 THEN 'failed'
                                ELSE 'completed' END AS status) AS v
"""
FILL_WORK = """
    INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, purpose, step_no, direction, due_at)
    SELECT saga_id, token, ring_id, slot, 'step', 1, 'act', 'infinity' FROM stacksaga.saga
     WHERE status = 'running'
"""

QUESTIONS = {
    'the newest 20': 'SELECT * FROM stacksaga.sagas ORDER BY created_at DESC LIMIT 20',
    'one key': "SELECT * FROM stacksaga.sagas WHERE saga = 'order' AND key = 'key 777'",
    'one id': "SELECT * FROM stacksaga.sagas WHERE saga_id = stacksaga.saga_id_of('order', 'key 777')",
    'the newest 20 that failed':
        "SELECT * FROM stacksaga.sagas WHERE status = 'failed' ORDER BY created_at DESC LIMIT 20",
    'the newest 20 that run':
        "SELECT * FROM stacksaga.sagas WHERE status = 'running' ORDER BY created_at DESC LIMIT 20",
    'sagas by status, kept up by commits': 'SELECT stacksaga_internal.status_sagas()',
    'sagas by status, as far as looked at': 'SELECT stacksaga_internal.status_sagas_seen()',
}
COUNT = 'SELECT stacksaga_internal.count_sagas()'
PART = 500_000
AT_MOST = 20


def fill(db, first, last):
    for part in range(first, last + 1, PART):
        db.sql(FILL, part, min(last, part + PART - 1))
    db.sql('TRUNCATE stacksaga.work')
    db.sql(FILL_WORK)
    db.sql('VACUUM ANALYZE')


def ask(bench, db, query):
    """Milliseconds of each time but the first, planning included."""
    times = []
    with psycopg.connect(dbname=db.name, autocommit=True, prepare_threshold=None) as session:
        for _ in range(1 + max(5, bench.rounds)):
            begun = time.monotonic()
            session.execute(query).fetchall()
            times.append(1000 * (time.monotonic() - begun))
    return times[1:]


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    filled = 0
    for size in [20_000, 200_000] if bench.quick else [200_000, 10_000_000]:
        fill(db, filled + 1, size)
        filled = size
        bench.figure(f'counting by status once, of {size:,} sagas', ask(bench, db, COUNT), 'ms')
        for what, query in QUESTIONS.items():
            bench.figure(f'{what}, of {size:,} sagas', ask(bench, db, query), 'ms', at_most=AT_MOST)
    bench.extent = 'Planned each time, in a session that has asked before'


if __name__ == '__main__':
    measure.main(run, measure.Figures)
