-- What docs/compatibility.md says stays: functions, their arguments and results, views, types and settings of 1.0 are
-- there, with nothing but additions at their end. A line here changes before 1.0, or in a major version, and with a line
-- of docs/changelog.md; something new is added here when it is released.
SET client_min_messages = warning;
SET search_path = public;
SET intervalstyle = 'postgres';
LOAD 'stacksaga';   -- else its settings are not known

CREATE TABLE api_of_1_0 (name text, required integer, arguments text, result text);
COPY api_of_1_0 FROM stdin (DELIMITER '|');
accept_message|2|consumer text, message_id text, retention interval DEFAULT NULL::interval|boolean
accept_sequence|3|producer text, epoch bigint, sequence bigint|text
ack_messages|1|batch_id bigint|bigint
acknowledge_contradiction|3|saga_id uuid, step text, reason text|void
acknowledge_checkpoint|3|node text, incarnation bigint, progress jsonb|void
adopt_ring|5|from_region text, from_cluster text, to_region text, to_cluster text, reason text|bigint
agent_slots|2|agent text, window_start timestamp with time zone|TABLE(slot integer, range_start bigint, range_end bigint, node text)
alter_ring|4|region text, cluster text, setting text, value text|void
alter_subscription|1|subscription text, handler text DEFAULT NULL::text, stop_on_first_failure boolean DEFAULT NULL::boolean, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, fallback text DEFAULT NULL::text|void
await_saga|1|saga_id uuid, timeout interval DEFAULT '00:00:30'::interval|text
blocked_keys|\N||subscription text, topic text, key text, message_id uuid, blocked_since timestamp with time zone, attempts integer, last_error text, waiting bigint, region text, cluster text
cancel_saga|2|saga_id uuid, reason text|text
cancel_sagas|2|saga_ids uuid[], reason text, dry_run boolean DEFAULT true|TABLE(saga_id uuid, status_before text, status_after text, sqlstate text, error text)
child_step|2|name text, saga text, stage integer DEFAULT NULL::integer, timeout interval DEFAULT '00:00:30'::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, effect text DEFAULT NULL::text, compensate_when text DEFAULT 'started'::text, verify text DEFAULT NULL::text, fallback text DEFAULT NULL::text, on_failure text DEFAULT NULL::text, skip_unless text DEFAULT NULL::text|stacksaga.step_definition
citus_check|0||TABLE(severity text, problem text, detail text, hint text)
citus_disable|0||void
citus_enable|0|shard_count integer DEFAULT 32, sagas boolean DEFAULT false|void
claim_steps|2|queue text, worker text, max_steps integer DEFAULT 1, lease interval DEFAULT '00:00:30'::interval|SETOF stacksaga.claimed_step
clock_now|0||timestamp with time zone
cloudevent|7|topic text, key text, type text, payload jsonb, headers jsonb, message_id uuid, published_at timestamp with time zone|jsonb
compare_and_set|4|scope text, key text, expected_version bigint, value jsonb|bigint
compensate_saga|2|saga_id uuid, reason text|text
compensate_sagas|2|saga_ids uuid[], reason text, dry_run boolean DEFAULT true, spread interval DEFAULT '00:00:00'::interval|TABLE(saga_id uuid, status_before text, status_after text, sqlstate text, error text)
complete_step|3|saga_id uuid, step text, lease bigint, output jsonb DEFAULT NULL::jsonb|text
complete_steps|3|saga_ids uuid[], steps text[], leases bigint[], outputs jsonb[] DEFAULT NULL::jsonb[]|TABLE(saga_id uuid, step text, status text, sqlstate text)
create_ring|2|region text, cluster text, window_length interval DEFAULT '00:01:00'::interval, publish_lead interval DEFAULT '00:00:30'::interval, strategy text DEFAULT 'consistent'::text, slots integer DEFAULT 256, on_missing_window text DEFAULT 'keep'::text|integer
create_schedule|3|schedule text, saga text, cron text, input jsonb DEFAULT '{}'::jsonb, timezone text DEFAULT 'UTC'::text, catch_up text DEFAULT 'last'::text, overlap text DEFAULT 'allow'::text|void
create_subscription|2|subscription text, topic text, handler text DEFAULT NULL::text, stop_on_first_failure boolean DEFAULT true, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, start_at text DEFAULT 'now'::text, fallback text DEFAULT NULL::text, partitions integer DEFAULT 16, successor_of text DEFAULT NULL::text|void
dead_messages|\N||subscription text, topic text, key text, message_id uuid, dead_since timestamp with time zone, attempts integer, last_error text, payload jsonb, region text, cluster text
dedupe_state|2|scope text, key text|TABLE(rung text, state text, created_at timestamp with time zone, expires_at timestamp with time zone, detail jsonb)
define_saga|2|name text, steps stacksaga.step_definition[], deadline interval DEFAULT NULL::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, compensation_retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, on_compensation_failure text DEFAULT 'park'::text, on_failure text DEFAULT 'compensate'::text, events_topic text DEFAULT NULL::text, keep interval DEFAULT NULL::interval|integer
define_saga_content|9|name text, steps jsonb, deadline interval, retry jsonb, compensation_retry jsonb, on_compensation_failure text, on_failure text, events_topic text, keep interval|integer
definitions|\N||saga text, version integer, is_current boolean, steps integer, definer text, defined_at timestamp with time zone, live_sagas bigint, paused boolean, paused_since timestamp with time zone, paused_until timestamp with time zone, pause_reason text
discard_message|3|subscription text, message_id uuid, reason text|void
discarded_messages|\N||subscription text, topic text, key text, message_id uuid, dead_since timestamp with time zone, attempts integer, last_error text, discarded_at timestamp with time zone, discarded_by text, discard_reason text, region text, cluster text
doctor|0||TABLE(severity text, check_name text, detail text, fix text)
drain_node|2|node text, incarnation bigint|void
drop_queue|1|queue text|void
drop_schedule|1|schedule text|void
drop_subscription|1|subscription text, discard boolean DEFAULT false|void
effects|\N||source text, step text, effect text, rung text, guarantee text, version integer, domain text, placement text
error_groups|0|max_groups integer DEFAULT 100|TABLE(pattern text, first_seen timestamp with time zone, last_seen timestamp with time zone, parked bigint, retrying bigint, sagas text[], steps text[], versions integer[], note text, link text)
expire_actions|0|max_actions integer DEFAULT 1000|bigint
expire_dedupe|0|max_rows integer DEFAULT 1000|bigint
expire_sagas|0|max_sagas integer DEFAULT 1000|bigint
explain_retries|1|saga text, outer_attempts integer[] DEFAULT '{}'::integer[]|TABLE(step text, attempts integer, longest_window interval, worst_case_calls bigint, dedupe_window interval, warning text)
extend_batch|1|batch_id bigint, extend_by interval DEFAULT '00:00:30'::interval|timestamp with time zone
extend_step|3|saga_id uuid, step text, lease bigint, extend_by interval DEFAULT '00:00:30'::interval, progress jsonb DEFAULT NULL::jsonb|TABLE(lease_until timestamp with time zone, cancel_requested boolean)
fail_message|3|batch_id bigint, message_id uuid, error text, error_class text DEFAULT 'retryable'::text, retry_after interval DEFAULT NULL::interval|void
fail_step|4|saga_id uuid, step text, lease bigint, error text, error_class text DEFAULT 'unknown'::text, retry_after interval DEFAULT NULL::interval|text
fencing_token|1|lease bigint|text
find_sagas|0|saga text DEFAULT NULL::text, status text DEFAULT NULL::text, key_prefix text DEFAULT NULL::text, attributes jsonb DEFAULT NULL::jsonb, created_before timestamp with time zone DEFAULT NULL::timestamp with time zone, before_saga_id uuid DEFAULT NULL::uuid, max_sagas integer DEFAULT 50|TABLE(saga_id uuid, saga text, version integer, key text, status text, waits_for text, attributes jsonb, priority integer, group_key text, created_at timestamp with time zone, updated_at timestamp with time zone, finished_at timestamp with time zone)
fingerprint|1|request jsonb|bytea
fire_schedules|0|max_runs integer DEFAULT 100|bigint
forget_work|2|reason text, database text|bigint
grant_usage|2|role name, kind text|void
hash_partition|1|key text, partitions integer DEFAULT 256|integer
heartbeat_node|2|node text, incarnation bigint, load double precision DEFAULT 0|TABLE(state text, epoch bigint, checkpoint_requested boolean)
idempotency_begin|2|scope text, key text, request jsonb DEFAULT NULL::jsonb, lease interval DEFAULT '00:01:00'::interval, retention interval DEFAULT NULL::interval, on_locked text DEFAULT 'error'::text|TABLE(outcome text, response jsonb, recovery_point text, attempt integer, lease bigint)
idempotency_checkpoint|4|scope text, key text, lease bigint, recovery_point text|void
idempotency_finish|3|scope text, key text, lease bigint, response jsonb DEFAULT NULL::jsonb|void
idempotency_forget|3|scope text, key text, reason text|void
idempotency_release|3|scope text, key text, lease bigint|void
idempotency_transitions|0||TABLE(from_state text, event text, to_state text, reply text, sentence text)
leave_ring|2|node text, incarnation bigint|void
locate|1|key text|TABLE(token bigint, slot integer, node text, valid_until timestamp with time zone, next_node text)
maintain_outbox|0|at_once boolean DEFAULT false|boolean
message_error_detail|2|subscription text, message_id uuid|TABLE(attempt integer, detail text, context text)
message_retries|\N||subscription text, topic text, key text, message_id uuid, state text, attempt integer, due_at timestamp with time zone, failed_since timestamp with time zone, last_error text, region text, cluster text
message_step|2|name text, topic text, compensation_topic text DEFAULT NULL::text, stage integer DEFAULT NULL::integer, timeout interval DEFAULT '00:00:30'::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, effect text DEFAULT NULL::text, compensate_when text DEFAULT 'started'::text, verify text DEFAULT NULL::text, fallback text DEFAULT NULL::text, fallback_compensation_topic text DEFAULT NULL::text, on_failure text DEFAULT NULL::text, skip_unless text DEFAULT NULL::text|stacksaga.step_definition
message_transitions|0||TABLE(from_state text, event text, to_state text, sentence text)
metric_descriptions|0||TABLE(name text, type text, help text)
metrics|0||TABLE(name text, labels jsonb, value double precision)
murmur3_x64_128|1|data bytea, seed bigint DEFAULT 0|bytea
murmur3_x86_32|1|data bytea, seed bigint DEFAULT 0|integer
next_runs|1|cron text, timezone text DEFAULT 'UTC'::text, after timestamp with time zone DEFAULT NULL::timestamp with time zone, max_runs integer DEFAULT 10|SETOF timestamp with time zone
node_agent|1|node text|text
node_ranges|1|node text|TABLE(range_start bigint, range_end bigint, epoch bigint, valid_from timestamp with time zone, valid_until timestamp with time zone)
node_transitions|0||TABLE(from_state text, to_state text, sentence text)
nodes|\N||node text, region text, cluster text, kind text, state text, load double precision, weight double precision, heartbeat_age interval, share double precision, progress jsonb, incarnation bigint, agent text, pid integer, checkpoint_age interval
operator_actions|\N||at timestamp with time zone, role_name text, on_behalf_of text, action text, object text, reason text, detail text
outcome_rules|0||TABLE(rule integer, direction text, error_class text, attempts_left text, has_verify text, irreversible text, outcome text, sentence text, in_doubt text, on_failure text)
parked_sagas|\N||saga_id uuid, saga text, key text, step text, direction text, since timestamp with time zone, error text, hint text, parent_id uuid
pause_definition|2|saga text, reason text, until timestamp with time zone DEFAULT NULL::timestamp with time zone|void
pause_queue|2|queue text, reason text, until timestamp with time zone DEFAULT NULL::timestamp with time zone|void
pause_schedule|2|schedule text, reason text|void
pause_subscription|2|subscription text, reason text, until timestamp with time zone DEFAULT NULL::timestamp with time zone|void
privilege|\N||kind text, object text
publish|2|topic text, payload jsonb, key text DEFAULT NULL::text, type text DEFAULT NULL::text, headers jsonb DEFAULT '{}'::jsonb, message_id uuid DEFAULT NULL::uuid, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone|uuid
publish_batch|2|topic text, payloads jsonb[], keys text[] DEFAULT NULL::text[], types text[] DEFAULT NULL::text[]|SETOF uuid
publish_window|7|region text, cluster text, window_start timestamp with time zone, nodes text[], range_starts bigint[], range_ends bigint[], publisher text, agent text DEFAULT NULL::text|bigint
queue_step|2|name text, queue text, compensable boolean DEFAULT NULL::boolean, stage integer DEFAULT NULL::integer, timeout interval DEFAULT '00:00:30'::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, effect text DEFAULT NULL::text, compensate_when text DEFAULT 'started'::text, verify text DEFAULT NULL::text, fallback text DEFAULT NULL::text, compensation_queue text DEFAULT NULL::text, on_failure text DEFAULT NULL::text, skip_unless text DEFAULT NULL::text|stacksaga.step_definition
queues|\N||queue text, waiting bigint, running bigint, oldest_due timestamp with time zone, paused boolean, max_running integer, max_running_per_group integer, rate integer, rate_interval interval, paused_since timestamp with time zone, pause_reason text, region text, cluster text, completed bigint, failed bigint, suspended_leases bigint, paused_until timestamp with time zone
read_value|2|scope text, key text|TABLE(value jsonb, version bigint)
receive_messages|2|subscription text, consumer text, max_messages integer DEFAULT 100, lease interval DEFAULT '00:00:30'::interval|SETOF stacksaga.message
redact_saga|2|saga_id uuid, reason text|void
redrive_message|2|subscription text, message_id uuid, reason text DEFAULT NULL::text, past_dedupe_retention boolean DEFAULT false|void
redrive_messages|1|subscription text, topic text DEFAULT NULL::text, max_messages integer DEFAULT 1000, reason text DEFAULT NULL::text, dry_run boolean DEFAULT true, spread interval DEFAULT '00:00:00'::interval, past_dedupe_retention boolean DEFAULT false|TABLE(message_id uuid, topic text, key text, dead_since timestamp with time zone, last_error text)
register_node|1|node text, region text DEFAULT 'default'::text, cluster text DEFAULT 'default'::text, kind text DEFAULT 'worker'::text, weight double precision DEFAULT 1, agent text DEFAULT NULL::text|bigint
release_batch|1|batch_id bigint, retry_after interval DEFAULT '00:00:00'::interval, reason text DEFAULT NULL::text|void
reset_instants|1|reason text, dry_run boolean DEFAULT true|TABLE(kind text, object text, instant timestamp with time zone, becomes timestamp with time zone)
release_step|3|saga_id uuid, step text, lease bigint, retry_after interval DEFAULT '00:00:00'::interval, reason text DEFAULT NULL::text|text
release_steps|3|saga_ids uuid[], steps text[], leases bigint[], retry_after interval DEFAULT '00:00:00'::interval, reason text DEFAULT NULL::text|TABLE(saga_id uuid, step text, status text, sqlstate text, error text)
resolve_step|3|saga_id uuid, step text, outcome text, output jsonb DEFAULT NULL::jsonb, reason text DEFAULT NULL::text, direction text DEFAULT NULL::text|text
resume_definition|2|saga text, reason text|void
resume_queue|2|queue text, reason text|void
resume_saga|2|saga_id uuid, reason text|text
resume_sagas|2|saga_ids uuid[], reason text, dry_run boolean DEFAULT true, spread interval DEFAULT '00:00:00'::interval|TABLE(saga_id uuid, status_before text, status_after text, sqlstate text, error text)
resume_schedule|2|schedule text, reason text|void
resume_subscription|2|subscription text, reason text|void
retry_policy|0|max_attempts integer DEFAULT 10, initial_interval interval DEFAULT '00:00:01'::interval, multiplier double precision DEFAULT 2, max_interval interval DEFAULT '00:05:00'::interval, jitter double precision DEFAULT 0.2, retry_on text[] DEFAULT NULL::text[], never_on text[] DEFAULT NULL::text[]|stacksaga.retry_policy
retry_saga|2|saga_id uuid, reason text|text
retry_sagas|2|saga_ids uuid[], reason text, dry_run boolean DEFAULT true, spread interval DEFAULT '00:00:00'::interval|TABLE(saga_id uuid, status_before text, status_after text, sqlstate text, error text)
ring_adoptions|\N||from_region text, from_cluster text, to_region text, to_cluster text, sagas bigint, role text, reason text, adopted_at timestamp with time zone
ring_nodes|2|region text, cluster text|TABLE(node text, kind text, state text, weight double precision, agent text, frozen boolean)
ring_settings|\N||region text, cluster text, setting text, value text, ring_id integer
ring_slots|2|region text, cluster text|TABLE(slot integer, range_start bigint, range_end bigint, node text, epoch bigint, next_node text)
ring_state|2|region text, cluster text|TABLE(database_time timestamp with time zone, window_length interval, publish_lead interval, strategy text, slots integer, epoch bigint, last_window timestamp with time zone, virtual_nodes integer)
ring_status|\N||region text, cluster text, epoch bigint, window_start timestamp with time zone, window_end timestamp with time zone, active_nodes bigint, total_nodes bigint, coverage double precision, oldest_due timestamp with time zone, publisher text
run_pending|0|max_items integer DEFAULT 100|bigint
saga_actions|\N||saga_id uuid, action text, step text, outcome text, role text, reason text, acted_at timestamp with time zone, status_before text, status_after text, on_behalf_of text
saga_diagram|1|saga text, version integer DEFAULT NULL::integer|text
saga_error_detail|1|saga_id uuid|TABLE(step text, direction text, attempt integer, detail text, context text)
saga_executions|\N||id uuid, name character varying(255), status stacksaga.sagastatus, context json, version integer, created_at timestamp with time zone, updated_at timestamp with time zone, recovery_attempts integer
saga_history|\N||saga_id uuid, step text, direction text, attempt integer, status text, error text, error_class text, started_at timestamp with time zone, finished_at timestamp with time zone, worker text, published jsonb, progress jsonb
saga_id_of|2|saga text, key text, run integer DEFAULT 0|uuid
saga_logs|\N||id bigint, saga_id uuid, step_name character varying(255), action character varying(50), status stacksaga.sagastepstatus, details text, created_at timestamp with time zone
saga_result|1|saga_id uuid|TABLE(status text, output jsonb, error text, failed_step text, finished_at timestamp with time zone)
saga_spans|1|saga_ids uuid[]|TABLE(saga_id uuid, trace_id text, span_id text, parent_span_id text, name text, started_at timestamp with time zone, finished_at timestamp with time zone, error text, attributes jsonb)
saga_timeline|1|saga_id uuid|SETOF text
saga_transitions|0||TABLE(from_status text, to_status text, direction text, sentence text, of_child boolean)
sagas|\N||saga_id uuid, saga text, version integer, key text, status text, current_step text, attempt integer, paused_until timestamp with time zone, region text, cluster text, token bigint, input jsonb, output jsonb, last_error text, created_at timestamp with time zone, updated_at timestamp with time zone, finished_at timestamp with time zone, parent_id uuid, pause_reason text, priority integer, group_key text, attributes jsonb, compensation_requested text
schedules|\N||schedule text, saga text, cron text, timezone text, paused boolean, next_run timestamp with time zone, last_run timestamp with time zone, last_saga_id uuid, catch_up text, overlap text, input jsonb, role text, failures integer, failed_since timestamp with time zone, last_error text, next_attempt timestamp with time zone, paused_since timestamp with time zone, pause_reason text, region text, cluster text, skipped bigint, skipped_since timestamp with time zone
set_queue|1|queue text, max_running integer DEFAULT NULL::integer, max_running_per_group integer DEFAULT NULL::integer, rate integer DEFAULT NULL::integer, rate_interval interval DEFAULT '00:00:01'::interval|void
signal_saga|2|saga_id uuid, signal text, payload jsonb DEFAULT '{}'::jsonb, message_id text DEFAULT NULL::text|boolean
signal_step|2|name text, signal text, stage integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, effect text DEFAULT NULL::text, compensate_when text DEFAULT 'started'::text, verify text DEFAULT NULL::text, fallback text DEFAULT NULL::text, on_failure text DEFAULT NULL::text, skip_unless text DEFAULT NULL::text|stacksaga.step_definition
slot|1|token bigint, slots integer DEFAULT 256|integer
split_range|3|range_start bigint, range_end bigint, parts integer|TABLE(part integer, range_start bigint, range_end bigint)
split_ring|1|parts integer|TABLE(part integer, range_start bigint, range_end bigint)
sql_step|2|name text, action text, compensation text DEFAULT NULL::text, stage integer DEFAULT NULL::integer, timeout interval DEFAULT '00:00:30'::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, effect text DEFAULT NULL::text, compensate_when text DEFAULT 'started'::text, verify text DEFAULT NULL::text, fallback text DEFAULT NULL::text, on_failure text DEFAULT NULL::text, skip_unless text DEFAULT NULL::text|stacksaga.step_definition
stacksaga.batch_bytes|\N||integer B
stacksaga.batch_size|\N||integer
stacksaga.cluster|\N||string
stacksaga.coordination|\N||enum
stacksaga.databases|\N||string
stacksaga.dedupe_retention|\N||integer s
stacksaga.error_detail|\N||bool
stacksaga.failed_saga_retention|\N||integer s
stacksaga.key_retention|\N||integer s
stacksaga.max_payload|\N||integer B
stacksaga.message_timeout|\N||integer ms
stacksaga.notify|\N||bool
stacksaga.on_behalf_of|\N||string
stacksaga.outbox_retention|\N||integer s
stacksaga.poll_interval|\N||integer ms
stacksaga.region|\N||string
stacksaga.retry_budget|\N||real
stacksaga.saga_retention|\N||integer s
stacksaga.worker_rings|\N||string
stacksaga.worker_stall_timeout|\N||integer ms
stacksaga.workers|\N||integer
start_saga|1|saga text, input jsonb DEFAULT '{}'::jsonb, key text DEFAULT NULL::text, on_conflict text DEFAULT 'use_existing'::text, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline interval DEFAULT NULL::interval, headers jsonb DEFAULT '{}'::jsonb, saga_id uuid DEFAULT NULL::uuid, version integer DEFAULT NULL::integer, priority integer DEFAULT 3, group_key text DEFAULT NULL::text, attributes jsonb DEFAULT '{}'::jsonb|TABLE(saga_id uuid, token bigint, created boolean)
start_sagas|2|saga text, inputs jsonb[], keys text[] DEFAULT NULL::text[], priority integer DEFAULT 3, group_keys text[] DEFAULT NULL::text[], attributes jsonb[] DEFAULT NULL::jsonb[]|TABLE(saga_id uuid, token bigint, created boolean)
status|0||jsonb
subscriptions|\N||subscription text, topic text, handler text, stop_on_first_failure boolean, lag_messages bigint, lag_seconds double precision, blocked_keys bigint, dead_messages bigint, region text, cluster text, partitions integer, paused boolean, paused_since timestamp with time zone, paused_until timestamp with time zone, pause_reason text, released_until timestamp with time zone, release_reason text
suspend_saga|2|saga_id uuid, reason text|text
suspend_sagas|2|saga_ids uuid[], reason text, dry_run boolean DEFAULT true|TABLE(saga_id uuid, status_before text, status_after text, sqlstate text, error text)
timer_step|2|name text, delay interval, stage integer DEFAULT NULL::integer, timeout interval DEFAULT '00:00:30'::interval, retry stacksaga.retry_policy DEFAULT NULL::stacksaga.retry_policy, effect text DEFAULT NULL::text, compensate_when text DEFAULT 'started'::text, verify text DEFAULT NULL::text, fallback text DEFAULT NULL::text, on_failure text DEFAULT NULL::text, skip_unless text DEFAULT NULL::text|stacksaga.step_definition
token|1|key text|bigint
token_bytes|1|key bytea|bigint
token_uuid|1|key uuid|bigint
traced_sagas|1|after timestamp with time zone, after_saga_id uuid DEFAULT NULL::uuid, max_sagas integer DEFAULT 1000|TABLE(saga_id uuid, finished_at timestamp with time zone)
type claimed_step|\N||saga_id uuid, saga text, step text, direction text, attempt integer, input jsonb, results jsonb, idempotency_key text, headers jsonb, deadline timestamp with time zone, lease bigint, lease_until timestamp with time zone, by_fallback boolean, claimed_at timestamp with time zone
type message|\N||batch_id bigint, message_id uuid, topic text, key text, type text, payload jsonb, headers jsonb, attempt integer, published_at timestamp with time zone
type step_call|\N||saga_id uuid, saga text, step text, direction text, attempt integer, input jsonb, results jsonb, idempotency_key text, headers jsonb, deadline timestamp with time zone, by_fallback boolean, claimed_at timestamp with time zone
wait_for_messages|1|IN subscription text, IN wait interval DEFAULT '00:00:20'::interval, IN consumer text DEFAULT NULL::text|
wait_for_steps|1|IN queue text, IN wait interval DEFAULT '00:00:20'::interval|
worker_ensure|0||integer
worker_stats|\N||database text, pid integer, started_at timestamp with time zone, turns bigint, items bigint, failures bigint, last_turn_ms double precision, mode text, deferred bigint
\.

