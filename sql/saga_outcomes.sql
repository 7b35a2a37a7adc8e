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

-- verify returns the step's output with its outcome, so that a compensation can name what it undoes.
CREATE FUNCTION outcome.look(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT (call).input -> 'found' $$;
SELECT stacksaga.define_saga('outcomes verify', ARRAY[stacksaga.queue_step('charge', 'outcomes verify', effect => 'guarded',
    verify => 'outcome.look(stacksaga.step_call)', retry => stacksaga.retry_policy(initial_interval => '0', max_attempts => 2))]);
SELECT count(*) FROM unnest(ARRAY['"done"', '{"outcome": "done"}', '{"outcome": "done", "output": {"charge": 7}}', '"unknown"', '"maybe"', '5',
    '[]', '{}', '{"outcome": 5}', 'null']::jsonb[]) AS found, stacksaga.start_saga('outcomes verify', jsonb_build_object('found', found));
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no answer')) FROM stacksaga.claim_steps('outcomes verify', 'w', 10);
SELECT stacksaga.run_pending();
SELECT s.input -> 'found' AS found, r.status, r.output FROM stacksaga.sagas s, stacksaga.saga_result(s.saga_id) r
 WHERE s.saga = 'outcomes verify' ORDER BY s.created_at, s.saga_id;

-- Signals: one that no step took, and the saga has ended, was not accepted.
SELECT stacksaga.define_saga('outcomes signal', ARRAY[stacksaga.queue_step('pack', 'outcomes signal', effect => 'guarded'),
    stacksaga.signal_step('paid', 'payment')]);
SELECT saga_id AS id FROM stacksaga.start_saga('outcomes signal') \gset
SELECT stacksaga.signal_saga(:'id', 'payment', '{}', 'm1');
SELECT stacksaga.signal_saga(:'id', 'payment', '{}', 'm1');
SELECT stacksaga.fail_step(saga_id, step, lease, 'sold out', 'non_retryable') FROM stacksaga.claim_steps('outcomes signal', 'w');
SELECT * FROM outcome.say(format($$SELECT stacksaga.signal_saga('%s', 'payment', '{}', 'm1')$$, :'id'));
SELECT substr(line, 26) AS event FROM stacksaga.saga_timeline(:'id') AS line;
SELECT severity, regexp_replace(detail, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)') AS detail FROM stacksaga.doctor() WHERE check_name = 'signals';

SELECT * FROM outcome.say(format($$SELECT stacksaga.acknowledge_contradiction('%s', 'pack', 'why')$$, :'id'));
SELECT * FROM outcome.say(format($$SELECT stacksaga.acknowledge_contradiction('%s', 'ship', 'why')$$, :'id'));

TRUNCATE stacksaga.saga_signal, stacksaga.saga_contradiction, stacksaga.saga_action, stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
DROP SCHEMA outcome CASCADE;
