"""The worker: sagas of three PL/pgSQL steps against a worker written by hand in PL/pgSQL."""

import pathlib

import measure

STEPS = 3

# One insert each: what is compared is what stands around it.
DEFINE = """
    CREATE TABLE ledger (saga_id uuid NOT NULL, step text NOT NULL, amount integer NOT NULL);
    CREATE FUNCTION book(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO ledger VALUES (call.saga_id, call.step, (call.input->>'amount')::integer);
        RETURN jsonb_build_object('booked', call.step);
    END $$;
    SELECT stacksaga.define_saga('transfer', ARRAY[
        stacksaga.sql_step('debit',  action => 'book(stacksaga.step_call)'),
        stacksaga.sql_step('credit', action => 'book(stacksaga.step_call)'),
        stacksaga.sql_step('notify', action => 'book(stacksaga.step_call)')]);

    CREATE TABLE hand.ledger (LIKE ledger);
    CREATE FUNCTION hand.book(saga_id uuid, step integer, input jsonb) RETURNS jsonb
    LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO hand.ledger VALUES (saga_id, step::text, (input->>'amount')::integer);
        RETURN jsonb_build_object('booked', step);
    END $$;

    -- Does up to so many due steps in one transaction. A step that fails must take no other one
    -- with it, hence the block; who else is at work is skipped.
    CREATE FUNCTION hand.turn(max_steps integer) RETURNS integer LANGUAGE plpgsql AS $$
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
                output := hand.book(due.saga_id, due.step, due.input);
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


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    db.sql(DEFINE)
    # A multiple of the largest batch, or the last turn would do more steps than there are.
    sagas = 1024 if bench.quick else 4096
    steps = STEPS * sagas
    bench.extent = f'{sagas} sagas'

    db.sql('SELECT stacksaga.worker_ensure()')
    measure.wait_until(lambda: db.sql('SELECT count(*) = 1 FROM stacksaga.worker_stats'),
                       'the worker works', patience=60)
    worker = db.sql('SELECT pid FROM stacksaga.worker_stats')

    def ours(_):
        db.sql('VACUUM ANALYZE')
        done = db.sql('SELECT count(*) FROM ledger')
        before = measure.cpu_of(worker)
        db.sql("SELECT stacksaga.start_saga('transfer', '{\"amount\": 20}') "
               'FROM generate_series(1, %s)', sagas)
        started = db.sql('SELECT clock_timestamp()')
        # Not asked all the time: the asking competes with the worker.
        measure.wait_until(lambda: db.sql('SELECT NOT EXISTS (SELECT FROM stacksaga.work)'),
                           'all sagas end', pause=0.05)
        seconds = db.sql('SELECT EXTRACT(epoch FROM max(finished_at) - %s)::float8 '
                         'FROM stacksaga.saga', started)
        cost = measure.Cost(steps, seconds, measure.cpu_of(worker) - before)
        db.must('SELECT count(*) = %s FROM ledger', done + steps)
        db.must('SELECT pid = %s FROM stacksaga.worker_stats', worker)
        return cost

    def theirs(batch):
        def measured(_):
            db.sql(FILL_THEIRS, sagas)
            db.sql('VACUUM ANALYZE')
            done = db.sql('SELECT count(*) FROM hand.ledger')
            cost = db.load(f'SELECT hand.turn({batch});', clients=1, transactions=steps // batch,
                           items=batch)
            db.must('SELECT count(*) = %s FROM hand.ledger', done + steps)
            db.must("SELECT NOT EXISTS (SELECT FROM hand.work)")
            return cost
        return measured

    bench.compare('a step of a saga', ours, 'one step a transaction', theirs(1), clients=1)
    bench.compare('a step of a saga', ours, '256 steps a transaction', theirs(256), clients=1)


if __name__ == '__main__':
    measure.main(run)
