-- The handlers of the generated subscriptions, and the record of their calls. The program reads the
-- notices: each call sends one, also a call that is rolled back.

CREATE SCHEMA property;

-- The error that a handler raises for a message, up to an attempt.
CREATE TABLE property.failure (
    subscription text NOT NULL,
    number       integer NOT NULL,
    attempts     integer NOT NULL,
    code         text NOT NULL,
    kind         text NOT NULL,
    PRIMARY KEY (subscription, number, kind)
);

-- Effects of handlers, in their order. No unique key: a second one would be seen.
CREATE TABLE property.handled (
    at           bigint GENERATED ALWAYS AS IDENTITY,
    subscription text NOT NULL,
    number       integer NOT NULL
);

-- The messages that were published and committed, for the part in which the server crashes.
CREATE TABLE property.published (number integer NOT NULL);

-- Handles messages for a subscription: all of them or none.
CREATE FUNCTION property.handle(subscription text, kind text, messages stacksaga.message[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    code text;
BEGIN
    SELECT f.code INTO code
      FROM unnest(messages) WITH ORDINALITY AS m(batch_id, message_id, topic, key, type, payload,
               headers, attempt, published_at, place)
      JOIN property.failure f ON f.number = (m.payload -> 'n')::integer AND m.attempt <= f.attempts
     WHERE f.subscription = handle.subscription AND f.kind = handle.kind
     ORDER BY m.place LIMIT 1;
    RAISE NOTICE '%', (SELECT concat_ws('|', handle.subscription, handle.kind, coalesce(code, ''),
               string_agg((payload ->> 'n') || ':' || attempt, ','))
          FROM unnest(messages));
    INSERT INTO property.handled (subscription, number)
        SELECT handle.subscription, (payload -> 'n')::integer FROM unnest(messages);
    IF code IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'raises ' || code;
    END IF;
END
$$;

-- Makes the functions NAME_single, NAME_batch and NAME_fallback of a subscription.
CREATE PROCEDURE property.make_handlers(name text) LANGUAGE plpgsql AS $$
DECLARE
    template CONSTANT text := 'CREATE OR REPLACE FUNCTION property.%I(m stacksaga.message%s) RETURNS void
        LANGUAGE sql AS $f$ SELECT property.handle(%L, %L, %s) $f$';
BEGIN
    EXECUTE format(template, name || '_single', '', name, 'handler', 'ARRAY[m]');
    EXECUTE format(template, name || '_batch', '[]', name, 'handler', 'm');
    EXECUTE format(template, name || '_fallback', '', name, 'fallback', 'ARRAY[m]');
END
$$;

-- A key of one of 256 partitions, which lies in one of any smaller number as well.
CREATE FUNCTION property.key_in(partition integer, salt integer) RETURNS text LANGUAGE sql AS $$
    SELECT k FROM (SELECT 'k' || salt || '-' || n AS k FROM generate_series(1, 10000) AS n) AS keys
     WHERE stacksaga.slot(stacksaga.token(k), 256) = partition LIMIT 1
$$;
