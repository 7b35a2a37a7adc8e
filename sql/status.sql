-- status() and locate(): the ring as it is, and as the next window will have it.

\set SHOW_CONTEXT never
BEGIN;
SELECT stacksaga.create_ring('default', 'status', slots => 64) AS ring \gset
SET LOCAL stacksaga.cluster = 'status';
SELECT stacksaga.register_node('status a', 'default', 'status') AS a,
       stacksaga.register_node('status b', 'default', 'status') AS b \gset
-- No slot has an owner.
SELECT token = stacksaga.token('order-1') AS is_token, slot = stacksaga.slot(token, 64) AS is_slot,
       node, next_node, valid_until > stacksaga.clock_now() AS ahead,
       valid_until - stacksaga.clock_now() <= '60 s' AS within_a_window,
       extract(second FROM valid_until) AS second
  FROM stacksaga.locate('order-1');
-- Owned, and owned by another one from the next window on.
UPDATE stacksaga.slot SET owner = CASE WHEN slot < 40 THEN :a ELSE :b END,
       next_owner = CASE WHEN slot BETWEEN 32 AND 39 THEN :b END,
       next_from = CASE WHEN slot BETWEEN 32 AND 39 THEN now() + interval '20 s' END
 WHERE ring_id = :ring;
SELECT l.slot, l.node, l.next_node FROM generate_series(1, 400) n, stacksaga.locate(n::text) l
 WHERE l.slot IN (0, 31, 32, 39, 40, 63) GROUP BY 1, 2, 3 ORDER BY 1;
-- The same token as everywhere, whatever the key.
SELECT key, token FROM (VALUES (''), ('Größe'), (repeat('x', 10000))) k(key), stacksaga.locate(key)
 WHERE token <> stacksaga.token(key) OR slot <> stacksaga.slot(token, 64);
-- The page: ranges tile the ring, as text, with neighbours merged.
CREATE TEMPORARY VIEW status_ring AS
    SELECT r FROM jsonb_array_elements(stacksaga.status() -> 'rings') r WHERE r ->> 'cluster' = 'status';
SELECT r -> 'region' AS region, r -> 'slots' AS slots, r -> 'coverage' AS coverage,
       r -> 'active_nodes' AS active, r -> 'total_nodes' AS total, r -> 'queues' AS queues
  FROM status_ring;
SELECT x ->> 'range_start' AS range_start, x ->> 'range_end' AS range_end, x -> 'slot' AS slot,
       x -> 'slots' AS slots, x ->> 'node' AS node, x ->> 'next_node' AS next_node
  FROM status_ring, jsonb_array_elements(r -> 'ranges') x;
SELECT n -> 'node' AS node, n -> 'kind' AS kind, n -> 'state' AS state, n -> 'share' AS share,
       jsonb_typeof(n -> 'incarnation') AS incarnation
  FROM status_ring, jsonb_array_elements(r -> 'nodes') n;
-- What each has confirmed at its last checkpoint, and how long ago.
SELECT stacksaga.acknowledge_checkpoint('status a', :a, '{"done": 3}');
SELECT n -> 'node' AS node, n -> 'progress' AS progress,
       (n ->> 'checkpoint_age_seconds')::numeric BETWEEN 0 AND 60 AS just_now
  FROM status_ring, jsonb_array_elements(r -> 'nodes') n;
SELECT jsonb_object_agg(key, jsonb_typeof(value)) FROM jsonb_each(stacksaga.status());
SELECT DISTINCT k AS keys_of_a_ring FROM status_ring, jsonb_object_keys(r) k ORDER BY k;
-- No number in it is larger than JavaScript's.
SELECT count(*) FROM regexp_matches(stacksaga.status()::text, '[^"0-9.-]-?[0-9]{16,}', 'g');
-- Queues, parked sagas and problems.
SELECT stacksaga.define_saga('status', ARRAY[stacksaga.queue_step('q', 'status queue', effect => 'irreversible')]);
SELECT count(*) FROM stacksaga.start_saga('status', key => 'k1');
SET LOCAL stacksaga.clock_offset = '90 s';
SELECT q ->> 'queue' AS queue, floor((q ->> 'overdue_seconds')::numeric / 10) AS tens_of_seconds
  FROM status_ring, jsonb_array_elements(r -> 'queues') q;
SELECT p ->> 'check_name' AS check_name, p ->> 'severity' AS severity
  FROM jsonb_array_elements(stacksaga.status() -> 'problems') p
 WHERE p ->> 'check_name' = 'clock_offset';
