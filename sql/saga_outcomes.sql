-- What an answer asserts, and what follows: the rules of outcomes as a service, an operator and a caller meet them.
SET client_min_messages = warning;
CREATE SCHEMA outcome;
CREATE FUNCTION outcome.say(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN NEXT coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT regexp_replace(regexp_replace(line, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)', 'g'),
                                       'ease (given is )?[0-9]+', 'ease \1(lease)', 'g')
      FROM (VALUES (SQLSTATE || ': ' || message), ('DETAIL: ' || nullif(detail, '')),
                   ('HINT: ' || nullif(hint, ''))) AS v(line) WHERE line IS NOT NULL;
END
$$;

-- The same report twice under one lease changes nothing, `unknown` too, which is what a report says without a class.
SELECT stacksaga.define_saga('outcomes report', ARRAY[stacksaga.queue_step('charge', 'outcomes report', effect => 'guarded',
    retry => stacksaga.retry_policy(initial_interval => '0'))]);
SELECT saga_id AS id FROM stacksaga.start_saga('outcomes report') \gset
SELECT lease FROM stacksaga.claim_steps('outcomes report', 'w') \gset
SELECT stacksaga.fail_step(:'id', 'charge', :lease, 'no answer');
SELECT stacksaga.fail_step(:'id', 'charge', :lease, 'no answer');
SELECT lease AS next FROM stacksaga.claim_steps('outcomes report', 'w') \gset
SELECT stacksaga.fail_step(:'id', 'charge', :lease, 'no answer', 'unknown');
SELECT attempt, status, error_class FROM stacksaga.saga_history WHERE saga_id = :'id' ORDER BY attempt;
SELECT * FROM outcome.say(format($$SELECT stacksaga.fail_step('%s', 'charge', %s, 'no answer', 'retryable')$$, :'id', :lease));
SELECT stacksaga.complete_step(:'id', 'charge', :next);

-- A pause after which nobody remembers the key.
SELECT saga_id AS id FROM stacksaga.start_saga('outcomes report') \gset
SELECT lease FROM stacksaga.claim_steps('outcomes report', 'w') \gset
SELECT * FROM outcome.say(format($$SELECT stacksaga.fail_step('%s', 'charge', %s, 'busy', retry_after => '8 days')$$, :'id', :lease));
SELECT stacksaga.fail_step(:'id', 'charge', :lease, 'busy', 'retryable', '7 days');

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
DROP SCHEMA outcome CASCADE;
