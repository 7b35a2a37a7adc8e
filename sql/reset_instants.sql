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
SELECT stacksaga.define_saga('far queue', ARRAY[stacksaga.queue_step('s', 'far', compensable => false,
    retry => stacksaga.retry_policy(initial_interval => '1 hour', max_interval => '1 hour'))], deadline => '1 day');
SELECT stacksaga.define_saga('far timer', ARRAY[stacksaga.timer_step('s', '2 hours')]);
SELECT stacksaga.define_saga('far signal', ARRAY[stacksaga.signal_step('s', 'go', timeout => '1 hour')]);
SELECT stacksaga.create_schedule('far hourly', 'far sql', '0 * * * *');
SELECT stacksaga.create_schedule('far failing', 'far sql', '0 * * * *');
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
-- What is suspended then loses no time of its deadline, and what is given back then waits no longer.
SELECT saga_id AS waits FROM stacksaga.start_saga('far queue', run_at => now() + interval '1 hour') \gset
SELECT stacksaga.suspend_saga(:'waits', 'a test');
SELECT stacksaga.define_saga('given back', ARRAY[stacksaga.queue_step('s', 'given back', compensable => false)]);
SELECT started IS NOT NULL AS started FROM stacksaga.start_saga('given back') AS started;
SELECT saga_id AS given, step, lease FROM stacksaga.claim_steps('given back', 'ahead', 1) \gset
INSERT INTO stacksaga.kept_row VALUES ('saga', 'far', 'it is referred to', stacksaga.clock_now(), stacksaga.clock_now() + interval '1 hour');
SELECT stacksaga.accept_message('far', 'message');
SELECT count(*) FROM stacksaga.receive_messages('far fetched', 'ahead');
SELECT stacksaga.register_node('far node', 'default', 'default') > 0 AS registered;
-- A schedule that failed then would be tried again then.
UPDATE stacksaga.schedule SET failures = 1, failed_since = stacksaga.clock_now(), last_error = 'no', next_run = now() - interval '1 minute', due_at = stacksaga.clock_now() + interval '1 minute' WHERE schedule = 'far failing';
RESET stacksaga.clock_offset;

-- A rate that was used up then would let nothing through for a year.
SELECT count(*) FROM stacksaga.claim_steps('far', 'now', 9);
SELECT * FROM far.found();
SELECT regexp_replace(regexp_replace(detail, '^\d+ ', '(n) '), 'until .*:', 'until ...:') AS detail, fix
  FROM stacksaga.doctor() WHERE check_name = 'instants' ORDER BY 1;
SELECT stacksaga.resume_saga(:'waits', 'a test');
SELECT deadline_at BETWEEN created_at AND created_at + interval '1 day' AS has_its_deadline FROM stacksaga.saga WHERE saga_id = :'waits';
SELECT stacksaga.release_step(:'given', :'step', :lease);
SELECT count(*) FROM stacksaga.claim_steps('given back', 'now', 1);
-- It was a dry run; this is none.
SELECT count(*) > 5 AS more FROM far.found();
SELECT count(*) > 5 AS reset FROM stacksaga.reset_instants('the clock was a year ahead', dry_run => false);
SELECT * FROM far.found();
SELECT next_run < due_at AND due_at <= stacksaga.clock_now() AS is_tried FROM stacksaga.schedule WHERE schedule = 'far failing';
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

