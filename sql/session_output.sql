-- What is stored or compared is the same whatever a session wants printed: each call is made by a session with the
-- defaults and by one with other settings of output, and both leave the same.
SET client_min_messages = warning;
CREATE SCHEMA session_output;
SET search_path = session_output, stacksaga;
CREATE FUNCTION "Handle"(call step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION "Take"(m message) RETURNS void LANGUAGE sql AS $$ SELECT $$;
CREATE TABLE sessions (session text, setting text, value text);
INSERT INTO sessions VALUES
    ('plain', 'extra_float_digits', '1'), ('plain', 'datestyle', 'ISO, MDY'), ('plain', 'intervalstyle', 'postgres_verbose'),
    ('plain', 'bytea_output', 'hex'), ('plain', 'timezone', 'UTC'), ('plain', 'quote_all_identifiers', 'off'),
    ('plain', 'standard_conforming_strings', 'on'), ('plain', 'xmlbinary', 'base64'), ('plain', 'lc_monetary', 'C'),
    ('odd', 'extra_float_digits', '-15'), ('odd', 'datestyle', 'German'), ('odd', 'intervalstyle', 'sql_standard'),
    ('odd', 'bytea_output', 'escape'), ('odd', 'timezone', 'Asia/Kathmandu'), ('odd', 'quote_all_identifiers', 'on'),
    ('odd', 'standard_conforming_strings', 'off'), ('odd', 'xmlbinary', 'hex'), ('odd', 'lc_monetary', 'POSIX'),
    ('iso', 'extra_float_digits', '3'), ('iso', 'datestyle', 'SQL, DMY'), ('iso', 'intervalstyle', 'iso_8601'),
    ('iso', 'bytea_output', 'escape'), ('iso', 'timezone', 'America/St_Johns'), ('iso', 'quote_all_identifiers', 'on'),
    ('iso', 'standard_conforming_strings', 'off'), ('iso', 'xmlbinary', 'hex'), ('iso', 'lc_monetary', 'POSIX');
CREATE FUNCTION be(wanted text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(set_config(setting, value, false)) FROM sessions WHERE session = wanted
$$;

-- Every call that stores text of its own making, and what it has left.
CREATE TABLE stored (session text, what text, content text);
CREATE FUNCTION define(name text) RETURNS text LANGUAGE sql AS $f$
    SELECT define_saga('output ' || name, ARRAY[
               sql_step('a', 'session_output."Handle"(stacksaga.step_call)', timeout => '90 minutes 1.5 seconds',
                        retry => retry_policy(3, '1.25 seconds', 1.1, '1 day 2 hours', 0.123456789012345)),
               timer_step('b', '1 year 2 months 3 days 04:05:06.789')],
           deadline => '36 hours', retry => retry_policy(multiplier => 1.7, jitter => 0.3),
           compensation_retry => retry_policy(multiplier => 1.0000000000001))::text
        || ' ' || define_saga('output defaults ' || name, ARRAY[queue_step('a', 'q', compensable => false)])
        || (SELECT count(create_subscription('output ' || name, 'output', 'session_output."Take"(stacksaga.message)',
                                             retry => retry_policy(7, '90 minutes', 1.1, '1 day 2 hours', 0.123456789012345)))
              FROM generate_series(1, 2))::text
$f$;
CREATE FUNCTION store(name text) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM define(name);
    PERFORM define_saga('output command', ARRAY[message_step('a', 'output command', timeout => '1 hour 0.5 seconds')]);
    PERFORM create_schedule('output ' || name, 'output ' || name, '30 2 * * *', '{"n": 1.10}', 'Europe/Berlin');
    PERFORM create_ring('output ' || name, 'ring', '90 seconds', '30 seconds');
    PERFORM alter_ring('output ' || name, 'ring', 'dead_after', '1 day 2 hours 3.5 seconds');
    PERFORM set_queue('output ' || name, rate => 1, rate_interval => '26 hours');
    INSERT INTO stored
        SELECT name, 'definitions', string_agg(replace(content, name, ''), ' ' ORDER BY saga) FROM saga_definition
         WHERE saga IN ('output ' || name, 'output defaults ' || name)
        UNION ALL
        SELECT name, 'subscription', replace(content, name, '') FROM subscription WHERE subscription = 'output ' || name
        UNION ALL
        SELECT name, 'schedule', concat_ws(' ', cron, timezone, input) FROM schedule WHERE schedule = 'output ' || name
        UNION ALL
        SELECT name, 'ring', string_agg(concat_ws(' ', setting, value), ', ' ORDER BY setting)
          FROM ring_setting JOIN ring USING (ring_id) WHERE region = 'output ' || name
        UNION ALL
        SELECT name, 'actions', string_agg(concat_ws(' ', action, replace(object, name, ''), detail), ', ' ORDER BY action, object, detail)
          FROM operator_action WHERE object LIKE '%output ' || name || '%'
        UNION ALL
        SELECT name, 'fingerprint', encode(fingerprint('{"a": 1.10, "b": [1e3, "x"]}'), 'hex');
END $f$;
SELECT be('plain');
SELECT store('plain');
SELECT define('plain');
SELECT be('odd');
SELECT store('odd');
SELECT define('plain');
SELECT create_schedule('output plain', 'output plain', '30 2 * * *', '{"n": 1.1}', 'europe/berlin');
SELECT be('iso');
SELECT store('iso');
SELECT define('plain'), define('odd');
SELECT be('plain');
SELECT what, count(DISTINCT content) AS contents FROM stored GROUP BY what ORDER BY what;
SELECT define('odd'), define('iso');

-- What is found again: a saga by its key, an idempotency key by its request, a version, a group of errors.
CREATE FUNCTION find() RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ',
        (SELECT created FROM start_saga('output plain', '{"n": 1.10, "at": "2026-01-01 00:00:00+01"}', key => 'k',
                                        run_at => '2126-01-01 00:00:00+00', attributes => '{"n": 1.50}')),
        (SELECT outcome FROM idempotency_begin('output', 'k', '{"n": 1.10}')),
        (SELECT count(*) FROM find_sagas(attributes => '{"n": 1.5}')))
$$;
SELECT find();
SELECT idempotency_finish('output', 'k', lease, '{"n": 1.10}') FROM idempotency_key WHERE scope = 'output';
SELECT be('odd');
SELECT find();
SELECT idempotency_finish('output', 'k', lease, '{"n": 1.1}') FROM idempotency_key WHERE scope = 'output';
SELECT be('iso');
SELECT find();

-- A command has its deadline in UTC.
SELECT count(*) FROM start_saga('output command');
SELECT run_pending() > 0 AS ran;
SELECT be('plain');
SELECT regexp_replace(payload ->> 'deadline', '[0-9.]+', 'n', 'g') AS deadline,
       extract(epoch FROM date_trunc('minutes', (payload ->> 'deadline')::timestamptz - published_at))::integer AS seconds
  FROM outbox_message WHERE topic = 'output command';

RESET ALL;
SET client_min_messages = warning;
SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules WHERE schedule LIKE 'output %';
DELETE FROM stacksaga.schedule_action WHERE schedule LIKE 'output %';
SELECT stacksaga.drop_subscription(subscription, discard => true) FROM stacksaga.subscription WHERE subscription LIKE 'output %';
SELECT stacksaga.drop_queue(queue) FROM stacksaga.queue WHERE queue LIKE 'output %';
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_attribute, stacksaga.outbox_message;
DELETE FROM stacksaga.idempotency_key WHERE scope = 'output';
DROP SCHEMA session_output CASCADE;
