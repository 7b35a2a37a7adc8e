-- Priority, group and attributes of a saga: what is stored, refused, inherited, and that none of it is identity.

CREATE SCHEMA traits;
CREATE FUNCTION traits.outcome(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE statement;
    RETURN NEXT 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || message;
    RETURN NEXT '  DETAIL: ' || detail;
    RETURN NEXT '  HINT: ' || hint;
END
$$;
CREATE VIEW traits.stored AS SELECT saga_id, key, run, priority, group_key, attributes FROM stacksaga.saga;
SELECT stacksaga.define_saga('traits',
    ARRAY[stacksaga.queue_step('a', 'traits', compensable => true, retry => stacksaga.retry_policy(max_attempts => 1))]);

-- What a saga starts with, and without any.
SELECT saga_id AS id FROM stacksaga.start_saga('traits') \gset
SELECT priority, group_key, attributes FROM traits.stored WHERE saga_id = :'id';
SELECT saga_id AS id FROM stacksaga.start_saga('traits', priority => 1, group_key => 'tenant 7',
    attributes => '{"order": 17, "express": true, "city": "Zürich", "none": ""}') \gset
SELECT priority, group_key, attributes FROM traits.stored WHERE saga_id = :'id';

-- None of the three is identity: the first call's stay.
SELECT created FROM stacksaga.start_saga('traits', key => 'k', priority => 2, group_key => 'g', attributes => '{"n": 1}');
SELECT created FROM stacksaga.start_saga('traits', key => 'k', priority => 5, group_key => 'h', attributes => '{"n": 2}');
SELECT created FROM stacksaga.start_saga('traits', key => 'k');
SELECT priority, group_key, attributes FROM traits.stored WHERE key = 'k';
-- A new run takes its own call's.
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')) FROM stacksaga.claim_steps('traits', 'w', 10);
SELECT created FROM stacksaga.start_saga('traits', key => 'k', on_conflict => 'restart_if_failed', priority => 4, attributes => '{"n": 3}');
SELECT run, priority, group_key, attributes FROM traits.stored WHERE key = 'k' ORDER BY run;

-- One priority for a batch, a group and attributes for each element; NULL: none.
SELECT created FROM stacksaga.start_sagas('traits', ARRAY['1', '2', '3']::jsonb[], '{b1,b2,b3}', 5, '{g1,NULL,g3}',
    ARRAY['{"a": 1}', NULL, '{}']::jsonb[]);
SELECT created FROM stacksaga.start_sagas('traits', ARRAY['4']::jsonb[], '{b4}');
SELECT key, priority, group_key, attributes FROM traits.stored WHERE key LIKE 'b_' ORDER BY key;

-- Children inherit all three, and their children; a retried child too.
SELECT stacksaga.define_saga('traits leaf', ARRAY[stacksaga.timer_step('wait', '1 hour')]);
SELECT stacksaga.define_saga('traits middle', ARRAY[stacksaga.child_step('leaf', 'traits leaf')]);
SELECT stacksaga.define_saga('traits top', ARRAY[stacksaga.child_step('middle', 'traits middle')]);
SELECT saga_id AS id FROM stacksaga.start_saga('traits top', priority => 2, group_key => 'family', attributes => '{"of": "top"}') \gset
SELECT stacksaga.run_pending() > 0 AS ran, stacksaga.run_pending() >= 0 AS again;
SELECT s.saga, t.priority, t.group_key, t.attributes
  FROM traits.stored t JOIN stacksaga.sagas s USING (saga_id) WHERE t.group_key = 'family' ORDER BY s.created_at, s.saga DESC;

-- As large as they may be.
SELECT created FROM stacksaga.start_saga('traits', group_key => repeat('g', 255), priority => 5,
    attributes => (SELECT jsonb_object_agg(rpad(n::text, 63, 'n'), repeat('v', 255)) FROM generate_series(1, 16) n));
SELECT created FROM stacksaga.start_saga('traits', attributes => jsonb_build_object('n', repeat('9', 255)::numeric, 'e', 1e-20));

-- Refused: SG400 with the value and what to do.
SELECT line FROM unnest(ARRAY[
    $$ priority => 0 $$, $$ priority => 6 $$, $$ priority => -2147483648 $$, $$ priority => NULL $$,
    $$ group_key => '' $$, $$ group_key => repeat('g', 256) $$, $$ group_key => repeat('é', 128) $$,
    $$ attributes => NULL $$, $$ attributes => 'null' $$, $$ attributes => '[]' $$, $$ attributes => '1' $$,
    $$ attributes => '{"a": null}' $$, $$ attributes => '{"a": 1, "deep": {"b": 1}}' $$,
    $$ attributes => '{"list": []}' $$, $$ attributes => '{"": 1}' $$,
    $$ attributes => jsonb_build_object(repeat('n', 64), 1) $$,
    $$ attributes => jsonb_build_object(E'a\tb', 1) $$,
    $$ attributes => jsonb_build_object('v', repeat('v', 256)) $$,
    $$ attributes => jsonb_build_object('v', repeat('9', 256)::numeric) $$,
    $$ attributes => (SELECT jsonb_object_agg(n, n) FROM generate_series(1, 17) n) $$
    ]) AS argument, traits.outcome(format('SELECT stacksaga.start_saga(''traits'', %s)', argument)) AS line;
SELECT line FROM unnest(ARRAY[
    $$ priority => 6 $$, $$ priority => NULL $$, $$ group_keys => '{g}' $$, $$ group_keys => '{g,""}' $$,
    $$ group_keys => ARRAY['g', repeat('g', 256)] $$, $$ group_keys => '{{g},{h}}' $$,
    $$ attributes => ARRAY['{}']::jsonb[] $$, $$ attributes => ARRAY['{}', '[]']::jsonb[] $$,
    $$ attributes => ARRAY['{"a": null}', '{}']::jsonb[] $$, $$ attributes => ARRAY[NULL, '{"": 1}']::jsonb[] $$,
    $$ attributes => ARRAY[NULL, (SELECT jsonb_object_agg(n, n) FROM generate_series(1, 17) n)]::jsonb[] $$
    ]) AS argument,
       traits.outcome(format('SELECT stacksaga.start_sagas(''traits'', ARRAY[''1'', ''2'']::jsonb[], %s)', argument)) AS line;

SET client_min_messages = warning;
DROP SCHEMA traits CASCADE;
TRUNCATE stacksaga.saga, stacksaga.saga_attribute, stacksaga.work, stacksaga.effect, stacksaga.failure;
