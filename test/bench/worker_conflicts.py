"""Two workers against one on 10,000 sagas whose steps update the same forty rows."""

import measure

SAGAS = 10000
ROWS = 40

# Each step takes one from a row and gives it to another, in random order: two of them at once may wait for
# each other. A failing attempt fails after it has done so, with its rows locked.
DEFINE = """
    CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
    INSERT INTO account SELECT generate_series(1, 40);
    CREATE FUNCTION move(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE account SET balance = balance - 1 WHERE id = (call.input->>'from')::integer;
        UPDATE account SET balance = balance + 1 WHERE id = (call.input->>'to')::integer;
        IF call.attempt <= (call.input->>'failing')::integer THEN
            RAISE EXCEPTION 'not yet' USING ERRCODE = 'SR503';
        END IF;
        RETURN NULL;
    END $$;
    SELECT stacksaga.define_saga('move', ARRAY[stacksaga.sql_step('move', 'move(stacksaga.step_call)',
        retry => stacksaga.retry_policy(max_attempts => 5, initial_interval => '0'))]);
"""

# So many attempts of a hundred fail, drawn by the seed, and are repeated at once.
START = """
    SELECT setseed({seed});
    WITH RECURSIVE drawn AS MATERIALIZED (
        SELECT 1 + floor(random() * {rows})::integer AS a, 1 + floor(random() * ({rows} - 1))::integer AS b,
               random() AS x
          FROM generate_series(1, {sagas}))
    SELECT count(*) FROM stacksaga.start_sagas('move', ARRAY(
        SELECT jsonb_build_object('from', a, 'to', b + (b >= a)::integer,
            'failing', (x < {share})::integer + (x < {share} * {share})::integer)
          FROM drawn));
"""


def measured(db, workers, share, seed):
    """Seconds until all sagas have ended; one attempt of the share fails. Checks the accounts and the attempts."""
    db.set_workers(workers)
    db.sql('VACUUM ANALYZE')
    cpu = db.worker_cpu()
    wal = db.wal_position()
    db.sql(START.format(seed=seed / 1000, rows=ROWS, sagas=SAGAS, share=share))
    begun = db.sql('SELECT clock_timestamp()')
    measure.wait_until(lambda: db.sql('SELECT NOT EXISTS (SELECT FROM stacksaga.work)'), 'all sagas end', pause=0.02)
    seconds = db.sql('SELECT EXTRACT(epoch FROM max(finished_at) - %s)::float8 FROM stacksaga.saga', begun)
    db.must('SELECT sum(balance) = 0 FROM account')
    db.must("SELECT bool_and(status = 'completed') FROM stacksaga.saga")
    db.must("SELECT NOT EXISTS (SELECT FROM stacksaga.failure WHERE sqlstate <> 'SR503')")
    return measure.Cost(SAGAS, seconds, db.worker_cpu() - cpu, db.wal_position() - wal)


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    bench.extent = f'{SAGAS} sagas'
    for percent in (0, 2, 10):
        bench.compare(f'two workers, {percent} % of attempts fail',
                      lambda seed, share=percent / 100: measured(db, 2, share, seed),
                      'one worker', lambda seed, share=percent / 100: measured(db, 1, share, seed), goal=1.1)


measure.main(run)
