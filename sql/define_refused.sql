-- Definitions that are refused: SG400 with the step in DETAIL and a way out in HINT.

CREATE SCHEMA refused;
CREATE FUNCTION refused.act(stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION refused.undo(stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION refused.verify(stacksaga.step_call) RETURNS text
  LANGUAGE sql AS $$ SELECT 'done' $$;

-- What a statement raises; a result if it does not.
CREATE FUNCTION refused.outcome(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN NEXT 'accepted: ' || coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || message;
    RETURN QUERY SELECT 'DETAIL: ' || detail WHERE detail <> ''
      UNION ALL SELECT 'HINT: ' || hint WHERE hint <> '';
END
$$;
-- define_saga with these steps.
CREATE FUNCTION refused.define(steps text, others text DEFAULT '') RETURNS SETOF text
LANGUAGE sql AS $$
    SELECT refused.outcome(format('SELECT stacksaga.define_saga(%L, %s%s)', 'refused', $1, $2))
$$;
-- One sql step with these arguments after its name.
CREATE FUNCTION refused.step(arguments text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT refused.define(format('ARRAY[stacksaga.sql_step(''one'', %s)]', $1))
$$;

-- Steps: none, nulls, dimensions.
SELECT * FROM refused.define($$ '{}' $$);
SELECT * FROM refused.define($$ NULL $$);
SELECT * FROM refused.define($$ ARRAY[NULL]::stacksaga.step_definition[] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('a', 'q', compensable => true), NULL] $$);
SELECT * FROM refused.define($$ ARRAY[[stacksaga.queue_step('a', 'q', compensable => true)],
    [stacksaga.queue_step('b', 'q', compensable => true)]] $$);
SELECT * FROM refused.define($$ ARRAY[jsonb_populate_record(NULL::stacksaga.step_definition, '{}')] $$);
SELECT * FROM refused.define($$ ARRAY[jsonb_populate_record(NULL::stacksaga.step_definition,
    '{"name": "a", "kind": "teapot", "timeout": "1s", "compensate_when": "started"}')] $$);
SELECT * FROM refused.define($$ (SELECT array_agg(stacksaga.queue_step('s' || n, 'q', compensable => true))
    FROM generate_series(1, 1001) n) $$);
SELECT * FROM refused.define($$ (SELECT array_agg(stacksaga.queue_step('s' || n, 'q', compensable => true))
    FROM generate_series(1, 40000) n) $$);

-- Names: of steps and of the saga.
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('', 'q', compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step(NULL, 'q', compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step(repeat('x', 10000), 'q', compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step(repeat('é', 128), 'q', compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('pay', 'q', compensable => true),
    stacksaga.queue_step('ship', 'q', compensable => true),
    stacksaga.queue_step('pay', 'r', compensable => true)] $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga('',
    ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga(NULL,
    ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga(repeat('n', 10000),
    ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga(repeat('n', 256),
    ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]) $$);

-- Queues.
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('a', '', compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('a', NULL, compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('a', repeat('q', 64), compensable => true)] $$);

-- Functions that do not exist, or are no function names.
SELECT * FROM refused.step($$ NULL $$);
SELECT * FROM refused.step($$ '' $$);
SELECT * FROM refused.step($$ 'refused.missing(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'missing.act(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'act(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act' $$);
SELECT * FROM refused.step($$ 'refused.act(missing.type)' $$);
SELECT * FROM refused.step($$ '99999999' $$);
SELECT * FROM refused.step($$ 'pg_catalog.now()'::regprocedure::oid::text $$);
SELECT * FROM refused.step($$ 'a.b.c.d.act(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call); DROP TABLE stacksaga.saga' $$);
SELECT * FROM refused.step($$ '-' $$);
SELECT * FROM refused.step($$ repeat('x', 10000) $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)',
    'refused.missing(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)',
    verify => 'refused.missing(stacksaga.step_call)' $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true,
    verify => 'refused.missing(stacksaga.step_call)')] $$);

-- Functions of another signature or kind.
CREATE FUNCTION refused.no_argument() RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION refused.two_arguments(stacksaga.step_call, integer) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION refused.takes_json(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION refused.takes_any(anyelement) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION refused.takes_array(VARIADIC stacksaga.step_call[]) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION refused.returns_json(stacksaga.step_call) RETURNS json
  LANGUAGE sql AS $$ SELECT '1'::json $$;
CREATE FUNCTION refused.returns_text(stacksaga.step_call) RETURNS text
  LANGUAGE sql AS $$ SELECT '1' $$;
CREATE FUNCTION refused.returns_void(stacksaga.step_call) RETURNS void LANGUAGE sql AS $$ $$;
CREATE FUNCTION refused.counts(stacksaga.step_call) RETURNS integer LANGUAGE sql RETURN 1;
CREATE FUNCTION refused.returns_set(stacksaga.step_call) RETURNS SETOF jsonb
  LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION refused.returns_table(stacksaga.step_call) RETURNS TABLE (j jsonb)
  LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE PROCEDURE refused.a_procedure(stacksaga.step_call) LANGUAGE sql AS $$ $$;
CREATE FUNCTION refused.a_trigger() RETURNS trigger
  LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION refused.transition(jsonb, stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT $1 $$;
CREATE AGGREGATE refused.an_aggregate(stacksaga.step_call) (SFUNC = refused.transition,
    STYPE = jsonb);
CREATE DOMAIN refused.document AS jsonb;
CREATE FUNCTION refused.returns_domain(stacksaga.step_call) RETURNS refused.document
  LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
SELECT function, line
  FROM unnest('{no_argument(),"two_arguments(stacksaga.step_call,integer)",
                takes_json(jsonb),takes_any(anyelement),
                takes_array(stacksaga.step_call[]),returns_json(stacksaga.step_call),
                returns_text(stacksaga.step_call),returns_void(stacksaga.step_call),
                returns_set(stacksaga.step_call),returns_table(stacksaga.step_call),
                a_procedure(stacksaga.step_call),a_trigger(),an_aggregate(stacksaga.step_call),
                returns_domain(stacksaga.step_call)}'::text[]) AS function,
       refused.step(format('%L', 'refused.' || function)) WITH ORDINALITY AS o(line, n)
 WHERE n = 1;
SELECT * FROM refused.step($$ 'refused.verify(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)',
    verify => 'refused.counts(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)',
    'refused.returns_set(stacksaga.step_call)' $$);

-- A function that the defining role may not execute, or whose schema it may not use.
CREATE ROLE refused_definer;
SELECT stacksaga.grant_usage('refused_definer', 'operator');
GRANT USAGE ON SCHEMA refused TO refused_definer;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA refused TO refused_definer;
REVOKE EXECUTE ON FUNCTION refused.undo(stacksaga.step_call) FROM PUBLIC, refused_definer;
SET ROLE refused_definer;
SELECT * FROM refused.step($$ 'refused.undo(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)',
    'refused.undo(stacksaga.step_call)' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)' $$);
RESET ROLE;

-- Effects and compensations.
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)', effect => 'compensable' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)', effect => 'magic' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)', effect => '' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)',
    'refused.undo(stacksaga.step_call)', effect => 'irreversible' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)', compensate_when => 'never' $$);
SELECT * FROM refused.step($$ 'refused.act(stacksaga.step_call)', compensate_when => NULL $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => false,
    effect => 'compensable')] $$);
-- A queue step says what undoes it: one of four.
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => NULL,
    effect => 'compensable')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => false,
    compensation_queue => 'undo')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensation_queue => '')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', effect => 'magic')] $$);
