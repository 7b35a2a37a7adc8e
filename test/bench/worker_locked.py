"""A worker beside ten thousand leases that ran out, whose sagas another transaction holds, against one without them."""

import psycopg

import measure

DEFINE = """
    CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
    SELECT stacksaga.define_saga('local', ARRAY[stacksaga.sql_step('act', 'act(stacksaga.step_call)')]);
    SELECT stacksaga.define_saga('served', ARRAY[
        stacksaga.queue_step('work', 'q', compensable => false, timeout => '2 hours')]);
"""


def leases_run_out(db, count):
    """So many steps of services whose lease is over; returns the session that holds their sagas."""
    db.sql("SELECT count(*) FROM (SELECT stacksaga.start_saga('served') FROM generate_series(1, %s)) AS s", count)
    while db.sql("SELECT count(*) FROM stacksaga.claim_steps('q', 'lost', 1000, lease => '1 hour')") > 0:
        pass
    holder = psycopg.connect(dbname=db.name)
    holder.execute("SELECT FROM stacksaga.saga s JOIN stacksaga.saga_definition d USING (definition_id)"
                   " WHERE d.saga = 'served' FOR UPDATE OF s")
    db.sql("UPDATE stacksaga.work SET due_at = now() - interval '1 hour', lease_until = now() - interval '1 hour'"
           " WHERE lease_until IS NOT NULL")
    return holder


def run(bench):
    db = bench.database()
    db.sql(DEFINE)
    locked, sagas = (2000, 500) if bench.quick else (10000, 1000)
    bench.extent = f'{locked:,} sagas locked, {sagas:,} steps'
    db.sql('SELECT stacksaga.worker_ensure()')
    db.set_workers(1)

    def steps():
        db.sql('VACUUM ANALYZE')
        cpu = db.worker_cpu()
        db.sql("SELECT count(*) FROM (SELECT stacksaga.start_saga('local') FROM generate_series(1, %s)) AS s", sagas)
        begun = db.sql('SELECT clock_timestamp()')
        measure.wait_until(lambda: db.sql("SELECT NOT EXISTS (SELECT FROM stacksaga.work WHERE queue IS NULL)"),
                           'the steps are done', pause=0.02)
        seconds = db.sql("SELECT EXTRACT(epoch FROM max(finished_at) - %s)::float8 FROM stacksaga.saga", begun)
        return measure.Cost(sagas, seconds, db.worker_cpu() - cpu)

    def beside(_):
        holder = leases_run_out(db, locked)
        cost = steps()
        db.must("SELECT count(*) = %s FROM stacksaga.work WHERE lease_until IS NOT NULL", locked)
        holder.close()
        measure.wait_until(lambda: db.sql("SELECT NOT EXISTS (SELECT FROM stacksaga.work WHERE lease_until IS NOT NULL)"),
                           'the leases are ended', pause=0.1)
        db.sql("TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure")
        return cost

    def alone(_):
        return steps()

    bench.compare('1,000 steps beside locked sagas', beside, 'without them', alone, clients=1)


if __name__ == '__main__':
    measure.main(run)
