-- redact_saga erases what a finished saga says of people; that it ran, and its identity, stay.

CREATE SCHEMA redact;
CREATE FUNCTION redact.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input ? 'refuse' AND call.step = 'second' THEN
        RAISE EXCEPTION 'no money, %', call.input ->> 'name' USING ERRCODE = 'SG424';
    END IF;
    RETURN jsonb_build_object('greeting', 'Dear ' || (call.input ->> 'name'));
END
$$;
SELECT stacksaga.define_saga('redact_inner', ARRAY[
    stacksaga.sql_step('inner', 'redact.run(stacksaga.step_call)', 'redact.run(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('redact', ARRAY[
    stacksaga.sql_step('first', 'redact.run(stacksaga.step_call)', 'redact.run(stacksaga.step_call)'),
    stacksaga.child_step('child', 'redact_inner'),
    stacksaga.signal_step('asked', 'answer'),
    stacksaga.sql_step('second', 'redact.run(stacksaga.step_call)', effect => 'guarded')]);
SELECT saga_id AS good FROM stacksaga.start_saga('redact', '{"name": "Ann Lee"}', 'good',
    headers => '{"user": "Ann Lee"}', attributes => '{"customer": "Ann Lee"}', group_key => 'Ann Lee') \gset
SELECT saga_id AS bad FROM stacksaga.start_saga('redact', '{"name": "Ann Lee", "refuse": true}', 'bad') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga_id AS inner FROM stacksaga.sagas WHERE parent_id = :'good' \gset

-- Unfinished, or of a saga that is not finished: it may still be compensated.
SELECT stacksaga.suspend_saga(:'good', 'Ann Lee called') AS suspended;
\set VERBOSITY sqlstate
SELECT stacksaga.redact_saga(:'good', 'ticket 7');
\set VERBOSITY default
SELECT stacksaga.resume_saga(:'good', 'Ann Lee called again') AS resumed;
SELECT status FROM stacksaga.sagas WHERE saga_id = :'inner';
DO $$
DECLARE detail text; hint text;
BEGIN
    PERFORM stacksaga.redact_saga((SELECT c.saga_id FROM stacksaga.sagas c JOIN stacksaga.sagas p ON p.saga_id = c.parent_id
                                    WHERE p.saga = 'redact' AND p.key = 'good'), 'ticket 7');
EXCEPTION WHEN SQLSTATE 'SG409' THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE '% %', regexp_replace(detail, '[0-9a-f]{8}-[-0-9a-f]{27}', 'ID'), hint;
END $$;
SELECT stacksaga.signal_saga(:'good', 'answer', '{"by": "Ann Lee"}', 'mail 1'),
       stacksaga.signal_saga(:'bad', 'answer', '{"by": "Ann Lee"}', 'mail 2');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT key, status FROM stacksaga.sagas WHERE saga = 'redact' AND key IN ('good', 'bad') ORDER BY key;

-- Who may, and what is refused.
CREATE ROLE redact_operator; CREATE ROLE redact_support; CREATE ROLE redact_service; CREATE ROLE redact_monitor;
SELECT stacksaga.grant_usage('redact_' || kind, kind) FROM unnest('{operator,support,service,monitor}'::text[]) AS kind;
SELECT kind, has_function_privilege('redact_' || kind, 'stacksaga.redact_saga(uuid, text)', 'EXECUTE') AS may
  FROM unnest('{operator,support,service,monitor}'::text[]) AS kind;
SELECT stacksaga.redact_saga('00000000-0000-0000-0000-000000000000', 'ticket 7');
SELECT stacksaga.redact_saga(:'good', '');
SELECT stacksaga.redact_saga(:'good', NULL);

-- Where the person's name is, in every table and column of the extension.
CREATE FUNCTION redact.found(what text) RETURNS TABLE (place text, rows bigint) LANGUAGE plpgsql AS $$
DECLARE t regclass; n bigint;
BEGIN
    FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'stacksaga'::regnamespace AND relkind = 'r' ORDER BY relname LOOP
        EXECUTE format('SELECT count(*) FROM %s AS t WHERE t::text LIKE %L', t, '%' || what || '%') INTO n;
        IF n > 0 THEN
            place := t::text; rows := n;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
SELECT * FROM redact.found('Ann Lee');
SELECT count(*) FROM stacksaga.find_sagas(attributes => '{"customer": "Ann Lee"}');
SET ROLE redact_support;
SET stacksaga.on_behalf_of = 'the page of Bob';
SELECT stacksaga.redact_saga(:'good', 'ticket 7'), stacksaga.redact_saga(:'bad', 'ticket 7');
RESET stacksaga.on_behalf_of;
RESET ROLE;
-- Each saga on its own: the children are found by parent_id.
SELECT * FROM redact.found('Ann Lee');
SELECT count(stacksaga.redact_saga(saga_id, 'ticket 7')) AS children
  FROM stacksaga.sagas WHERE parent_id IN (:'good', :'bad');
SELECT * FROM redact.found('Ann Lee');

-- By its attributes it is found no more: a hash of them would tell who guesses.
SELECT count(*) FROM stacksaga.find_sagas(attributes => '{"customer": "Ann Lee"}');
SELECT count(*) FROM stacksaga.saga_attribute WHERE saga_id = :'good';

-- As it is shown.
SELECT key, status, input, output, last_error, finished_at IS NOT NULL AS finished
  FROM stacksaga.sagas WHERE saga = 'redact' AND key IN ('good', 'bad') ORDER BY key;
SELECT r.status, r.output, r.error, r.failed_step FROM stacksaga.saga_result(:'good') AS r
 UNION ALL SELECT r.status, r.output, r.error, r.failed_step FROM stacksaga.saga_result(:'bad') AS r;
SELECT substr(line, 26) AS line FROM stacksaga.saga_timeline(:'bad') AS line;
SELECT role_name, on_behalf_of, action, reason FROM stacksaga.operator_actions
 WHERE object = 'saga ' || :'good' ORDER BY at;

-- The identity stays: the key finds the saga, and other input is refused.
SELECT saga_id = :'good' AS same, created FROM stacksaga.start_saga('redact', '{"name": "Ann Lee"}', 'good');
\set VERBOSITY sqlstate
SELECT * FROM stacksaga.start_saga('redact', '{"name": "Bob"}', 'good');
\set VERBOSITY default
-- The failed one can start again, with a name of its own, which is not erased.
SELECT saga_id <> :'bad' AS other, created FROM stacksaga.start_saga('redact', '{"name": "Ann Lee", "refuse": true}', 'bad',
    on_conflict => 'restart_if_failed');
SELECT count(*) FROM stacksaga.sagas WHERE input ->> 'name' = 'Ann Lee';

-- Again: nothing changes, and nothing is recorded.
SELECT stacksaga.redact_saga(:'good', 'ticket 8');
SELECT count(*) FROM stacksaga.operator_actions WHERE action = 'redact' AND object = 'saga ' || :'good';
-- Nobody else changes what a saga was started with, or with what it was redacted.
\set VERBOSITY sqlstate
UPDATE stacksaga.saga SET input = '{"name": "Bob"}' WHERE saga_id = :'good';
UPDATE stacksaga.saga SET input = '{"redacted": true}' WHERE key = 'bad' AND run = 1 AND input ->> 'name' = 'Ann Lee';
\set VERBOSITY default

SELECT stacksaga.cancel_saga(saga_id, 'the test ends') AS cancelled FROM stacksaga.sagas
 WHERE saga = 'redact' AND key = 'bad' AND status = 'pending';
-- Nor has ANALYZE kept a sample of what was there.
SELECT saga_id AS sampled FROM stacksaga.start_saga('redact', '{"name": "Bo Sample", "refuse": true}', 'sampled',
    headers => '{"user": "Bo Sample"}', attributes => '{"customer": "Bo Sample"}', group_key => 'Bo Sample') \gset
SELECT count(*) > 0 AS started FROM stacksaga.start_sagas('redact',
    (SELECT array_agg('{"name": "Bo Sample"}'::jsonb) FROM generate_series(1, 20)), group_keys => NULL);
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT count(stacksaga.signal_saga(saga_id, 'answer', '{"by": "Bo Sample"}')) AS signalled
  FROM stacksaga.sagas WHERE saga = 'redact' AND status = 'running';
SELECT stacksaga.run_pending() > 0 AS ran;
ANALYZE stacksaga.saga, stacksaga.effect, stacksaga.failure, stacksaga.saga_signal, stacksaga.saga_action, stacksaga.saga_attribute;
SELECT tablename, attname FROM pg_stats WHERE schemaname = 'stacksaga'
   AND (most_common_vals::text LIKE '%Bo Sample%' OR histogram_bounds::text LIKE '%Bo Sample%' OR most_common_elems::text LIKE '%Bo Sample%');

DROP OWNED BY redact_operator, redact_support, redact_service, redact_monitor;
DROP ROLE redact_operator, redact_support, redact_service, redact_monitor;
DROP SCHEMA redact CASCADE;