-- Every instant that is stored, and what explains one that lies ahead. `chosen`: a caller; `record`: it decides nothing;
-- `begin`: what is counted from it lasts longer, or not shorter; `other`: one in this list that goes with it decides.
CREATE TABLE far.bound AS SELECT split_part(split_part(line, ' ', 1), '.', 1) AS relation, split_part(split_part(line, ' ', 1), '.', 2) AS attribute,
       substr(line, position(' ' IN line) + 1) AS bound
  FROM unnest(ARRAY[
    'accepted_message.created_at record', 'accepted_message.expires_at key: listed', 'dead_message.dead_since record',
    'dead_message.discarded_at retention: listed', 'dead_message.published_at record', 'dead_message.since record',
    'definition_pause.paused_at record', 'definition_pause.paused_until chosen', 'effect.completed_at record', 'effect.started_at record', 'failure.finished_at record',
    'failure.started_at begin: how long a service remembers the key of a step in doubt', 'idempotency_key.completed_at begin: listed by sweep_at',
    'idempotency_key.created_at record', 'idempotency_key.forgotten_at record', 'idempotency_key.lease_until lease: lease_length of the key',
    'idempotency_key.sweep_at key: listed', 'kept_row.retry_at due: an hour', 'kept_row.since record',
    'lost_batch.lease_until record', 'lost_batch.received_at record', 'message_batch.received_at record',
    'message_retry.due_at due: max_interval of the subscription, dedupe_retention; deliver_at is chosen', 'message_retry.failed_since record',
    'message_retry.published_at record', 'node.checkpoint_at one ahead is due', 'node.heartbeat_at node: now', 'node.registered_at record',
    'operator_action.acted_at record, kept longer', 'outbox_message.deliver_at chosen', 'outbox_message.published_at begin: outbox_retention of its generation',
    'outbox_tick.ticked_at begin: outbox_retention of its generation', 'parked_saga.since record', 'producer_sequence.created_at record',
    'producer_sequence.updated_at record', 'queue.paused_at record', 'queue.paused_until chosen', 'queue_claims.claimed_at rate: rate_interval of the queue',
    'removed_saga.finished_at record', 'removed_saga.kept_since key: listed', 'ring.created_at record', 'ring_adoption.adopted_at record',
    'saga.created_at begin: tells that the saga was started ahead', 'saga.deadline_at deadline: listed', 'saga.finished_at retention: listed',
    'saga.remove_at retention: listed by finished_at', 'saga.parked_at begin: no time is added to the deadline', 'saga.suspended_at begin: no time is added to the deadline',
    'saga.updated_at begin: tells that the saga was changed ahead', 'saga_action.acted_at record, kept longer', 'saga_attribute.created_at record',
    'saga_contradiction.acknowledged_at record', 'saga_contradiction.answered_at record', 'saga_definition.defined_at record',
    'saga_signal.arrived_at record', 'schedule.created_at record', 'schedule.due_at schedule: next_run, five minutes after a failure',
    'schedule.failed_since record', 'schedule.last_run record', 'schedule.next_run schedule: its cron expression', 'schedule.skipped_since record',
    'schedule_action.acted_at record, kept longer', 'slot.next_from other: the window after it proposes again', 'step_release.released_at record',
    'step_release.started_at record', 'subscription.created_at record', 'subscription.paused_at record', 'subscription.paused_until chosen',
    'subscription_position.answered_at record', 'subscription_position.lease_until lease: written_at', 'subscription_position.released_until due: an hour',
    'subscription_position.written_at begin: tells that the lease was taken ahead', 'token_window.published_at record',
    'token_window.window_end other: windows are found by now', 'token_window.window_start other: windows are found by now',
    'versioned_value.created_at record', 'versioned_value.updated_at record',
    'work.due_at due: updated_at, the delay of a timer, max_interval of the step, dedupe_retention; run_at is chosen', 'work.lease_until lease: timeout of the step',
    'work.place_at one ahead is now', 'work.resume_at due, once it is resumed', 'work.started_at lease: tells that it was taken ahead',
    'worker.started_at record']) AS line;
SELECT coalesce(b.relation, c.relation) AS relation, coalesce(b.attribute, c.attribute) AS attribute,
       CASE WHEN b IS NULL THEN 'say here what bounds it, and let reset_instants() find it where that is needed' ELSE 'is not there any more' END AS problem
  FROM far.bound b FULL JOIN (
       SELECT c.relname::text AS relation, a.attname::text AS attribute
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'stacksaga'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0
          AND a.atttypid IN ('timestamptz'::regtype, 'timestamptz[]'::regtype)) AS c USING (relation, attribute)
 WHERE b IS NULL OR c IS NULL;

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
