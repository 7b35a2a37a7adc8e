-- What the generated sagas run, and what is noted of them. The program reads the notices: there is
-- one for every call, also for one whose transaction was rolled back.

CREATE SCHEMA property;

-- Effects of functions. No unique key: a second one would be seen.
CREATE TABLE property.ledger (
    saga_no   integer NOT NULL,
    step      text NOT NULL,
    direction text NOT NULL,
    attempt   integer NOT NULL
);

-- One attempt in four tries to act on its own saga, which is refused: what the model and the promises
-- say of the saga holds all the same. A refusal that does not come fails the attempt.
CREATE FUNCTION property.meddle(call stacksaga.step_call) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE ((call.input ->> 'no')::integer + call.attempt + length(call.step)) % 16
    WHEN 0 THEN PERFORM stacksaga.cancel_saga(call.saga_id, 'its own step');
    WHEN 4 THEN PERFORM stacksaga.suspend_saga(call.saga_id, 'its own step');
    WHEN 8 THEN PERFORM stacksaga.resolve_step(call.saga_id, call.step, 'done');
    WHEN 12 THEN PERFORM stacksaga.complete_step(call.saga_id, call.step, 1);
    ELSE RETURN;
    END CASE;
    RAISE EXCEPTION USING ERRCODE = 'SG424', MESSAGE = 'a handler could act on its own saga';
EXCEPTION WHEN SQLSTATE 'SG409' THEN
    NULL;
END
$$;

-- The input holds for each step, direction and attempt the SQLSTATE to raise, or null.
CREATE FUNCTION property.attempt(word text, call stacksaga.step_call)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    code text := call.input -> call.direction -> call.step ->> (call.attempt - 1);
BEGIN
    RAISE NOTICE '%|%|%|%|%|%|%|%', word, call.input ->> 'no', call.step, call.direction, call.attempt,
        call.idempotency_key, call.by_fallback, call.results;
    INSERT INTO property.ledger
        VALUES ((call.input ->> 'no')::integer, call.step, call.direction, call.attempt);
    PERFORM property.meddle(call);
    IF code IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'raises ' || code;
    END IF;
    RETURN to_jsonb(call.step || '/' || call.attempt);
END
$$;

CREATE FUNCTION property.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT property.attempt('call', call)
$$;
CREATE FUNCTION property.fall_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT property.attempt('fallback', call)
$$;

CREATE FUNCTION property.verify(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    finding text := call.input -> 'verify' -> call.step ->> (call.attempt - 1);
BEGIN
    RAISE NOTICE 'verify|%|%|%|%|%|%|%', call.input ->> 'no', call.step, call.direction, call.attempt,
        call.idempotency_key, call.by_fallback, call.results;
    IF finding ~ '^[A-Z0-9]{5}$' THEN
        RAISE EXCEPTION USING ERRCODE = finding, MESSAGE = 'raises ' || finding;
    END IF;
    RETURN finding;
END
$$;

-- Answers one after the other, each with its reply.
CREATE FUNCTION property.answer(saga_ids uuid[], steps text[], leases bigint[], words text[],
                                outputs text[], minutes integer[])
RETURNS TABLE (status text, refusal text, until bigint) LANGUAGE plpgsql AS $$
DECLARE
    granted timestamptz;
BEGIN
    FOR i IN 1 .. cardinality(saga_ids) LOOP
        status := NULL;
        refusal := NULL;
        until := NULL;
        BEGIN
            IF words[i] = 'done' THEN
                status := stacksaga.complete_step(saga_ids[i], steps[i], leases[i],
                                                  to_jsonb(outputs[i]));
            ELSIF words[i] = 'released' THEN
                status := stacksaga.release_step(saga_ids[i], steps[i], leases[i]);
            ELSIF words[i] = 'extend' THEN
                SELECT e.lease_until INTO granted
                  FROM stacksaga.extend_step(saga_ids[i], steps[i], leases[i],
                                             make_interval(mins => minutes[i])) AS e;
                until := extract(epoch FROM granted) * 1000000;
            ELSE
                status := stacksaga.fail_step(saga_ids[i], steps[i], leases[i], words[i], words[i]);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS refusal = RETURNED_SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

-- What operators do, and signals, one after the other, each with its reply.
CREATE FUNCTION property.operate(saga_ids uuid[], actions text[], steps text[], messages integer[])
RETURNS TABLE (status text, refusal text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. cardinality(saga_ids) LOOP
        status := NULL;
        refusal := NULL;
        BEGIN
            status := CASE actions[i]
                WHEN 'cancel' THEN stacksaga.cancel_saga(saga_ids[i], 'property')
                WHEN 'suspend' THEN stacksaga.suspend_saga(saga_ids[i], 'property')
                WHEN 'resume' THEN stacksaga.resume_saga(saga_ids[i], 'property')
                WHEN 'retry' THEN stacksaga.retry_saga(saga_ids[i], 'property')
                WHEN 'signal' THEN stacksaga.signal_saga(saga_ids[i], 'signal ' || steps[i],
                    to_jsonb(steps[i] || '/' || messages[i]), steps[i] || '/' || messages[i])::text
                ELSE stacksaga.resolve_step(saga_ids[i], steps[i], actions[i], reason => 'property')
                END;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS refusal = RETURNED_SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Every change of a saga's status, and of its direction while it is suspended.
CREATE TABLE property.change (
    change_no   bigint GENERATED ALWAYS AS IDENTITY,
    saga_id     uuid NOT NULL,
    from_status text NOT NULL,
    to_status   text NOT NULL,
    direction   text NOT NULL
);
CREATE FUNCTION property.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO property.change (saga_id, from_status, to_status, direction)
        VALUES (new.saga_id, old.status, new.status, new.direction);
    RETURN NULL;
END
$$;
CREATE TRIGGER property_note_change AFTER UPDATE ON stacksaga.saga FOR EACH ROW
    WHEN ((old.status, old.direction) IS DISTINCT FROM (new.status, new.direction)) EXECUTE FUNCTION property.note_change();

-- Sagas whose events say anything else than their changes, in order.
CREATE VIEW property.other_events AS
    WITH change AS (
        SELECT saga_id, array_agg('saga.' || to_status || ' ' || direction ORDER BY change_no) AS said
          FROM property.change GROUP BY saga_id
    ), event AS (
        SELECT (payload ->> 'saga_id')::uuid AS saga_id, array_agg(type || ' ' || (payload ->> 'direction') ORDER BY number) AS said
          FROM stacksaga.outbox_message
         WHERE topic = 'property events' AND type = 'saga.' || (payload ->> 'status') AND key = payload ->> 'saga_id'
         GROUP BY 1
    )
    SELECT s.saga_id, c.said::text AS changes, e.said::text AS events
      FROM stacksaga.saga s
      LEFT JOIN change c ON c.saga_id = s.saga_id LEFT JOIN event e ON e.saga_id = s.saga_id
     WHERE c.said IS DISTINCT FROM e.said;

CREATE FUNCTION property.clock() RETURNS bigint LANGUAGE sql AS $$
    SELECT (extract(epoch FROM stacksaga.clock_now()) * 1000000)::bigint
$$;

CREATE FUNCTION property.forget() RETURNS void LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, property.ledger,
        property.change, stacksaga.outbox_message
$$;
