"""The worker: sagas of three PL/pgSQL steps against a worker written by hand in PL/pgSQL.

Steps insert a row each, or do nothing: what is compared is what stands around them.
"""

import pathlib

import measure

STEPS = 3

# What a step does, from its step_call on, and what it returns.
BODIES = {
    'book': ("INSERT INTO {schema}ledger VALUES ({saga_id}, {step}, ({input}->>'amount')::integer);",
             "jsonb_build_object('booked', {step})"),
    'nothing': ('', 'NULL'),
}
TABLE = 'CREATE TABLE {schema}ledger (saga_id uuid NOT NULL, step text NOT NULL, amount integer NOT NULL);'
OURS = """
    CREATE FUNCTION {name}(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
        {does}
        RETURN {returns};
    END $$;
    SELECT stacksaga.define_saga('{name}', ARRAY[
        stacksaga.sql_step('debit',  action => '{name}(stacksaga.step_call)'),
        stacksaga.sql_step('credit', action => '{name}(stacksaga.step_call)'),
        stacksaga.sql_step('notify', action => '{name}(stacksaga.step_call)')]);
"""
THEIRS = """
    CREATE FUNCTION hand.{name}(saga_id uuid, step integer, input jsonb) RETURNS jsonb
    LANGUAGE plpgsql AS $$
    BEGIN
        {does}
        RETURN {returns};
    END $$;

    -- Does up to so many due steps in one transaction. A step that fails must take no other one
    -- with it, hence the block; who else is at work is skipped.
    CREATE FUNCTION hand.turn_{name}(max_steps integer) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE
        due record;
        output jsonb;
        steps integer := 0;
    BEGIN
        FOR due IN SELECT w.saga_id, w.step, s.input
                     FROM hand.work AS w JOIN hand.saga AS s USING (saga_id)
                    WHERE w.queue = 'worker' AND w.due_at <= clock_timestamp()
                    ORDER BY w.due_at LIMIT max_steps FOR UPDATE OF w SKIP LOCKED
        LOOP
            BEGIN
                output := hand.{name}(due.saga_id, due.step, due.input);
                INSERT INTO hand.done (saga_id, step, output)
                VALUES (due.saga_id, due.step, output);
                IF due.step < 3 THEN
                    UPDATE hand.work SET step = step + 1, due_at = clock_timestamp()
                     WHERE saga_id = due.saga_id AND step = due.step;
                ELSE
                    DELETE FROM hand.work WHERE saga_id = due.saga_id AND step = due.step;
                    UPDATE hand.saga SET status = 'completed', updated_at = clock_timestamp()
                     WHERE saga_id = due.saga_id;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                UPDATE hand.work SET attempt = attempt + 1,
                                     due_at = clock_timestamp() + '1 second'
                 WHERE saga_id = due.saga_id AND step = due.step;
            END;
            steps := steps + 1;
        END LOOP;
        RETURN steps;
    END $$;
"""

FILL_THEIRS = """
    WITH new AS (
        INSERT INTO hand.saga (saga, input, input_hash)
        SELECT 'transfer', '{"amount": 20}', sha256('{"amount": 20}') FROM generate_series(1, %s)
        RETURNING saga_id
    )
    INSERT INTO hand.work (saga_id, step, queue) SELECT saga_id, 1, 'worker' FROM new
"""


def define(db):
    for template, names in ((OURS, {'schema': '', 'saga_id': 'call.saga_id', 'step': 'call.step', 'input': 'call.input'}),
                            (THEIRS, {'schema': 'hand.', 'saga_id': 'saga_id', 'step': 'step::text', 'input': 'input'})):
        db.sql(TABLE.format(**names))
        for name, (does, returns) in BODIES.items():
            db.sql(template.format(name=name, does=does.format(**names), returns=returns.format(**names)))


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    define(db)
    # A multiple of the largest batch, or the last turn would do more steps than there are.
    sagas = 1024 if bench.quick else 4096
    steps = STEPS * sagas
    bench.extent = f'{sagas} sagas'

    db.sql('SELECT stacksaga.worker_ensure()')
    measure.wait_until(lambda: db.sql('SELECT count(*) = 1 FROM stacksaga.worker_stats'),
                       'the worker works', patience=60)
    worker = db.sql('SELECT pid FROM stacksaga.worker_stats')

    def ours(name):
        def measured(_):
            db.sql('VACUUM ANALYZE')
            done = db.sql("SELECT count(*) FROM stacksaga.effect")
            before = measure.cpu_of(worker)
            db.sql("SELECT stacksaga.start_saga(%s, '{\"amount\": 20}') "
                   'FROM generate_series(1, %s)', name, sagas)
            started = db.sql('SELECT clock_timestamp()')
            # Not asked all the time: the asking competes with the worker.
            measure.wait_until(lambda: db.sql('SELECT NOT EXISTS (SELECT FROM stacksaga.work)'),
                               'all sagas end', pause=0.05)
            seconds = db.sql('SELECT EXTRACT(epoch FROM max(finished_at) - %s)::float8 '
                             'FROM stacksaga.saga', started)
            cost = measure.Cost(steps, seconds, measure.cpu_of(worker) - before)
            db.must('SELECT count(*) = %s FROM stacksaga.effect', done + steps)
            db.must('SELECT pid = %s FROM stacksaga.worker_stats', worker)
            return cost
        return measured

    def theirs(name, batch):
        def measured(_):
            db.sql(FILL_THEIRS, sagas)
            db.sql('VACUUM ANALYZE')
            done = db.sql('SELECT count(*) FROM hand.done')
            cost = db.load(f'SELECT hand.turn_{name}({batch});', clients=1, transactions=steps // batch,
                           items=batch)
            db.must('SELECT count(*) = %s FROM hand.done', done + steps)
            db.must("SELECT NOT EXISTS (SELECT FROM hand.work)")
            return cost
        return measured

    bench.compare('a step that inserts a row', ours('book'), 'one step a transaction', theirs('book', 1), clients=1)
    for name, what in (('book', 'inserts a row'), ('nothing', 'does nothing')):
        bench.compare(f'a step that {what}', ours(name), '256 steps a transaction', theirs(name, 256),
                      clients=1, goal=round(1 / 1.5, 2), cpu_goal=0.7)


if __name__ == '__main__':
    measure.main(run)
