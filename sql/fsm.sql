-- The state machines: what they are, and that the database holds everybody to them.

SELECT * FROM stacksaga.saga_transitions();
SELECT * FROM stacksaga.outcome_rules();
SELECT * FROM stacksaga.idempotency_transitions();
SELECT * FROM stacksaga.message_transitions();

-- The states that have a row in message_retry are those of its domain.
CREATE FUNCTION pg_temp.is_stored(state text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM state::stacksaga.message_retry_state;
    RETURN true;
EXCEPTION WHEN check_violation THEN
    RETURN false;
END
$$;
SELECT string_agg(state, ' ' ORDER BY state) AS stored FROM (
    SELECT from_state AS state FROM stacksaga.message_transitions()
     UNION SELECT to_state FROM stacksaga.message_transitions()) AS named
 WHERE pg_temp.is_stored(state);

-- Every pair of (status, direction), tried with a direct UPDATE by a superuser, the owner of the
-- table: exactly the listed changes pass. No listed change leads out of completed or failed, none
-- from compensate back to act, and a status never stays while its direction changes.
CREATE SCHEMA fsm;
CREATE FUNCTION fsm.nothing(stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
SELECT stacksaga.define_saga('fsm', ARRAY[
    stacksaga.sql_step('only', 'fsm.nothing(stacksaga.step_call)')]);
SELECT saga_id AS id FROM stacksaga.start_saga('fsm') \gset

-- The trigger is switched off to bring the saga into each state, on for the change that is tried.
CREATE FUNCTION fsm.try(id uuid, from_status text, from_direction text, to_status text,
                        to_direction text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    changed integer;
BEGIN
    PERFORM set_config('session_replication_role', 'replica', true);
    UPDATE stacksaga.saga SET status = from_status, direction = from_direction WHERE saga_id = id;
    PERFORM set_config('session_replication_role', 'origin', true);
    BEGIN
        UPDATE stacksaga.saga SET status = to_status, direction = to_direction WHERE saga_id = id;
        GET DIAGNOSTICS changed = ROW_COUNT;
        RETURN CASE changed WHEN 1 THEN 'allowed' ELSE 'lost' END;
    EXCEPTION WHEN OTHERS THEN
        RETURN SQLSTATE;
    END;
END
$$;
CREATE TABLE fsm.state AS
    SELECT status, direction
      FROM unnest('{pending,running,compensating,completed,failed,parked,suspended}'::text[]) AS
          status,
           unnest('{act,compensate}'::text[]) AS direction;
CREATE TABLE fsm.tried AS
    SELECT f.status AS from_status, f.direction AS from_direction,
           t.status AS to_status, t.direction AS to_direction,
           fsm.try(:'id', f.status, f.direction, t.status, t.direction) AS outcome
      FROM fsm.state f, fsm.state t;
CREATE VIEW fsm.wanted AS
    SELECT from_status, from_direction, to_status, to_direction,
           CASE WHEN from_status = to_status AND from_direction = to_direction
                  OR (from_direction = 'act' OR to_direction = 'compensate') AND EXISTS (
                        SELECT FROM stacksaga.saga_transitions() s
                         WHERE s.from_status = t.from_status AND s.to_status = t.to_status
                           AND s.direction = t.to_direction AND NOT s.of_child)
                THEN 'allowed' ELSE 'SG409' END AS wanted
      FROM fsm.tried t;
SELECT outcome, count(*) FROM fsm.tried GROUP BY outcome ORDER BY outcome;
SELECT * FROM fsm.tried NATURAL JOIN fsm.wanted WHERE outcome IS DISTINCT FROM wanted;

-- What the table means, read off the database itself: nothing leaves a final status, and once a
-- saga compensates it never acts again.
SELECT count(*) AS leave_a_final_status FROM fsm.tried
 WHERE outcome = 'allowed' AND from_status IN ('completed', 'failed')
   AND (to_status <> from_status OR to_direction <> from_direction);
SELECT count(*) AS turn_forward_again FROM fsm.tried
 WHERE outcome = 'allowed' AND from_direction = 'compensate' AND to_direction = 'act';

-- A child compensates with its parent, completed or not.
SET session_replication_role = replica;
UPDATE stacksaga.saga SET parent_id = gen_random_uuid(), parent_step = 1 WHERE saga_id = :'id';
RESET session_replication_role;
SELECT t.from_status, t.from_direction, t.to_status, t.to_direction,
       fsm.try(:'id', t.from_status, t.from_direction, t.to_status, t.to_direction) AS of_child
  FROM fsm.tried t WHERE t.from_status IN ('completed', 'failed') AND t.outcome = 'SG409'
   AND fsm.try(:'id', t.from_status, t.from_direction, t.to_status, t.to_direction) <> 'SG409';
SET session_replication_role = replica;
UPDATE stacksaga.saga SET parent_id = NULL, parent_step = NULL WHERE saga_id = :'id';
RESET session_replication_role;

-- What the refusal says.
SELECT fsm.try(:'id', 'compensating', 'compensate', 'compensating', 'compensate');
CREATE FUNCTION fsm.refusal(id uuid, change text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE format('UPDATE stacksaga.saga SET %s WHERE saga_id = %L', change, id);
    RETURN NEXT 'allowed';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || replace(message, id::text, '(id)');
    RETURN NEXT nullif('DETAIL: ' || replace(detail, id::text, '(id)'), 'DETAIL: ');
    RETURN NEXT nullif('HINT: ' || hint, 'HINT: ');
END
$$;
SELECT * FROM fsm.refusal(:'id', $$ status = 'running', direction = 'act' $$);
SELECT * FROM fsm.refusal(:'id', $$ status = 'running' $$);
SELECT * FROM fsm.refusal(:'id', $$ direction = 'act' $$);

-- A saga stays the one that was started: of all columns these alone may change.
SELECT fsm.try(:'id', 'running', 'act', 'running', 'act');
SELECT string_agg(attname, ', ' ORDER BY attnum) AS may_change
  FROM pg_attribute
 WHERE attrelid = 'stacksaga.saga'::regclass AND attnum > 0 AND NOT attisdropped
   AND attname NOT IN ('status', 'direction')
   AND (SELECT line FROM fsm.refusal(:'id', format('%I = %s', attname,
               CASE atttypid::regtype::text
               WHEN 'uuid' THEN 'gen_random_uuid()'
               WHEN 'timestamp with time zone' THEN $$'2020-01-01'$$
               WHEN 'jsonb' THEN $$'{"other": 1}'$$
               WHEN 'bytea' THEN $$'other'$$
               WHEN 'text' THEN $$'other'$$
               WHEN 'stacksaga.step_direction' THEN $$'act'$$
               ELSE '7' END)) AS r(line) LIMIT 1) = 'allowed';
SELECT * FROM fsm.refusal(:'id', 'ring_id = 2');
SELECT * FROM fsm.refusal(:'id', 'slot = slot + 1') WITH ORDINALITY AS r(line, n) WHERE n <> 2;
SELECT * FROM fsm.refusal(:'id', $$ input = '{"more": 1}' $$);
SELECT * FROM fsm.refusal(:'id', $$ key = 'a key' $$);
-- Nothing changing is always allowed, also written anew.
SELECT * FROM fsm.refusal(:'id', $$ input = '{}', ring_id = ring_id, token = token, key = NULL $$);

-- Unknown words are refused by the table itself, whatever the trigger lets through.
SELECT line FROM fsm.refusal(:'id', $$ status = 'done' $$) WITH ORDINALITY AS r(line, n)
  WHERE n = 1;
SELECT line FROM fsm.refusal(:'id', $$ direction = 'sideways' $$) WITH ORDINALITY AS r(line, n)
  WHERE n = 1;
SELECT line FROM fsm.refusal(:'id', $$ status = NULL $$) WITH ORDINALITY AS r(line, n) WHERE n = 1;
SELECT line FROM fsm.refusal(:'id', $$ direction = NULL $$) WITH ORDINALITY AS r(line, n)
  WHERE n = 1;

-- The trigger's function is for the trigger alone.
SELECT stacksaga_internal.enforce_transition();

SET client_min_messages = warning;
DROP SCHEMA fsm CASCADE;
DELETE FROM stacksaga.parked_saga WHERE saga_id = :'id';
DELETE FROM stacksaga.work WHERE saga_id = :'id';
DELETE FROM stacksaga.saga WHERE saga_id = :'id';
