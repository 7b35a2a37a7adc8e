-- Unknown outcomes: a service that is not heard from under its lease, or until the timeout, is not
-- taken for one that has failed. Time is moved by stacksaga.clock_offset.

CREATE SCHEMA unknown;
-- Says what the input has for the attempt.
CREATE FUNCTION unknown.ask(call stacksaga.step_call) RETURNS text LANGUAGE sql AS $$
    SELECT call.input -> 'verify' ->> call.attempt - 1
$$;
CREATE FUNCTION unknown.hang(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    LOOP NULL; END LOOP;
END
$$;
CREATE FUNCTION unknown.spare(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT '"spare"'::jsonb
$$;
CREATE FUNCTION unknown.pass(by interval) RETURNS bigint LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset',
                      (current_setting('stacksaga.clock_offset')::interval + by)::text, false);
    SELECT stacksaga.run_pending();
$$;
-- Starts the saga, lets the events happen to it, and returns a line for each, then its history.
CREATE FUNCTION unknown.play(saga text, events text[], input jsonb DEFAULT '{}')
RETURNS SETOF text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    id uuid;
    held bigint;
    claimed bigint;
    event text;
    said text;
BEGIN
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
        stacksaga.parked_saga, stacksaga.saga_action;
    PERFORM set_config('stacksaga.clock_offset', '0', false);
    id := (SELECT saga_id FROM stacksaga.start_saga(saga, input));
    FOREACH event IN ARRAY events LOOP
        said := NULL;
        BEGIN
            CASE split_part(event, ' ', 1)
            WHEN 'claim' THEN
                SELECT c.lease, format('%s attempt %s', c.direction, c.attempt) INTO claimed, said
                  FROM stacksaga.claim_steps('unknown_' || split_part(event, ' ', 2), 'w') AS c;
                held := coalesce(claimed, held);
            WHEN 'lapse' THEN PERFORM unknown.pass('31 s');
            WHEN 'timeout' THEN PERFORM unknown.pass('61 s');
            WHEN 'run' THEN
                PERFORM stacksaga.run_pending();
                SELECT w.lease, format('%s attempt %s%s', w.direction, w.attempt,
                           CASE WHEN w.falling_back THEN ' of the fallback' END) INTO held, said
                  FROM stacksaga.work w WHERE w.saga_id = id;
            WHEN 'hold' THEN PERFORM FROM stacksaga.extend_step(id, 'a', held, '1 hour');
            WHEN 'done' THEN PERFORM stacksaga.complete_step(id, 'a', held, '"done"');
            ELSE PERFORM stacksaga.fail_step(id, 'a', held, 'said so', event);
            END CASE;
        EXCEPTION WHEN SQLSTATE 'SG000' THEN
            said := SQLSTATE;
        END;
        RETURN NEXT concat_ws(': ', event, coalesce(said, CASE WHEN event LIKE 'claim%' THEN 'nothing' END))
            || ' -> ' || (SELECT status FROM stacksaga.saga s WHERE s.saga_id = id);
    END LOOP;
    RETURN QUERY SELECT concat_ws(', ', format('%s %s %s', direction, attempt, status), error_class,
                                  error)
      FROM stacksaga.saga_history ORDER BY direction, attempt;
END
$$;
CREATE FUNCTION unknown.policy() RETURNS stacksaga.retry_policy LANGUAGE sql AS $$
    SELECT stacksaga.retry_policy(max_attempts => 2, initial_interval => '0')
$$;

SELECT stacksaga.define_saga('unknown plain', ARRAY[stacksaga.queue_step('a', 'unknown_main', compensable => true,
           timeout => '1 minute', fallback => 'unknown_spare', retry => unknown.policy())],
           compensation_retry => unknown.policy()),
       stacksaga.define_saga('unknown asked', ARRAY[stacksaga.queue_step('a', 'unknown_main', compensable => true,
           timeout => '1 minute', fallback => 'unknown_spare', retry => unknown.policy(),
           verify => 'unknown.ask(stacksaga.step_call)')]),
       stacksaga.define_saga('unknown final', ARRAY[stacksaga.queue_step('a', 'unknown_main',
           timeout => '1 minute', fallback => 'unknown_spare', retry => unknown.policy(),
           effect => 'irreversible')]),
       stacksaga.define_saga('unknown final asked', ARRAY[stacksaga.queue_step('a', 'unknown_main',
           timeout => '1 minute', fallback => 'unknown_spare', retry => unknown.policy(),
           effect => 'irreversible', verify => 'unknown.ask(stacksaga.step_call)')]),
       stacksaga.define_saga('unknown sent', ARRAY[stacksaga.message_step('a', 'unknown.main', 'unknown.undo',
           timeout => '1 minute', fallback => 'unknown.spare', retry => unknown.policy())]),
       stacksaga.define_saga('unknown sent asked', ARRAY[stacksaga.message_step('a', 'unknown.main',
           'unknown.undo', timeout => '1 minute', fallback => 'unknown.spare',
           retry => unknown.policy(), verify => 'unknown.ask(stacksaga.step_call)')]),
       stacksaga.define_saga('unknown sent final', ARRAY[stacksaga.message_step('a', 'unknown.main',
           timeout => '1 minute', fallback => 'unknown.spare', retry => unknown.policy(),
           effect => 'irreversible')]),
       stacksaga.define_saga('unknown called', ARRAY[stacksaga.sql_step('a', 'unknown.hang(stacksaga.step_call)',
           timeout => '20 ms', fallback => 'unknown.spare(stacksaga.step_call)',
           retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0',
                                           never_on => '{57014}'),
           verify => 'unknown.ask(stacksaga.step_call)', effect => 'irreversible')]);