SELECT stacksaga.fail_step(saga_id, step, lease, 'lost', 'unknown')
  FROM stacksaga.claim_steps('status queue', 'w');
SELECT jsonb_array_length(stacksaga.status() -> 'blocked_keys') AS blocked_keys;
SELECT p -> 'key' AS key, p -> 'step' AS step, p -> 'error' AS error
  FROM jsonb_array_elements(stacksaga.status() -> 'parked_sagas') p WHERE p ->> 'saga' = 'status';
-- Errors that differ by an id or a number are one; no more of them are read than asked for.
SELECT count(*) FROM generate_series(2, 8) AS n, LATERAL stacksaga.start_saga('status', key => 'k' || n);
SELECT count(stacksaga.fail_step(c.saga_id, c.step, c.lease,
           CASE s.key WHEN 'k8' THEN 'lost' ELSE format('account %s (%s) is lost', s.saga_id, s.key) END, 'unknown'))
  FROM stacksaga.claim_steps('status queue', 'w', 10) AS c JOIN stacksaga.sagas AS s USING (saga_id);
SELECT e - ARRAY['first', 'saga_ids', 'since'] AS error, jsonb_array_length(e -> 'saga_ids') AS saga_ids,
       jsonb_array_length(e -> 'first') AS first, e -> 'first' -> 0 ->> 'error' LIKE '%lost' AS is_whole
  FROM jsonb_array_elements(stacksaga.status() -> 'parked_errors') WITH ORDINALITY AS x(e, n)
 WHERE e ->> 'saga' = 'status' ORDER BY n;
SELECT sum((e -> 'sagas')::integer) AS sagas FROM jsonb_array_elements(stacksaga_internal.status_parked_errors(3)) AS e;
-- Sagas by status are those of the view; where they were not counted yet, no more are read than asked for.
SELECT x.status, x.sagas, v.sagas AS in_view
  FROM jsonb_to_recordset(stacksaga_internal.status_sagas_seen()) AS x(status text, sagas bigint)
  LEFT JOIN (SELECT status, count(*) AS sagas FROM stacksaga.sagas GROUP BY status) v USING (status)
 WHERE x.sagas <> coalesce(v.sagas, 0);
SELECT count(*) AS statuses, bool_and(sagas <= 1) AS capped, bool_or(more) FILTER (WHERE status = 'parked') AS more
  FROM jsonb_to_recordset(stacksaga_internal.status_sagas_seen(1)) AS x(status text, sagas bigint, more boolean);
SELECT stacksaga.create_subscription('status billing', 'status orders');
SELECT s AS subscription FROM jsonb_array_elements(stacksaga.status() -> 'subscriptions') s
 WHERE s ->> 'subscription' = 'status billing';
-- Why it is paused, and until when; a pause that has ended is not one.
SELECT stacksaga.pause_subscription('status billing', 'the bank is closed', stacksaga.clock_now() + interval '1 hour');
SELECT s ->> 'paused' AS paused, s ->> 'pause_reason' AS reason, s ->> 'paused_by' = current_user AS by_me,
       (s ->> 'paused_until')::timestamptz - (s ->> 'paused_since')::timestamptz > '59 minutes' AS lasts
  FROM jsonb_array_elements(stacksaga.status() -> 'subscriptions') s
 WHERE s ->> 'subscription' = 'status billing';
UPDATE stacksaga.subscription SET paused_until = stacksaga.clock_now() - interval '1 hour' WHERE subscription = 'status billing';
SELECT s ->> 'paused' AS paused, s ? 'pause_reason' AS has_reason
  FROM jsonb_array_elements(stacksaga.status() -> 'subscriptions') s
 WHERE s ->> 'subscription' = 'status billing';
ROLLBACK;
-- What is not there, and what is no key.
SELECT count(*) FROM stacksaga.locate(NULL);
\echo :SQLSTATE
SET stacksaga.cluster = 'no such ring';
SELECT count(*) FROM stacksaga.locate('a');
\echo :SQLSTATE
RESET stacksaga.cluster;
-- A ring whose slots were never assigned, as after a restore.
BEGIN;
DELETE FROM stacksaga.slot;
SELECT node, next_node FROM stacksaga.locate('a');
SELECT r -> 'ranges' AS ranges FROM jsonb_array_elements(stacksaga.status() -> 'rings') r LIMIT 1;
ROLLBACK;
