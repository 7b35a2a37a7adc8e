"""A saga of 1,000 SQL steps against one of 500: what a step costs must not grow with the steps before it."""

import time

import measure

DEFINE = """
    CREATE FUNCTION act(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"seat": "12A"}'::jsonb $$;
    SELECT stacksaga.define_saga('of ' || steps, (
               SELECT array_agg(stacksaga.sql_step('step ' || n, 'act(stacksaga.step_call)') ORDER BY n)
                 FROM generate_series(1, steps) AS n))
      FROM (VALUES (500), (1000)) AS v(steps)
"""


def seconds(db, steps):
    db.sql('SELECT FROM stacksaga.start_saga(%s)', f'of {steps}')
    begun = time.monotonic()
    done = db.sql('SELECT stacksaga.run_pending(10000)')
    took = time.monotonic() - begun
    if done != steps:
        raise SystemExit(f'{done} steps were run instead of {steps}')
    return took


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    seconds(db, 500)
    half, whole = [], []
    for _ in range(3 if bench.quick else max(5, bench.rounds)):
        half.append(seconds(db, 500))
        whole.append(seconds(db, 1000))
    bench.figure('a saga of 500 steps', half, 's')
    bench.figure('a saga of 1,000 steps', whole, 's')
    bench.figure('1,000 steps against 500', [w / h for w, h in zip(whole, half)], '×', at_most=2.5)
    bench.extent = 'Each by one call of run_pending()'


if __name__ == '__main__':
    measure.main(run, measure.Figures)