-- A compensation that would never run.
SELECT line FROM unnest(ARRAY['guarded', 'idempotent', 'irreversible']) AS effect,
       unnest(ARRAY[
           $$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, effect => %L)] $$,
           $$ ARRAY[stacksaga.queue_step('two', 'q', compensation_queue => 'undo', effect => %L)] $$,
           $$ ARRAY[stacksaga.message_step('three', 't', 'undo', effect => %L)] $$,
           $$ ARRAY[stacksaga.sql_step('four', 'refused.act(stacksaga.step_call)',
                                       'refused.undo(stacksaga.step_call)', effect => %L)] $$]) AS step,
       refused.define(format(step, effect)) AS line
 WHERE line !~ 'HINT';
-- What undoes a fallback.
SELECT * FROM refused.define($$ ARRAY[stacksaga.message_step('one', 't', 'undo',
    fallback_compensation_topic => 'undo other')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.message_step('one', 't', fallback => 'other',
    fallback_compensation_topic => 'undo other')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.message_step('one', 't', 'undo', fallback => 'other',
    fallback_compensation_topic => 'undo*')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.signal_step('one', 's', effect => 'compensable')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.timer_step('one', '1 s', effect => 'compensable', fallback => 'q')] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('pivot', 'q', effect => 'irreversible'),
    stacksaga.queue_step('late', 'q', compensable => true)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('pivot', 'q', effect => 'irreversible',
    stage => 1),
    stacksaga.queue_step('beside', 'q', compensable => true, stage => 1)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$, $$,
    on_compensation_failure => 'panic' $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$, $$,
    on_compensation_failure => NULL $$);

-- Stages.
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, stage => 0)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, stage => -1)] $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, stage => 2),
    stacksaga.queue_step('two', 'q', compensable => true),
    stacksaga.queue_step('three', 'q', compensable => true, stage => 2)] $$);

-- Timeouts and deadlines.
SELECT timeout, line
  FROM unnest('{-1 second,0,178000000 years}'::text[]) AS timeout,
       refused.define(format($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, timeout => %L)] $$, timeout))
           AS line;
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, timeout => NULL)] $$);
SELECT deadline, line
  FROM unnest('{-1 second,0,178000000 years}'::text[]) AS deadline,
       refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$,
           format(', deadline => %L', deadline)) AS line;

