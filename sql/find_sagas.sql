-- find_sagas: filters, order, pages, what a saga waits for, what is refused; and the view definitions.

TRUNCATE stacksaga.saga, stacksaga.saga_attribute, stacksaga.work, stacksaga.effect, stacksaga.failure;
CREATE SCHEMA find;
CREATE FUNCTION find.outcome(arguments text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE format('SELECT count(*) FROM stacksaga.find_sagas(%s)', arguments) INTO message;
    RETURN NEXT message;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || message;
    RETURN NEXT '  DETAIL: ' || detail;
    RETURN NEXT '  HINT: ' || hint;
END
$$;
-- Instants and ids masked.
CREATE FUNCTION find.mask(line text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(regexp_replace(line, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}', '(time)', 'g'), '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)', 'g')
$$;
CREATE FUNCTION find.act(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF ($1).input = '"later"' THEN RAISE SQLSTATE 'SR503'; END IF;
    IF ($1).direction = 'compensate' THEN RAISE 'no'; END IF;
    RETURN '1';
END
$$;
SELECT stacksaga.define_saga('find order', ARRAY[
    stacksaga.queue_step('charge', queue => 'payments', compensable => true, retry => stacksaga.retry_policy(initial_interval => '1 h', max_interval => '1 h', max_attempts => 5))]);
SELECT stacksaga.define_saga('find refund', ARRAY[stacksaga.queue_step('pay', queue => 'refunds', compensable => true)]);
SELECT count(*) FROM stacksaga.start_sagas('find order', array_fill('1'::jsonb, ARRAY[6]), '{a-1,a-2,b-1,a-10,NULL,á-1}', 2, '{g,NULL,NULL,NULL,NULL,NULL}',
    ARRAY['{"tenant": "x", "n": 1}', '{"tenant": "x", "n": 2, "vip": true}', '{"tenant": "y"}', NULL, '{"tenant": "x"}', '{}']::jsonb[]);
SELECT created FROM stacksaga.start_saga('find refund', key => 'a-1', attributes => '{"tenant": "x"}');

-- All of it of one row.
SELECT saga, version, key, status, attributes, priority, group_key, created_at = updated_at AS untouched, finished_at, find.mask(waits_for) AS waits_for
  FROM stacksaga.find_sagas(saga => 'find order', key_prefix => 'a-1') WHERE key = 'a-1';
-- Filters, alone and together.
CREATE FUNCTION find.keys(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE keys text;
BEGIN
    EXECUTE format($q$ SELECT string_agg(saga || ' ' || coalesce(key, '-'), ', ' ORDER BY saga, key COLLATE "C") FROM stacksaga.find_sagas(%s) $q$, arguments) INTO keys;
    RETURN keys;
END
$$;
SELECT arguments, find.keys(arguments) FROM unnest(ARRAY[
    $$ $$, $$ 'find order' $$, $$ 'find refund' $$, $$ 'nobody' $$, $$ status => 'pending' $$, $$ status => 'running' $$, $$ 'find refund', 'pending' $$,
    $$ key_prefix => 'a' $$, $$ key_prefix => 'a-1' $$, $$ key_prefix => 'á' $$, $$ key_prefix => '%' $$, $$ 'find order', key_prefix => 'a-1' $$,
    $$ attributes => '{"tenant": "x"}' $$, $$ attributes => '{"tenant": "X"}' $$, $$ attributes => '{"tenant": "x", "n": 2.00}' $$,
    $$ attributes => '{"n": "1"}' $$, $$ attributes => '{"vip": true}' $$, $$ attributes => '{"vip": "true"}' $$, $$ attributes => '{}' $$,
    $$ 'find refund', attributes => '{"tenant": "x"}' $$, $$ 'find order', 'pending', attributes => '{"tenant": "x"}' $$,
    $$ key_prefix => 'a', attributes => '{"tenant": "x"}' $$, $$ created_before => 'infinity' $$, $$ created_before => '2000-01-01' $$,
    $$ 'find order', 'pending', 'a-', '{"tenant": "x"}', 'infinity' $$, $$ status => 'completed', attributes => '{"tenant": "x"}' $$
    ]) AS arguments;

-- Pages: six sagas of one instant are neither skipped nor repeated.
WITH RECURSIVE page AS (
    SELECT 1 AS n, f.* FROM stacksaga.find_sagas('find order', max_sagas => 1) AS f
    UNION ALL
    SELECT n + 1, f.* FROM page, stacksaga.find_sagas('find order', created_before => page.created_at, before_saga_id => page.saga_id, max_sagas => 1) AS f)
SELECT count(*), count(DISTINCT saga_id), count(DISTINCT created_at) AS instants,
       array_agg(saga_id ORDER BY n) = array_agg(saga_id ORDER BY created_at DESC, saga_id DESC) AS ordered FROM page;
-- Without an id: what was created before the instant.
SELECT count(*) FROM stacksaga.find_sagas('find refund', created_before => (SELECT created_at FROM stacksaga.find_sagas('find refund')));

-- The status that attributes are listed with follows the saga's.
SELECT saga_id AS id, lease FROM stacksaga.claim_steps('refunds', 'till') \gset
SELECT find.keys($$ status => 'running', attributes => '{"tenant": "x"}' $$), find.keys($$ 'find refund', 'pending', attributes => '{"tenant": "x"}' $$);
SELECT stacksaga.complete_step(:'id', 'pay', :lease);
SELECT find.keys($$ status => 'completed', attributes => '{"tenant": "x"}' $$), find.keys($$ status => 'running', attributes => '{"tenant": "x"}' $$);
SELECT count(*) FROM stacksaga.saga_attribute;
-- Retention removes what they are listed with.
SET stacksaga.clock_offset = '60 days';
SELECT stacksaga.expire_sagas();
RESET stacksaga.clock_offset;
SELECT count(*) FROM stacksaga.saga_attribute a WHERE NOT EXISTS (SELECT FROM stacksaga.saga s WHERE s.saga_id = a.saga_id);
SELECT find.keys($$ attributes => '{"tenant": "x"}' $$);

-- What a saga waits for, the same as in its timeline.
CREATE FUNCTION find.waits(id uuid) RETURNS TABLE (waits_for text, in_timeline boolean) LANGUAGE sql AS $$
    SELECT find.mask(f.waits_for), coalesce((SELECT line = f.waits_for FROM stacksaga.saga_timeline(id) WITH ORDINALITY AS t(line, n) ORDER BY n DESC LIMIT 1), false)
      FROM stacksaga.find_sagas(max_sagas => 1000) AS f WHERE f.saga_id = id
$$;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_attribute;
SELECT saga_id AS id FROM stacksaga.start_saga('find order') \gset
SELECT * FROM find.waits(:'id');
SELECT saga_id, lease FROM stacksaga.claim_steps('payments', 'till 7') \gset
SELECT * FROM find.waits(:'id');
SELECT stacksaga.fail_step(:'id', 'charge', :lease, 'busy', 'retryable');
SELECT * FROM find.waits(:'id');
SELECT stacksaga.suspend_saga(:'id', 'a look');
SELECT * FROM find.waits(:'id');
SELECT stacksaga.resume_saga(:'id', 'seen'), stacksaga.cancel_saga(:'id', 'enough');
SELECT * FROM find.waits(:'id');
SELECT saga_id AS id FROM stacksaga.start_saga('find order', run_at => stacksaga.clock_now() + interval '1 day') \gset
SELECT * FROM find.waits(:'id');
SELECT stacksaga.define_saga('waits ' || kind, ARRAY[step]) FROM (VALUES
    ('sql', stacksaga.sql_step('run', 'find.act(stacksaga.step_call)')),
    ('signal', stacksaga.signal_step('ask', 'approved')),
    ('signal in time', stacksaga.signal_step('ask', 'approved', timeout => '1 hour')),
    ('timer', stacksaga.timer_step('pause', '1 hour')),
    ('message', stacksaga.message_step('tell', 'orders')),
    ('child', stacksaga.child_step('find order', 'find order'))) AS v(kind, step);
CREATE TABLE find.waiting AS
    SELECT n, kind, (SELECT saga_id FROM stacksaga.start_saga('waits ' || kind, '"later"'))
      FROM unnest('{sql,signal,signal in time,timer,message,child}'::text[]) WITH ORDINALITY AS k(kind, n);
SELECT w.kind, f.* FROM find.waiting w, find.waits(w.saga_id) AS f ORDER BY n;
SELECT count(*) >= 0 AS ran FROM (SELECT stacksaga.run_pending()) AS r;
SELECT w.kind, f.* FROM find.waiting w, find.waits(w.saga_id) AS f ORDER BY n;
SELECT stacksaga.define_saga('waits park', ARRAY[
    stacksaga.sql_step('book', 'find.act(stacksaga.step_call)', 'find.act(stacksaga.step_call)'), stacksaga.signal_step('ask', 'approved')],
    compensation_retry => stacksaga.retry_policy(max_attempts => 1));
SELECT saga_id AS id FROM stacksaga.start_saga('waits park') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT stacksaga.cancel_saga(:'id', 'no'), stacksaga.run_pending() > 0 AS ran;
SELECT * FROM find.waits(:'id');
SELECT stacksaga.resolve_step(:'id', 'book', 'done');
SELECT * FROM find.waits(:'id');

-- Versions, and how many sagas of each live.
SELECT saga, version, is_current, steps, definer = current_user AS mine, defined_at <= now() + interval '1 min' AS defined, live_sagas
  FROM stacksaga.definitions WHERE saga IN ('find order', 'waits park', 'find refund') ORDER BY saga, version;
SELECT stacksaga.define_saga('find order', ARRAY[stacksaga.queue_step('charge', queue => 'payments', compensable => true), stacksaga.queue_step('ship', queue => 'parcels', compensable => true)]);
SELECT created FROM stacksaga.start_saga('find order');
SELECT saga, version, is_current, steps, live_sagas FROM stacksaga.definitions WHERE saga = 'find order' ORDER BY version;
-- The count stops at 1,000.
BEGIN;
SELECT count(*) FROM stacksaga.start_sagas('find refund', array_fill('1'::jsonb, ARRAY[999]));
SELECT live_sagas FROM stacksaga.definitions WHERE saga = 'find refund';
SELECT count(*) FROM stacksaga.start_sagas('find refund', array_fill('1'::jsonb, ARRAY[10]));
SELECT live_sagas FROM stacksaga.definitions WHERE saga = 'find refund';
ROLLBACK;

-- Two attributes that many sagas have, and none has both: 10,000 are looked at, and the error names a filter.
BEGIN;
SELECT count(*) FROM generate_series(1, 2) AS n, LATERAL stacksaga.start_sagas('find refund', array_fill('1'::jsonb, ARRAY[6000]),
    attributes => array_fill(jsonb_build_object(CASE n WHEN 1 THEN 'left' ELSE 'right' END, true), ARRAY[6000]));
SELECT line FROM unnest(ARRAY[
    $$ attributes => '{"left": true, "right": true}' $$, $$ status => 'pending', attributes => '{"left": true, "right": true}' $$,
    $$ 'find refund', 'pending', attributes => '{"left": true, "right": true}' $$, $$ 'find refund', 'pending', created_before => 'infinity', attributes => '{"left": true, "right": true}' $$,
    $$ 'find refund', 'pending', 'k', '{"left": true, "right": true}', 'infinity' $$,
    $$ 'find refund', 'completed', attributes => '{"left": true, "right": true}' $$, $$ attributes => '{"left": true, "none": true}' $$
    ]) AS arguments, find.outcome(arguments) AS line;
ROLLBACK;

-- Of many sagas with a prefix the newest are looked at first, and older ones when those are gone: more than are kept at once,
-- all of them with a few entries in the index, between sagas with other keys. (The list alone would take longer.)
BEGIN;
SELECT count(*) FROM generate_series(1, 200) AS n, LATERAL stacksaga.start_saga('find order', key => 'gone-' || n);
SELECT count(*) FROM stacksaga.start_sagas('find order', array_fill('{}'::jsonb, '{3000}'));
UPDATE stacksaga.saga SET status = 'running' WHERE key LIKE 'gone-%' AND substr(key, 6)::int % 20 <> 0;
-- So many versions of each that the index keeps them in lists, which take a page or two.
DO $$
BEGIN
    FOR n IN 1..12 LOOP
        UPDATE stacksaga.saga SET status = 'suspended' WHERE key LIKE 'gone-%' AND status = 'running';
        UPDATE stacksaga.saga SET status = 'running' WHERE key LIKE 'gone-%' AND status = 'suspended';
    END LOOP;
END
$$;
SELECT find.keys($$ key_prefix => 'gone-', max_sagas => 3 $$);
DELETE FROM stacksaga.saga WHERE key LIKE 'gone-%' AND substr(key, 6)::int > 60;
SELECT find.keys($$ key_prefix => 'gone-', max_sagas => 3 $$);
SELECT find.keys($$ key_prefix => 'gone-', max_sagas => 1 $$);
SELECT find.keys($$ key_prefix => 'gone-', status => 'running', max_sagas => 2 $$);
SELECT find.keys($$ 'find order', key_prefix => 'gone-', status => 'pending', max_sagas => 2 $$);
SELECT cardinality(string_to_array(find.keys($$ key_prefix => 'gone-', max_sagas => 100 $$), ', ')) AS all_that_are_left;
ROLLBACK;

-- Refused.
SELECT line FROM unnest(ARRAY[
    $$ '' $$, $$ repeat('x', 256) $$, $$ status => 'done' $$, $$ status => '' $$, $$ key_prefix => '' $$, $$ key_prefix => repeat('k', 256) $$,
    $$ attributes => '[]' $$, $$ attributes => '{"a": null}' $$, $$ attributes => '{"a": {}}' $$,
    $$ before_saga_id => '00000000-0000-0000-0000-000000000000' $$, $$ max_sagas => 0 $$, $$ max_sagas => 1001 $$, $$ max_sagas => NULL $$
    ]) AS arguments, find.outcome(arguments) AS line;

-- A table that somebody has changed is read all the same.
CREATE FUNCTION find.all() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(coalesce(find.keys(arguments), 'none'), '; ') FROM unnest(ARRAY[
        $q$ 'find order' $q$, $q$ key_prefix => 'a-1' $q$, $q$ attributes => '{"tenant": "x"}' $q$, $q$ 'find order', 'pending', created_before => 'infinity' $q$]) AS arguments
$$;
SELECT count(*) FROM stacksaga.start_sagas('find order', array_fill('1'::jsonb, ARRAY[3]), '{a-1,a-2,a-10}', attributes => ARRAY['{"tenant": "x"}', NULL, NULL]::jsonb[]);
SELECT find.all() AS before \gset
BEGIN;
SET LOCAL stacksaga.check_plans = off;
CREATE TABLE find.heir () INHERITS (stacksaga.saga);
SELECT find.all() = :'before' AS same, :'before' AS found;
SELECT version, live_sagas FROM stacksaga.definitions WHERE saga = 'find order' ORDER BY version;
ROLLBACK;

SET client_min_messages = warning;
DROP SCHEMA find CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_attribute, stacksaga.saga_action, stacksaga.parked_saga;