-- Without verify: tried again until the attempts end, then compensated. The fallback is not tried.
SELECT unknown.play('unknown plain', '{claim main,lapse,claim spare,claim main,lapse,claim spare,claim main,done}');
SELECT unknown.play('unknown plain', '{claim main,hold,timeout,claim main,lapse,claim spare,claim main}');
-- Nor after a later attempt has failed in a known way, unless it says that none was ever done.
SELECT unknown.play('unknown plain', '{claim main,lapse,claim main,retryable,claim spare,claim main}');
SELECT unknown.play('unknown plain', '{claim main,lapse,claim main,non_retryable,claim main,claim spare,done}');
-- The compensation is repeated until its attempts end, then the saga parks.
SELECT unknown.play('unknown plain', '{claim main,lapse,claim main,lapse,claim main,lapse,claim main,lapse,claim main}');
-- The late answer counts until another service has claimed, or the outcome has been decided.
SELECT unknown.play('unknown plain', '{claim main,lapse,done}');
SELECT unknown.play('unknown plain', '{claim main,lapse,retryable,claim main,lapse,done}');
-- A fallback that does not answer is an unknown outcome as well.
SELECT unknown.play('unknown plain', '{claim main,non_retryable,claim spare,lapse,claim spare,lapse,claim spare,claim main}');

-- With verify: it is asked, and decides.
SELECT unknown.play('unknown asked', '{claim main,lapse,claim main,claim spare}', '{"verify": ["done"]}');
SELECT unknown.play('unknown asked', '{claim main,lapse,done,claim main,lapse,claim main,claim spare,done}',
                    '{"verify": ["not_done", "not_done"]}');
-- When verify says unknown, the late answer still counts, and the fallback is not tried.
SELECT unknown.play('unknown asked', '{claim main,lapse,done}', '{"verify": ["unknown"]}');
SELECT unknown.play('unknown asked', '{claim main,lapse,claim main,lapse,claim spare,claim main}',
                    '{"verify": ["unknown", "unknown"]}');
SELECT unknown.play('unknown asked', '{claim main,unknown,run,done}', '{"verify": ["unknown"]}');

-- Irreversible: parked at the first unknown outcome, until the late answer.
SELECT unknown.play('unknown final', '{claim main,lapse,claim main,claim spare,done}');
SELECT unknown.play('unknown final', '{claim main,lapse,non_retryable,claim spare,done}');
SELECT unknown.play('unknown final asked', '{claim main,lapse,claim main,done}', '{"verify": ["not_done"]}');
SELECT unknown.play('unknown final asked', '{claim main,lapse,claim main,claim spare,done}',
                    '{"verify": ["unknown"]}');

-- Messages: no answer until the timeout.
SELECT unknown.play('unknown sent', '{run,timeout,run,timeout,run,done}');
SELECT unknown.play('unknown sent', '{run,timeout,done}');
SELECT unknown.play('unknown sent asked', '{run,timeout,run,timeout,run,done}', '{"verify": ["not_done", "not_done"]}');
SELECT unknown.play('unknown sent asked', '{run,timeout,run}', '{"verify": ["done"]}');
SELECT unknown.play('unknown sent final', '{run,timeout,run,done}');

-- A sql_step that passes its timeout was rolled back: retryable whatever its policy says, not asked
-- for, not parked, and done another way in the end.
SELECT unknown.play('unknown called', '{run}', '{"verify": ["done", "done"]}');

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA unknown CASCADE;
