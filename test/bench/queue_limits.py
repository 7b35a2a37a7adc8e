"""Claims of ten at a time under a limit of 100 against none, of a backlog of 10,000 groups against ten, and of a group
that comes while a million steps of another one wait."""

import dataclasses

import measure

DEFINE = """
    SELECT stacksaga.define_saga('order', ARRAY[
        stacksaga.queue_step('charge', queue => 'payments', compensable => true)])
"""

# As many steps come as are done. A claim that finds no room is asked again.
SERVE = """
SELECT count(*) AS claimed, coalesce(array_agg(saga_id)::text, '{}') AS ids, coalesce(array_agg(lease)::text, '{}') AS leases
  FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int, 10) \\gset
\\if :claimed
BEGIN;
SELECT count(*) FROM stacksaga.complete_steps(:ids::uuid[], array_fill('charge'::text, ARRAY[:claimed::int]), :leases::bigint[]);
SELECT count(*) FROM stacksaga.start_sagas('order', array_fill('{}'::jsonb, ARRAY[:claimed::int]));
COMMIT;
\\endif
"""

CLAIM = """
SELECT count(*) AS claimed, max(saga_id::text) AS saga_id, max(lease) AS lease
  FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int) \\gset
\\if :claimed
SELECT stacksaga.complete_step(:saga_id, 'charge', :lease, '{"receipt": 4711}');
\\endif
"""

# Of two steps that are claimed, one is that of the group that has just come: else there is no item to divide by.
CLAIM_BESIDE_CROWD = """
SELECT saga_id AS newcomer FROM stacksaga.start_saga('order', group_key => 'small') \\gset
SELECT array_agg(saga_id)::text AS ids, array_agg(lease)::text AS leases, 1 / count(*) FILTER (WHERE saga_id = :newcomer::uuid) AS found
  FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int, 2) \\gset
SELECT count(*) FROM stacksaga.complete_steps(:ids::uuid[], array_fill('charge'::text, '{2}'), :leases::bigint[]);
"""

FILL = """
    SELECT count(*) FROM generate_series(1, {steps}) AS n, LATERAL stacksaga.start_saga('order', '{{}}',
           headers => jsonb_build_object('n', n), group_key => 'tenant ' || n % {groups})
"""


def run(bench):
    bench.extent = f'{bench.seconds} s'
    free, limited = bench.database('free'), bench.database('limited')
    for db in (free, limited):
        db.sql(DEFINE)
        db.sql("SELECT count(*) FROM generate_series(1, 1000) AS n, LATERAL stacksaga.start_saga('order', key => n::text)")
    limited.sql("SELECT stacksaga.set_queue('payments', max_running => 100)")

    def served(db, script, clients):
        def measured(_):
            before = db.sql('SELECT count(*) FROM stacksaga.effect')
            cost = db.load(script, clients=clients, seconds=bench.seconds)
            return dataclasses.replace(cost, items=max(1, db.sql('SELECT count(*) FROM stacksaga.effect') - before))
        return measured

    bench.compare('ten at a time, `max_running` 100', served(limited, SERVE, 16), 'no limit', served(free, SERVE, 16),
                  clients=16, goal=2)

    few, many = bench.database('few'), bench.database('many')
    steps = 20_000 if bench.quick else 400_000
    for db, groups in ((few, 10), (many, 10_000)):
        db.sql(DEFINE)
        db.sql(FILL.format(steps=steps, groups=groups))
        db.sql('VACUUM ANALYZE')
    bench.compare('one at a time, 10,000 groups', served(many, CLAIM, 4), '10 groups', served(few, CLAIM, 4),
                  clients=4, cpu_goal=1.2)

    crowd, quiet = bench.database('crowd'), bench.database('quiet')
    waiting, fewer = (200_000, 20_000) if bench.quick else (1_000_000, 100_000)
    for db, steps in ((crowd, waiting), (quiet, fewer)):
        db.sql(DEFINE)
        db.sql(FILL.format(steps=steps, groups=1))
        db.sql('VACUUM ANALYZE')
    bench.compare(f'a step of a newcomer and one of a group with {waiting:,}', served(crowd, CLAIM_BESIDE_CROWD, 1),
                  f'with {fewer:,}', served(quiet, CLAIM_BESIDE_CROWD, 1), clients=1, cpu_goal=1.2)


measure.main(run)