CREATE VIEW api_now AS
WITH member AS (
    SELECT classid, objid FROM pg_depend
     WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
       AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'stacksaga')
)
SELECT p.proname::text AS name, p.pronargs - p.pronargdefaults AS required,
       pg_get_function_arguments(p.oid) AS arguments, coalesce(pg_get_function_result(p.oid), '') AS result
  FROM member JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND p.oid = objid
 WHERE coalesce(obj_description(p.oid, 'pg_proc'), '') NOT LIKE 'Internal:%' AND p.prorettype <> 'trigger'::regtype
   AND p.proname NOT LIKE 'ring\_token\_%' AND p.prokind IN ('f', 'p')
UNION ALL
SELECT c.relname, NULL, '', string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
  FROM member JOIN pg_class AS c ON classid = 'pg_class'::regclass AND c.oid = objid
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relkind = 'v' AND coalesce(obj_description(c.oid, 'pg_class'), '') NOT LIKE 'Internal:%'
 GROUP BY c.oid, c.relname
UNION ALL
SELECT 'type ' || t.typname, NULL, '', string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
  FROM member JOIN pg_type AS t ON classid = 'pg_type'::regclass AND t.oid = objid AND t.typname IN ('step_call', 'claimed_step', 'message')
  JOIN pg_attribute AS a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
 GROUP BY t.oid, t.typname
