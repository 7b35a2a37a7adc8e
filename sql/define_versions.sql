-- Versions of a definition: the same content keeps its version, new content gets the next one, old
-- content makes its own version current again; running sagas stay on theirs.

CREATE SCHEMA versions;
CREATE FUNCTION versions.act(stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT to_jsonb(($1).step) $$;
CREATE FUNCTION versions.undo(stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE VIEW versions.known AS
    SELECT saga, version, is_current, definer, on_compensation_failure AS on_failure, deadline
      FROM stacksaga.saga_definition WHERE saga LIKE 'versions%' ORDER BY saga, version;

SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true),
    stacksaga.queue_step('b', 'q', compensable => true)]);
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('b', 'q', compensable => true),
    stacksaga.queue_step('a', 'q', compensable => true)]);
-- Every setting is content.
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true, timeout => '31 s')]);
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)],
    deadline => '1 day');
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)],
    on_compensation_failure => 'continue');
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)],
    retry => stacksaga.retry_policy(max_attempts => 3));
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)],
    compensation_retry => stacksaga.retry_policy(max_attempts => 3));
SELECT * FROM versions.known;
-- Old content, current again; a new saga takes it.
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
SELECT saga, version FROM versions.known WHERE is_current;
-- Defaults that are written out are the same content, intervals of one length in other words are
-- not changed into one another, and the session's style of intervals does not matter.
SELECT stacksaga.define_saga('versions',
    ARRAY[stacksaga.queue_step('a', 'q', true, NULL, '30 seconds', NULL, NULL, 'started', NULL,
    NULL)]);
SET intervalstyle = 'iso_8601';
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)],
    deadline => '1 day');
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
RESET intervalstyle;
-- Another saga counts for itself.
SELECT stacksaga.define_saga('versions too', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);

-- A running saga stays on its version, and a new one may be started on an old one.
SELECT saga_id AS first FROM stacksaga.start_saga('versions') \gset
SELECT stacksaga.define_saga('versions',
    ARRAY[stacksaga.sql_step('a', 'versions.act(stacksaga.step_call)')]);
SELECT saga_id AS second FROM stacksaga.start_saga('versions') \gset
SELECT saga_id AS third FROM stacksaga.start_saga('versions', version => 2) \gset
SELECT stacksaga.run_pending();
SELECT CASE saga_id WHEN :'first' THEN 'first' WHEN :'second' THEN 'second'
  ELSE 'third' END AS which,
       version, status, current_step, output
  FROM stacksaga.sagas WHERE saga LIKE 'versions%' ORDER BY created_at;
SELECT * FROM stacksaga.start_saga('versions', version => 99);
SELECT * FROM stacksaga.start_saga('versions', version => 0);
SELECT * FROM stacksaga.start_saga('never defined');

-- A definition belongs to the role that made it; in a superuser's session a role that repeats an old
-- content becomes its definer, and the old version is the current one.
CREATE ROLE versions_definer;
SELECT stacksaga.grant_usage('versions_definer', 'operator');
SET ROLE versions_definer;
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
RESET ROLE;
SELECT version, is_current, definer FROM versions.known WHERE saga = 'versions' AND version >= 8;

-- In a transaction that is rolled back nothing was defined, and the session does not remember it.
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
BEGIN;
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('rolled', 'back', compensable => true)]);
SELECT created FROM stacksaga.start_saga('versions', key => 'rolled back');
ROLLBACK;
SELECT saga, version FROM versions.known WHERE is_current AND saga = 'versions';
SELECT stacksaga.define_saga('versions', ARRAY[stacksaga.queue_step('other', 'content', compensable => true)]);
SELECT step FROM stacksaga.claim_steps('content', 'w');
SELECT created FROM stacksaga.start_saga('versions', key => 'again');
SELECT step FROM stacksaga.claim_steps('content', 'w');

-- What a step is made of: the constructors' defaults, and functions as they are named in full.
SET search_path = versions, public;
SELECT stacksaga.define_saga('versions steps', ARRAY[
    stacksaga.sql_step('plain', 'act(stacksaga.step_call)'),
    stacksaga.sql_step('undoable', 'act(stacksaga.step_call)', 'undo(stacksaga.step_call)'),
    stacksaga.queue_step('queued', 'q', compensable => true),
    stacksaga.queue_step('final', 'q', compensable => false),
    stacksaga.queue_step('pivot', 'q', effect => 'irreversible'),
    stacksaga.sql_step('natural', 'act(stacksaga.step_call)', effect => 'idempotent')]);
RESET search_path;
SELECT step_no, stage, step, kind, action, compensation, queue, timeout, effect, compensate_when
  FROM stacksaga.definition_step JOIN stacksaga.saga_definition USING (definition_id)
 WHERE saga = 'versions steps' ORDER BY step_no;
SELECT DISTINCT (retry).*
  FROM stacksaga.definition_step JOIN stacksaga.saga_definition USING (definition_id)
 WHERE saga = 'versions steps';
-- Stages: without numbers each step has its own; equal numbers run side by side.
SELECT stacksaga.define_saga('versions stages', ARRAY[
    stacksaga.queue_step('a', 'q', compensable => true),
    stacksaga.queue_step('b1', 'q', compensable => true, stage => 20), stacksaga.queue_step('b2', 'q', compensable => true, stage => 20),
    stacksaga.queue_step('c', 'q', compensable => true),
    stacksaga.queue_step('d1', 'q', compensable => true, stage => 30), stacksaga.queue_step('d2', 'q', compensable => true, stage => 30)]);
SELECT stacksaga.define_saga('versions numbers', ARRAY[
    stacksaga.queue_step('last', 'q', compensable => true, stage => 2147483647),
    stacksaga.queue_step('first', 'q', compensable => true, stage => 1), stacksaga.queue_step('also last', 'q', compensable => true,
        stage => 2147483647),
    stacksaga.queue_step('middle', 'q', compensable => true, stage => 7)]);
SELECT saga, stage, string_agg(step, ', ' ORDER BY step_no) AS steps
  FROM stacksaga.definition_step JOIN stacksaga.saga_definition USING (definition_id)
 WHERE saga IN ('versions stages', 'versions numbers') GROUP BY saga, stage ORDER BY saga, stage;
-- As many steps as there may be, and names of all sorts.
SELECT stacksaga.define_saga('versions many', (SELECT array_agg(stacksaga.queue_step('s' || n, 'q', compensable => true))
  FROM generate_series(1, 1000) n));
SELECT stacksaga.define_saga('versions "odd" names; %s', ARRAY[
    stacksaga.queue_step(' ', 'q', compensable => true), stacksaga.queue_step('tab and line', 'q', compensable => true),
    stacksaga.queue_step(repeat('é', 127), 'q', compensable => true), stacksaga.queue_step('A', 'q', compensable => true),
        stacksaga.queue_step('a', 'q', compensable => true)]);
SELECT count(*) FROM stacksaga.definition_step JOIN stacksaga.saga_definition USING (definition_id)
 WHERE saga IN ('versions many', 'versions "odd" names; %s');

SET client_min_messages = warning;
DROP SCHEMA versions CASCADE;
DROP OWNED BY versions_definer;
DELETE FROM stacksaga.usage_grant WHERE role = 'versions_definer';
DELETE FROM stacksaga.saga_definition WHERE definer = 'versions_definer';
DROP ROLE versions_definer;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
