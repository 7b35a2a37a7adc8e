-- on_failure, events_topic and keep are content of a definition, and leave no trace in it where they are not given.

CREATE VIEW of_saga AS
    SELECT version, is_current, on_failure, events_topic, keep FROM stacksaga.saga_definition
     WHERE saga = 'on failure' ORDER BY version;
CREATE FUNCTION define(others text DEFAULT '', step text DEFAULT '') RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    version integer;
BEGIN
    EXECUTE format('SELECT stacksaga.define_saga(%L, ARRAY[stacksaga.queue_step(%L, %L, compensable => true%s)]%s)',
                   'on failure', 'a', 'q', step, others) INTO version;
    RETURN version;
END
$$;

-- What a definition is that was made before there were these arguments.
SELECT define();
SELECT content FROM stacksaga.saga_definition WHERE saga = 'on failure';
SELECT define($$, on_failure => 'compensate', events_topic => NULL, keep => NULL$$, $$, on_failure => NULL, skip_unless => NULL$$);

SELECT define($$, on_failure => 'park'$$);
SELECT define($$, events_topic => 'orders'$$);
SELECT define($$, keep => '30 days'$$);
SELECT define($$, keep => '0'$$);
SELECT define($$, keep => '-1 second'$$);
SELECT define($$, on_failure => 'park', events_topic => repeat('x', 255), keep => '1 day 02:00'$$);
SELECT version, is_current, on_failure, left(events_topic, 10) AS events_topic, keep FROM of_saga;
SELECT define($$, keep => '30 days'$$);
SELECT define();

-- A step says it for itself, or takes what the saga says: stored is which of them holds.
SELECT define('', $$, on_failure => 'park'$$);
SELECT define('', $$, on_failure => 'compensate'$$);
SELECT define($$, on_failure => 'park'$$, $$, on_failure => 'compensate'$$);
SELECT d.version, d.on_failure AS of_saga, s.on_failure AS of_step
  FROM stacksaga.saga_definition d JOIN stacksaga.definition_step s USING (definition_id)
 WHERE d.saga = 'on failure' ORDER BY d.version;

-- Each kind of step.
SELECT (stacksaga.sql_step('a', 'f', on_failure => 'park')).on_failure,
       (stacksaga.queue_step('a', 'q', on_failure => 'park')).on_failure,
       (stacksaga.signal_step('a', 's', on_failure => 'park')).on_failure,
       (stacksaga.timer_step('a', '1 hour', on_failure => 'park')).on_failure,
       (stacksaga.message_step('a', 't', on_failure => 'park')).on_failure,
       (stacksaga.child_step('a', 'c', on_failure => 'park')).on_failure;

DROP FUNCTION define;
DROP VIEW of_saga;