UNION ALL
SELECT name, NULL, '', concat_ws(' ', vartype, unit) FROM pg_settings WHERE name LIKE 'stacksaga.%' AND name NOT IN ('stacksaga.check_plans', 'stacksaga.clock_offset');

CREATE FUNCTION continues(now text, then_ text) RETURNS boolean LANGUAGE sql AS $$
    SELECT now = then_ OR starts_with(now, then_ || ', ')
        OR right(then_, 1) = ')' AND starts_with(now, left(then_, -1) || ', ')
        OR then_ = ''
$$;
CREATE FUNCTION broken() RETURNS TABLE (name text, what text) LANGUAGE sql AS $$
    SELECT o.name, CASE
        WHEN n.name IS NULL THEN 'is missing'
        WHEN n.required > o.required OR NOT continues(n.arguments, o.arguments) THEN 'takes ' || n.arguments
        WHEN NOT continues(n.result, o.result) THEN 'returns ' || n.result
        END
      FROM api_of_1_0 AS o LEFT JOIN api_now AS n USING (name) ORDER BY 1, 2
$$;
SELECT count(*) > 100 AS recorded FROM api_of_1_0;
SELECT * FROM broken() WHERE what IS NOT NULL;

-- Until 1.0 is released the record is all that there is; after it, what a later version adds is recorded at its release.
SELECT name FROM (SELECT name, arguments, result FROM api_now EXCEPT SELECT name, arguments, result FROM api_of_1_0) AS new ORDER BY name;
-- It notices what would break a caller: a function or setting that goes, an argument renamed, one in the middle,
-- one that was optional, a column that goes; not what is added at the end.
UPDATE api_of_1_0 SET name = 'drop_saga' WHERE name = 'cancel_saga';
UPDATE api_of_1_0 SET name = 'stacksaga.gone' WHERE name = 'stacksaga.region';
UPDATE api_of_1_0 SET arguments = replace(arguments, 'payload', 'body') WHERE name = 'publish';
UPDATE api_of_1_0 SET arguments = replace(arguments, 'worker text, ', '') WHERE name = 'claim_steps';
UPDATE api_of_1_0 SET required = 0 WHERE name = 'drop_queue';
UPDATE api_of_1_0 SET result = 'number bigint, ' || result WHERE name = 'queues';
UPDATE api_of_1_0 SET arguments = split_part(arguments, ', priority', 1) WHERE name = 'start_saga';
UPDATE api_of_1_0 SET result = split_part(result, ', failed_step', 1) || ')' WHERE name = 'saga_result';
SELECT name, left(what, 40) AS what FROM broken() WHERE what IS NOT NULL;

-- One name, one signature.
SELECT name FROM api_now WHERE required IS NOT NULL GROUP BY name HAVING count(*) > 1;

DROP FUNCTION broken();
DROP FUNCTION continues(text, text);
DROP VIEW api_now;
DROP TABLE api_of_1_0;
