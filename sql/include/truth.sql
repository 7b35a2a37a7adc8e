-- What the tests of outcomes share: one saga at a time, a clock that they set on, and what calls return or say.
CREATE SCHEMA truth;
CREATE TABLE truth.log (n serial, what text);
-- Starts it alone.
CREATE FUNCTION truth.start(saga text, input jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga,
        stacksaga.saga_action, stacksaga.saga_signal, stacksaga.saga_contradiction;
    TRUNCATE truth.log RESTART IDENTITY;
    SELECT set_config('stacksaga.clock_offset', '0', false);
    SELECT saga_id FROM stacksaga.start_saga(saga, input);
$$;
CREATE FUNCTION truth.pass(by interval) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset',
                      (coalesce(nullif(current_setting('stacksaga.clock_offset'), ''), '0')::interval + by)::text, false);
    SELECT stacksaga.run_pending();
$$;
CREATE FUNCTION truth.claim(queue text) RETURNS bigint LANGUAGE sql AS $$
    SELECT lease FROM stacksaga.claim_steps(queue, 'w')
$$;
-- What a call returns or says.
CREATE FUNCTION truth.try(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT stacksaga.' || call INTO result;
    RETURN NEXT coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT regexp_replace(regexp_replace(line, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)', 'g'),
                                       'ease (given is )?[0-9]+', 'ease \1(lease)', 'g')
      FROM (VALUES (SQLSTATE || ': ' || message), ('  DETAIL: ' || nullif(detail, '')),
                   ('  HINT: ' || nullif(hint, ''))) AS v(line) WHERE line IS NOT NULL;
END
$$;