-- Retry policies: of a step, of the saga, of compensations.
CREATE TABLE refused.policy (arguments text);
INSERT INTO refused.policy VALUES
    ('max_attempts => -1'), ('max_attempts => NULL'),
    ('initial_interval => ''-1 second'''), ('initial_interval => NULL'),
    ('initial_interval => ''10 minutes'''),
    ('max_interval => ''-1 second'''), ('max_interval => NULL'),
    ('max_interval => ''178000000 years'''),
    ('multiplier => 0.5'), ('multiplier => 1001'), ('multiplier => -2'), ('multiplier => NULL'),
    ('multiplier => ''NaN'''), ('multiplier => ''Infinity'''), ('multiplier => ''-Infinity'''),
    ('jitter => -0.1'), ('jitter => 1.1'), ('jitter => NULL'), ('jitter => ''NaN'''),
    ('jitter => ''Infinity'''),
    ('retry_on => ''{4000}'''), ('retry_on => ''{""}'''), ('retry_on => ''{NULL}'''),
    ('never_on => ''{too long}'''), ('never_on => ''{40,X}'''),
    ('retry_on => ''{40001,p0001}'''), ('never_on => ''{4%}'''), ('never_on => ''{23 05}''');
SELECT arguments, line
  FROM refused.policy,
       refused.define(format($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true,
           retry => stacksaga.retry_policy(%s))] $$, arguments)) WITH ORDINALITY AS o(line, n)
 WHERE n < 3;
SELECT line FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$,
    ', retry => stacksaga.retry_policy(jitter => 2)') AS line;
SELECT line FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$,
    ', compensation_retry => stacksaga.retry_policy(jitter => 2)') AS line;

-- Text that is no UTF-8 never gets as far as a definition.
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga(convert_from('\xc328', 'UTF8'),
    ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga(convert_from('\x6100', 'UTF8'),
    ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]) $$);
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step(convert_from('\xff', 'UTF8'), 'q', compensable => true)] $$);

-- The inner function is as strict as its face.
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga_content('x', '{}', NULL, NULL, NULL,
    'park', 'compensate', NULL, NULL) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga_content('x', '1', NULL, NULL, NULL,
    'park', 'compensate', NULL, NULL) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga_content('x', 'null', NULL, NULL, NULL,
    'park', 'compensate', NULL, NULL) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga_content('x', '[[]]', NULL, NULL, NULL,
    'park', 'compensate', NULL, NULL) $$);
SELECT * FROM refused.outcome($$ SELECT stacksaga.define_saga_content('x',
    '[{"name": "a", "kind": "queue", "queue": "q"}]', NULL, NULL, NULL, 'park',
    'compensate', NULL, NULL) $$);

-- What it does about failures, events and retention.
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$, ', on_failure => ''stop''');
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$, ', on_failure => NULL');
SELECT * FROM refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true, on_failure => 'continue')] $$);
CREATE TABLE refused.option (n integer GENERATED ALWAYS AS IDENTITY, argument text);
INSERT INTO refused.option (argument) VALUES
    ('events_topic => '''''), ('events_topic => repeat(''x'', 256)'), ('events_topic => ''orders*'''),
    ('events_topic => e''a\tb'''),
    ('keep => ''1 month'''), ('keep => ''-1 month'''), ('keep => ''1 month -30 days'''), ('keep => ''-106751992 days''');
SELECT argument, line
  FROM refused.option, refused.define($$ ARRAY[stacksaga.queue_step('one', 'q', compensable => true)] $$,
                                      ', ' || argument) WITH ORDINALITY AS o(line, n)
 ORDER BY option.n, o.n;

-- Each kind of step has a condition to come.
CREATE TABLE refused.step (n integer GENERATED ALWAYS AS IDENTITY, step text);
INSERT INTO refused.step (step) VALUES
    ('sql_step(''one'', ''shop.f(stacksaga.step_call)'', '), ('queue_step(''one'', ''q'', '), ('signal_step(''one'', ''s'', '),
    ('timer_step(''one'', ''1 hour'', '), ('message_step(''one'', ''t'', '), ('child_step(''one'', ''c'', ');
SELECT step, line
  FROM refused.step, refused.outcome('SELECT stacksaga.' || step || 'skip_unless => ''shop.f(stacksaga.step_call)'')')
       WITH ORDINALITY AS o(line, n)
 ORDER BY step.n, o.n;

-- None of all this left anything behind, except the one that was accepted.
SELECT saga, version, definer FROM stacksaga.saga_definition WHERE saga IN ('refused', 'x', '');

SET client_min_messages = warning;
DROP SCHEMA refused CASCADE;
DROP OWNED BY refused_definer;
DELETE FROM stacksaga.usage_grant WHERE role = 'refused_definer';
DROP ROLE refused_definer;
