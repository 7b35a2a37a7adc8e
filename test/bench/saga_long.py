"""A saga of 1,000 SQL steps, and against one of 500: nothing but the copy of the results grows with the steps."""

import time

import measure

DEFINE = """
    CREATE FUNCTION act(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"seat": "12A"}'::jsonb $$;
    SELECT stacksaga.define_saga('of ' || steps, (
               SELECT array_agg(stacksaga.sql_step('step ' || n, 'act(stacksaga.step_call)') ORDER BY n)
                 FROM generate_series(1, steps) AS n))
      FROM (VALUES (500), (1000)) AS v(steps)
"""


def by_call(db, steps):
    """Seconds that run_pending() takes."""
    db.sql('BEGIN')  # the worker sees nothing of it
    db.sql('SELECT FROM stacksaga.start_saga(%s)', f'of {steps}')
    begun = time.monotonic()
    done = db.sql('SELECT stacksaga.run_pending(10000)')
    took = time.monotonic() - begun
    db.sql('COMMIT')
    if done != steps:
        raise SystemExit(f'{done} steps were run instead of {steps}')
    return took


def by_worker(db, steps):
    """Seconds from its start to its end."""
    saga = db.sql('SELECT saga_id FROM stacksaga.start_saga(%s)', f'of {steps}')
    measure.wait_until(lambda: db.sql('SELECT finished_at IS NOT NULL FROM stacksaga.saga WHERE saga_id = %s', saga),
                       'the saga ends', pause=0.02)
    db.must("SELECT status = 'completed' FROM stacksaga.saga WHERE saga_id = %s", saga)
    return db.sql('SELECT EXTRACT(epoch FROM finished_at - created_at)::float8 FROM stacksaga.saga WHERE saga_id = %s',
                  saga)


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    measure.wait_until(lambda: db.sql('SELECT count(*) = 1 FROM stacksaga.worker_stats'), 'the worker works')
    for seconds, by, at_most in ((by_worker, 'by a worker', 0.3), (by_call, 'by one call of run_pending()', None)):
        seconds(db, 500)
        half, whole = [], []
        for _ in range(3 if bench.quick else max(5, bench.rounds)):
            half.append(seconds(db, 500))
            whole.append(seconds(db, 1000))
        bench.figure(f'a saga of 500 steps {by}', half, 's')
        bench.figure(f'a saga of 1,000 steps {by}', whole, 's', at_most=at_most)
        bench.figure(f'1,000 steps against 500 {by}', [w / h for w, h in zip(whole, half)], '×',
                     at_most=4)
    bench.extent = 'Sagas that run alone'


if __name__ == '__main__':
    measure.main(run, measure.Figures)
