-- Sagas that have sagas as steps: what their functions, services and operators do, decided by the
-- input and the ids alone, and the promises that the views check in the end.

CREATE TABLE property.tree_effect (
    effect_no bigint GENERATED ALWAYS AS IDENTITY,
    saga_id   uuid NOT NULL,
    step      text NOT NULL,
    direction text NOT NULL,
    attempt   integer NOT NULL,
    by        text NOT NULL, -- of which lease or function
    fallback  boolean NOT NULL
);
CREATE TABLE property.tree_answer (
    answer_no bigint GENERATED ALWAYS AS IDENTITY,
    tick      integer NOT NULL,
    saga_id   uuid NOT NULL,
    step      text NOT NULL,
    direction text NOT NULL,
    attempt   integer NOT NULL,
    lease     bigint NOT NULL,
    word      text NOT NULL,
    fallback  boolean NOT NULL
);
CREATE TABLE property.tree_operation (
    operation_no bigint GENERATED ALWAYS AS IDENTITY,
    tick    integer NOT NULL,
    saga_id uuid NOT NULL,
    action  text NOT NULL,
    step    text,
    reply    text NOT NULL
);
CREATE TABLE property.tree_violation (tree integer NOT NULL, what text NOT NULL);

-- 0..999, by the tree's seed and a place.
CREATE FUNCTION property.dice(input jsonb, place text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT abs(hashtextextended(place, (input ->> 'seed')::bigint) % 1000)::integer
$$;
-- In the end everybody succeeds, and operators help whoever is stuck.
CREATE FUNCTION property.is_calm() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT current_setting('stacksaga.clock_offset')::interval >= interval '60 hours'
$$;

CREATE FUNCTION property.tree_outcome(input jsonb, direction text, attempt integer, key text)
RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN property.is_calm() OR attempt > 8
          OR property.dice(input, 'outcome ' || key || attempt) >= (input ->> direction)::integer
        THEN 'done'
        ELSE ('{retryable,retryable,non_retryable,unknown,silence}'::text[])
             [1 + property.dice(input, 'word ' || key || attempt) % 5] END
$$;

CREATE FUNCTION property.tree_signal(saga_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.signal_saga(saga_id, 'go');
EXCEPTION WHEN SQLSTATE 'SG404' OR SQLSTATE 'SG409' THEN
    NULL; -- it has no step that waits for one, or takes none any more
END
$$;

-- Some signal the saga whose step they run, some the one above it.
CREATE FUNCTION property.tree_attempt(call stacksaga.step_call, fallback boolean)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    word text := property.tree_outcome(call.input, call.direction, call.attempt,
                                      call.idempotency_key);
BEGIN
    INSERT INTO property.tree_effect (saga_id, step, direction, attempt, by, fallback)
        VALUES (call.saga_id, call.step, call.direction, call.attempt, 'attempt ' || call.attempt,
                fallback);
    IF word <> 'done' THEN
        RAISE EXCEPTION USING MESSAGE = word, ERRCODE = CASE word WHEN 'non_retryable' THEN 'SG424'
            WHEN 'unknown' THEN 'SR504' ELSE 'SR503' END;
    END IF;
    CASE property.dice(call.input, 'signal ' || call.idempotency_key) % 5
    WHEN 0 THEN PERFORM property.tree_signal(call.saga_id);
    WHEN 1 THEN PERFORM property.tree_signal(s.parent_id) FROM stacksaga.saga s
                  WHERE s.saga_id = call.saga_id AND s.parent_id IS NOT NULL;
    ELSE NULL;
    END CASE;
    RETURN to_jsonb(call.step);
END
$$;
CREATE FUNCTION property.tree_run(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT property.tree_attempt(call, false)
$$;
CREATE FUNCTION property.tree_fall_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT property.tree_attempt(call, true)
$$;

-- Services claim what is due, and their answers are put down for this tick or a later one. A step
-- whose child may still do something has no fallback yet.
CREATE FUNCTION property.tree_serve(queue text, tick integer, lease interval)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    call record;
    claimed bigint := 0;
    is_fallback boolean := queue = 'tree spare';
    word text;
BEGIN
    FOR call IN SELECT * FROM stacksaga.claim_steps(queue, 'service', 1000, lease) LOOP
        claimed := claimed + 1;
        word := property.tree_outcome(call.input, call.direction, call.attempt, call.idempotency_key);
        IF is_fallback AND EXISTS (
                SELECT FROM stacksaga.saga c JOIN stacksaga.saga p ON p.saga_id = c.parent_id
                  JOIN stacksaga.definition_step d
                    ON d.definition_id = p.definition_id AND d.step_no = c.parent_step
                 WHERE p.saga_id = call.saga_id AND d.step = call.step AND c.status <> 'failed') THEN
            INSERT INTO property.tree_violation VALUES ((call.input ->> 'tree')::integer,
                format('the fallback of %s is tried beside its child', call.step));
        END IF;
        CONTINUE WHEN word = 'silence';
        INSERT INTO property.tree_answer
            (tick, saga_id, step, direction, attempt, lease, word, fallback)
            SELECT tick + CASE WHEN property.is_calm() THEN 0
                   ELSE ('{0,0,0,0,1,1,2,6}'::integer[])[1 + property.dice(call.input,
                        'delay ' || call.idempotency_key || call.attempt) % 8] END,
                   call.saga_id, call.step, call.direction, call.attempt, call.lease, word,
                   is_fallback;
    END LOOP;
    RETURN claimed;
END
$$;

CREATE FUNCTION property.tree_answers(until_tick integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    a property.tree_answer;
    given bigint := 0;
BEGIN
    FOR a IN WITH due AS (DELETE FROM property.tree_answer WHERE tick <= until_tick RETURNING *)
             SELECT * FROM due ORDER BY answer_no LOOP
        given := given + 1;
        BEGIN
            IF a.word = 'done' THEN
                PERFORM stacksaga.complete_step(a.saga_id, a.step, a.lease, to_jsonb(a.step));
                INSERT INTO property.tree_effect (saga_id, step, direction, attempt, by, fallback)
                    VALUES (a.saga_id, a.step, a.direction, a.attempt, 'lease ' || a.lease,
                            a.fallback);
            ELSE
                PERFORM stacksaga.fail_step(a.saga_id, a.step, a.lease, a.word, a.word);
            END IF;
        EXCEPTION WHEN SQLSTATE 'SG409' OR SQLSTATE 'SG412' OR SQLSTATE 'SG422' THEN
            NULL; -- the lease is lost, or an operator has answered already
        END;
    END LOOP;
    RETURN given;
END
$$;

-- What an operator does to a saga at a tick, if anything.
CREATE FUNCTION property.tree_action(s stacksaga.saga, tick integer) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    dice integer := property.dice(s.input, format('operator %s %s', s.saga_id, tick));
BEGIN
    IF property.is_calm() AND s.status IN ('parked', 'suspended') THEN
        RETURN CASE s.status WHEN 'parked' THEN 'retry' ELSE 'resume' END;
    ELSIF property.is_calm() THEN
        RETURN NULL;
    ELSIF s.status = 'parked' THEN
        RETURN CASE WHEN dice < 120 THEN 'retry' WHEN dice < 150 THEN 'done'
                    WHEN dice < 200 THEN 'not_done' WHEN dice < 220 THEN 'cancel' END;
    ELSIF s.status = 'suspended' THEN
        RETURN CASE WHEN dice < 300 THEN 'resume' WHEN dice < 330 THEN 'cancel' END;
    END IF;
    RETURN CASE WHEN dice < 8 THEN 'cancel' WHEN dice < 16 THEN 'suspend' END;
END
$$;
-- Does it, and notes the reply.
CREATE FUNCTION property.tree_act(s stacksaga.saga, tick integer, action text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    parked text := (SELECT d.step FROM stacksaga.definition_step d
                     WHERE d.definition_id = s.definition_id AND d.step_no = s.parked_step);
    reply text;
BEGIN
    BEGIN
        reply := CASE action
            WHEN 'cancel' THEN stacksaga.cancel_saga(s.saga_id, 'property')
            WHEN 'suspend' THEN stacksaga.suspend_saga(s.saga_id, 'property')
            WHEN 'resume' THEN stacksaga.resume_saga(s.saga_id, 'property')
            WHEN 'retry' THEN stacksaga.retry_saga(s.saga_id, 'property')
            ELSE stacksaga.resolve_step(s.saga_id, parked, action, reason => 'property',
                    direction => CASE WHEN property.is_calm() THEN s.parked_direction END) END;
    EXCEPTION WHEN SQLSTATE 'SG409' THEN
        reply := SQLSTATE;
    END;
    INSERT INTO property.tree_operation (tick, saga_id, action, step, reply)
        VALUES (tick, s.saga_id, action, parked, reply);
    RETURN reply;
END
$$;

-- What retry_saga leaves to a person: whether a step in doubt was done, which in the end it was not, for
-- an effect and its answer are one and no answer is under way; and to undo by hand what was done by hand.
CREATE FUNCTION property.tree_decide(s stacksaga.saga, tick integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM property.tree_answer a WHERE a.saga_id = s.saga_id) THEN
        PERFORM property.tree_act(s, tick,
                                  CASE s.parked_direction WHEN 'act' THEN 'never' ELSE 'done' END);
    END IF;
END
$$;

CREATE FUNCTION property.tree_operate(tick integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    s stacksaga.saga;
    action text;
    operated bigint := 0;
BEGIN
    FOR s IN SELECT * FROM stacksaga.saga WHERE status NOT IN ('completed', 'failed')
              ORDER BY saga_id LOOP
        action := property.tree_action(s, tick);
        CONTINUE WHEN action IS NULL;
        operated := operated + 1;
        IF property.tree_act(s, tick, action) = 'SG409' AND action = 'retry' AND property.is_calm() THEN
            PERFORM property.tree_decide(s, tick);
        END IF;
    END LOOP;
    RETURN operated;
END
$$;

-- Signals from outside.
CREATE FUNCTION property.tree_signals(tick integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(property.tree_signal(s.saga_id))
      FROM stacksaga.saga s JOIN stacksaga.work w USING (saga_id)
      JOIN stacksaga.definition_step d ON d.definition_id = s.definition_id AND d.step_no = w.step_no
     WHERE d.kind = 'signal' AND w.purpose = 'step' AND s.status = 'running'
       AND (property.is_calm() OR property.dice(s.input, format('signal %s %s', s.saga_id, tick)) < 200)
$$;

CREATE FUNCTION property.tree_forget() RETURNS void LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_signal,
        property.tree_effect, property.tree_answer, property.tree_operation,
        property.tree_violation, property.change, stacksaga.outbox_message
$$;

-- The promises. A saga whose operator retried or resolved a step may pass a step that it could not
-- have passed by itself.
CREATE VIEW property.tree_saga AS
    SELECT (s.input ->> 'tree')::integer AS tree, s.*,
           EXISTS (SELECT FROM property.tree_operation o
                    WHERE o.saga_id = s.saga_id AND o.action IN ('retry', 'done', 'not_done')
                      AND o.reply <> 'SG409') AS was_helped
      FROM stacksaga.saga s;
CREATE VIEW property.tree_step AS
    SELECT s.tree, s.saga_id, s.status, s.was_helped, d.step_no, d.step, d.kind, d.stage, d.effect,
           EXISTS (SELECT FROM property.tree_effect e
                    WHERE e.saga_id = s.saga_id AND e.step = d.step AND e.direction = 'act') AS acted,
           EXISTS (SELECT FROM property.tree_effect e
                    WHERE e.saga_id = s.saga_id AND e.step = d.step AND e.direction = 'act'
                      AND e.fallback) AS fell_back,
           EXISTS (SELECT FROM property.tree_effect e
                    WHERE e.saga_id = s.saga_id AND e.step = d.step
                      AND e.direction = 'compensate') AS undone,
           EXISTS (SELECT FROM stacksaga.effect e
                    WHERE e.saga_id = s.saga_id AND e.step_no = d.step_no
                      AND e.direction = 'act') AS is_marked,
           EXISTS (SELECT FROM property.tree_operation o
                    WHERE o.saga_id = s.saga_id AND o.step = d.step AND o.reply <> 'SG409'
                      AND o.action IN ('done', 'not_done')) AS was_resolved,
           k.*
      FROM property.tree_saga s JOIN stacksaga.definition_step d USING (definition_id),
           LATERAL (SELECT count(*) AS children,
                           count(*) FILTER (WHERE c.status <> 'failed') AS standing,
                           count(*) FILTER (WHERE c.status = 'completed') AS completed
                      FROM stacksaga.saga c
                     WHERE c.parent_id = s.saga_id AND c.parent_step = d.step_no) k;

-- Every effect as one of the step that it belongs to in each saga above it. Nobody waits until a child
-- is undone that need not be, and one that a fallback has replaced was undone before that. A child that failed has
-- undone itself, before another one was tried in its place: that is no compensation of the step.
CREATE VIEW property.tree_deed AS
    WITH RECURSIVE deed AS (
        SELECT e.effect_no, e.direction, e.saga_id, d.step_no
          FROM property.tree_effect e JOIN stacksaga.saga s USING (saga_id)
          JOIN stacksaga.definition_step d ON d.definition_id = s.definition_id AND d.step = e.step
        UNION ALL
        SELECT deed.effect_no, deed.direction, s.parent_id, s.parent_step
          FROM deed JOIN stacksaga.saga s USING (saga_id)
          JOIN stacksaga.saga p ON p.saga_id = s.parent_id
          JOIN stacksaga.definition_step d
            ON d.definition_id = p.definition_id AND d.step_no = s.parent_step
         WHERE deed.direction = 'act'
            OR d.effect = 'compensable' AND NOT EXISTS (
               SELECT FROM property.tree_effect f
                WHERE f.saga_id = p.saga_id AND f.step = d.step AND f.fallback)
           AND EXISTS (
               SELECT FROM property.change c
                WHERE c.saga_id = s.saga_id AND c.from_status = 'completed'))
    SELECT * FROM deed;

-- Compensations whose last lease ran out, so that the saga went on without them, and which were answered after that.
CREATE VIEW property.tree_late AS
    SELECT e.effect_no
      FROM property.tree_effect e JOIN stacksaga.saga s USING (saga_id)
      JOIN stacksaga.saga_definition d USING (definition_id)
      JOIN stacksaga.definition_step t ON t.definition_id = s.definition_id AND t.step = e.step
      JOIN stacksaga.failure f ON f.saga_id = s.saga_id AND f.step_no = t.step_no
                              AND f.direction = e.direction AND f.attempt = e.attempt
     WHERE e.direction = 'compensate' AND d.on_compensation_failure = 'continue';

CREATE VIEW property.tree_broken AS
    SELECT tree, what FROM property.tree_violation
    UNION ALL
    SELECT tree, format('%s of %s took effect %s times', e.direction, e.step, count(DISTINCT e.by))
      FROM property.tree_effect e JOIN property.tree_saga USING (saga_id)
     GROUP BY tree, saga_id, e.step, e.direction HAVING count(DISTINCT e.by) > 1
    UNION ALL
    SELECT tree, format('the effect of %s of %s has no marker', e.direction, e.step)
      FROM property.tree_effect e JOIN property.tree_saga s USING (saga_id)
      JOIN stacksaga.definition_step d ON d.definition_id = s.definition_id AND d.step = e.step
     WHERE NOT EXISTS (SELECT FROM stacksaga.effect m
                        WHERE m.saga_id = e.saga_id AND m.step_no = d.step_no
                          AND m.direction = e.direction)
    UNION ALL
    SELECT tree, format('step %s failed by an error that is not its own: %s', f.step_no, f.error)
      FROM stacksaga.failure f JOIN property.tree_saga USING (saga_id)
     WHERE f.sqlstate NOT IN ('SR503', 'SR504', 'SG424', '57P02') -- what they raise; the worker's death
    UNION ALL
    SELECT tree, format('saga %s ended %s', saga_id, status) FROM property.tree_saga
     WHERE status NOT IN ('completed', 'failed')
    UNION ALL
    SELECT tree, format('saga %s is %s and has work: %s of %s', saga_id, status, w.purpose,
                          w.step_no)
      FROM property.tree_saga JOIN stacksaga.work w USING (saga_id)
     WHERE status IN ('completed', 'failed')
    UNION ALL
    SELECT tree, format('%s has %s children that have not failed', step, standing)
      FROM property.tree_step WHERE standing > 1
    UNION ALL
    SELECT tree, format('%s is done in a completed saga, by %s children', step, completed)
      FROM property.tree_step
     WHERE status = 'completed' AND kind = 'child' AND NOT was_resolved
       AND (completed <> 1 AND NOT fell_back OR standing <> 0 AND fell_back)
    UNION ALL
    SELECT tree, format('it is completed and %s was not done', step)
      FROM property.tree_step WHERE status = 'completed' AND NOT is_marked
    UNION ALL
    SELECT tree, format('it is completed and %s was undone', step)
      FROM property.tree_step WHERE status = 'completed' AND undone
    UNION ALL
    SELECT tree, format('it failed and a child of %s has not', step)
      FROM property.tree_step
     WHERE status = 'failed' AND standing > 0 AND NOT was_resolved
       AND (effect = 'compensable' OR effect = 'irreversible' AND NOT was_helped)
    UNION ALL
    SELECT tree, format('it failed and %s was not undone', step)
      FROM property.tree_step
     WHERE status = 'failed' AND kind <> 'child' AND acted AND NOT undone AND NOT was_resolved
       AND effect = 'compensable'
    UNION ALL
    SELECT tree, format('it failed past %s, which is irreversible', step)
      FROM property.tree_step
     WHERE status = 'failed' AND is_marked AND effect = 'irreversible' AND NOT was_helped
    UNION ALL
    SELECT tree, format('the changes of saga %s are %s, and its events %s', saga_id, changes, events)
      FROM property.other_events JOIN property.tree_saga USING (saga_id)
    UNION ALL
    SELECT tree, format('its status went from %s to %s', c.from_status, c.to_status)
      FROM property.change c JOIN property.tree_saga s USING (saga_id)
     WHERE NOT EXISTS (
           SELECT FROM stacksaga.saga_transitions() t
            WHERE (t.from_status, t.to_status, t.direction)
                  = (c.from_status, c.to_status, c.direction)
              AND (NOT t.of_child OR s.parent_id IS NOT NULL))
        OR c.from_status = 'failed'
        OR c.direction = 'act' AND EXISTS (
           SELECT FROM property.change b
            WHERE b.saga_id = c.saga_id AND b.change_no < c.change_no
              AND b.direction = 'compensate')
    UNION ALL
    SELECT a.tree, format('%s and %s out of order: %s', a.step, b.step, x.direction)
      FROM property.tree_step a
      JOIN property.tree_step b ON b.saga_id = a.saga_id AND b.stage > a.stage
      JOIN property.tree_deed x ON x.saga_id = a.saga_id AND x.step_no = a.step_no
      JOIN property.tree_deed y ON y.saga_id = b.saga_id AND y.step_no = b.step_no
     WHERE x.direction = y.direction AND NOT a.fell_back AND NOT b.fell_back
       AND (x.effect_no > y.effect_no) = (x.direction = 'act')
       AND NOT EXISTS (SELECT FROM property.tree_late l WHERE l.effect_no = y.effect_no)
       AND NOT EXISTS (SELECT FROM property.tree_saga h
                        WHERE h.tree = a.tree AND h.was_helped);
