-- A clock that was a year ahead for a minute: what it leaves behind is found, and due times and leases are brought back.

\set SHOW_CONTEXT never
-- In a database of its own: what a clock that was ahead has written stays.
\set home :DBNAME
SET client_min_messages = warning;
DROP DATABASE IF EXISTS reset_instants;
CREATE DATABASE reset_instants;
\c reset_instants
SET client_min_messages = warning;
SET TimeZone = 'UTC';
CREATE EXTENSION stacksaga;
CREATE SCHEMA far;
CREATE FUNCTION far.ok(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION far.late(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF stacksaga.clock_now() > now() + interval '1 hour' THEN
        RAISE EXCEPTION 'not now' USING ERRCODE = 'SR503';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION far.hear(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF stacksaga.clock_now() > now() + interval '1 hour' THEN
        RAISE EXCEPTION 'not now' USING ERRCODE = 'SR503';
    END IF;
END $$;
SELECT stacksaga.define_saga('far sql', ARRAY[stacksaga.sql_step('s', 'far.ok(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('far retry', ARRAY[stacksaga.sql_step('s', 'far.late(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('far queue', ARRAY[stacksaga.queue_step('s', 'far', compensable => false)], deadline => '1 day');
SELECT stacksaga.define_saga('far timer', ARRAY[stacksaga.timer_step('s', '2 hours')]);
SELECT stacksaga.define_saga('far signal', ARRAY[stacksaga.signal_step('s', 'go', timeout => '1 hour')]);
SELECT stacksaga.create_schedule('far hourly', 'far sql', '0 * * * *');
CREATE FUNCTION far.found() RETURNS TABLE (kind text, what text, becomes text, n bigint) LANGUAGE sql AS $$
    SELECT kind, regexp_replace(object, '[0-9a-f]{8}-[-0-9a-f]{27}|batch \d+', '(id)', 'g'),
           CASE WHEN becomes IS NULL THEN NULL
                WHEN abs(extract(epoch FROM becomes - stacksaga.clock_now())) < 60 THEN 'now'
                WHEN becomes - stacksaga.clock_now() BETWEEN '1 hour 58 minutes' AND '2 hours' THEN 'after its delay'
                WHEN becomes - stacksaga.clock_now() BETWEEN '0' AND '1 hour' THEN 'its next run'
                ELSE becomes::text END, count(*)
      FROM stacksaga.reset_instants('the clock') WHERE object LIKE '%far%' OR object ~ 'key|row' OR object ~ ANY (ARRAY(
           SELECT saga_id::text FROM stacksaga.sagas WHERE saga LIKE 'far%'))
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
$$;

-- What was there before, and what a caller asked for, is explained.
SELECT count(*) FROM stacksaga.start_saga('far timer') AS a, stacksaga.start_saga('far queue', run_at => now() + interval '2 years') AS b,
     stacksaga.start_saga('far signal') AS c, stacksaga.start_saga('far queue') AS d;
SELECT count(*) FROM stacksaga.claim_steps('far', 'before', 1, '1 second');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT * FROM far.found();
SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'instants';

-- A year ahead.
SET stacksaga.clock_offset = '365 days';
SELECT stacksaga.create_subscription('far handled', 'far', 'far.hear(stacksaga.message)'), stacksaga.create_subscription('far fetched', 'far');
SELECT count(*) FROM stacksaga.start_saga('far sql') AS a, stacksaga.start_saga('far retry') AS b,
     stacksaga.start_saga('far queue', priority => 1) AS c, stacksaga.start_saga('far queue') AS d,
     stacksaga.start_saga('far timer') AS e, stacksaga.start_saga('far signal') AS f, stacksaga.start_saga('far queue', group_key => 'g') AS g;
SELECT stacksaga.publish('far', '1') IS NOT NULL AS published;
UPDATE stacksaga.schedule SET next_run = stacksaga.clock_now() + interval '1 hour', due_at = stacksaga.clock_now() + interval '1 hour' WHERE schedule = 'far hourly';
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT stacksaga.set_queue('far', rate => 1, rate_interval => '1 hour');
SELECT count(*) FROM stacksaga.claim_steps('far', 'ahead', 1);
SELECT outcome FROM stacksaga.idempotency_begin('far', 'key', '{}');
INSERT INTO stacksaga.kept_row VALUES ('saga', 'far', 'it is referred to', stacksaga.clock_now(), stacksaga.clock_now() + interval '1 hour');
SELECT stacksaga.accept_message('far', 'message');
SELECT count(*) FROM stacksaga.receive_messages('far fetched', 'ahead');
SELECT stacksaga.register_node('far node', 'default', 'default') > 0 AS registered;
RESET stacksaga.clock_offset;

-- A rate that was used up then would let nothing through for a year.
SELECT count(*) FROM stacksaga.claim_steps('far', 'now', 9);
SELECT * FROM far.found();
SELECT regexp_replace(regexp_replace(detail, '^\d+ ', '(n) '), 'until .*:', 'until ...:') AS detail, fix
  FROM stacksaga.doctor() WHERE check_name = 'instants' ORDER BY 1;
-- It was a dry run; this is none.
SELECT count(*) > 5 AS more FROM far.found();
SELECT count(*) > 5 AS reset FROM stacksaga.reset_instants('the clock was a year ahead', dry_run => false);
SELECT * FROM far.found();
SELECT action, object, reason FROM stacksaga.operator_actions WHERE object = 'instants';
-- What was due then is done now; the timers wait their delay.
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga, status, count(*) FROM stacksaga.sagas WHERE saga LIKE 'far%' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT count(*) FROM stacksaga.claim_steps('far', 'after', 10);
SELECT max(a) <= stacksaga.clock_now() AS counts_as_now FROM stacksaga.queue_claims, unnest(claimed_at) AS a;
SELECT stacksaga.drop_queue('far');
SELECT count(*) FROM stacksaga.claim_steps('far', 'after', 10);
SELECT outcome, attempt FROM stacksaga.idempotency_begin('far', 'key', '{}');
SELECT stacksaga.clock_now() >= retry_at AS is_tried FROM stacksaga.kept_row;
SELECT count(*) FROM stacksaga.receive_messages('far fetched', 'after');

SELECT stacksaga.reset_instants(NULL);
SELECT stacksaga.reset_instants('');
CREATE ROLE far_support;
SELECT stacksaga.grant_usage('far_support', 'support');
SET ROLE far_support;
SELECT stacksaga.reset_instants('no');
RESET ROLE;

DROP OWNED BY far_support;
\c :home
SET client_min_messages = warning;
DROP DATABASE reset_instants;
DROP ROLE far_support;
