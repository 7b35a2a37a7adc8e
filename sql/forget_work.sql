-- A copy of a live database stands still: leases are lost, sagas in flight are suspended, and what would begin work is paused.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
\set home :DBNAME
DROP DATABASE IF EXISTS forget_work;
CREATE DATABASE forget_work;
\c forget_work
SET client_min_messages = warning;
CREATE EXTENSION stacksaga;
CREATE SCHEMA copied;
CREATE FUNCTION copied.hear(m stacksaga.message) RETURNS void LANGUAGE sql AS '';
SELECT stacksaga.define_saga('plain', ARRAY[stacksaga.queue_step('a', 'copied', compensable => true),
    stacksaga.queue_step('b', 'copied b', compensable => true)], deadline => '1 day');
SELECT stacksaga.define_saga('final', ARRAY[stacksaga.queue_step('a', 'copied final', effect => 'irreversible')]);
SELECT stacksaga.define_saga('command', ARRAY[stacksaga.message_step('a', 'copied.command')]);
SELECT stacksaga.define_saga('parent', ARRAY[stacksaga.child_step('c', 'plain'), stacksaga.timer_step('t', '1 hour')]);
SELECT stacksaga.create_subscription('handled', 'copied.x', 'copied.hear(stacksaga.message)'), stacksaga.create_subscription('fetched', 'copied.y'),
    stacksaga.create_schedule('hourly', 'plain', '0 * * * *'), stacksaga.create_schedule('resting', 'plain', '0 * * * *');
SELECT stacksaga.pause_schedule('resting', 'before'), stacksaga.pause_queue('copied b', 'for a minute', clock_timestamp() + interval '1 minute'),
    stacksaga.pause_queue('ever', 'before');
SELECT stacksaga.pause_subscription('handled', 'for a minute', clock_timestamp() + interval '1 minute');
SELECT stacksaga.create_ring('copied', 'r') > 0 AS created;
SET stacksaga.region = 'copied';
SET stacksaga.cluster = 'r';
SELECT stacksaga.create_subscription('of a ring', 'copied.z');
SELECT created FROM stacksaga.start_saga('plain', key => 'of a ring');
RESET stacksaga.region;
RESET stacksaga.cluster;

-- One of each: in every status, with a lease or without one.
SELECT count(*) FROM unnest('{claimed,compensates,suspended,suspended under a lease,parked,completed,failed,pending}'::text[]) AS key, stacksaga.start_saga('plain', key => key);
SELECT count(*) FROM stacksaga.start_saga('final', key => 'irreversible'), stacksaga.start_saga('command', key => 'command') AS c, stacksaga.start_saga('parent', key => 'parent') AS p;
CREATE FUNCTION copied.id(key text) RETURNS uuid LANGUAGE sql AS $$ SELECT saga_id FROM stacksaga.sagas WHERE sagas.key = id.key $$;
CREATE TABLE copied.lease AS SELECT s.key, c.* FROM stacksaga.claim_steps('copied', 'w', 8) AS c JOIN stacksaga.sagas s USING (saga_id);
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM copied.lease WHERE key IN ('compensates', 'parked', 'completed');
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable')) FROM copied.lease WHERE key IN ('suspended', 'failed', 'pending');
SELECT stacksaga.cancel_saga(copied.id('failed'), 'no'), stacksaga.cancel_saga(copied.id('compensates'), 'no'), stacksaga.cancel_saga(copied.id('parked'), 'no');
SELECT stacksaga.suspend_saga(copied.id('suspended'), 'before'), stacksaga.suspend_saga(copied.id('suspended under a lease'), 'before');
SELECT stacksaga.resume_queue('copied b', 'for the test');
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('copied b', 'w', 9);
SELECT stacksaga.pause_queue('copied b', 'for a minute', clock_timestamp() + interval '1 minute');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')
  FROM stacksaga.claim_steps('copied', 'w', 9) AS c WHERE c.saga_id = copied.id('parked');
SELECT count(*) FROM stacksaga.claim_steps('copied final', 'w', 1);
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT stacksaga.publish('copied.y', '1') IS NOT NULL AS published;
SELECT count(*) FROM stacksaga.receive_messages('fetched', 'c', 10, '1 hour');
SELECT outcome FROM stacksaga.idempotency_begin('copied', 'key', '{}', '1 hour');
CREATE VIEW copied.sagas AS
    SELECT coalesce(s.key, 'child') AS key, s.status, t.direction, t.suspended_at IS NOT NULL AS suspended, p.step AS parked,
           (SELECT count(*) FROM stacksaga.work w WHERE w.saga_id = s.saga_id AND w.lease_until > stacksaga.clock_now()) AS leases,
           (SELECT count(*) FROM stacksaga.work w WHERE w.saga_id = s.saga_id AND w.due_at < 'infinity') AS due,
           (SELECT string_agg(f.error, '; ') FROM stacksaga.failure f WHERE f.saga_id = s.saga_id AND NOT f.outcome_known) AS in_doubt
      FROM stacksaga.sagas s JOIN stacksaga.saga t USING (saga_id) LEFT JOIN stacksaga.parked_sagas p USING (saga_id) ORDER BY 1;
SELECT * FROM copied.sagas;

-- Not in the original.
SELECT stacksaga.forget_work('a copy', 'shop');
SELECT stacksaga.forget_work('a copy', NULL);
SELECT stacksaga.forget_work('', current_database());
CREATE ROLE copied_support;
SELECT stacksaga.grant_usage('copied_support', 'support');
SET ROLE copied_support;
SELECT stacksaga.forget_work('a copy', 'forget_work');
RESET ROLE;
CREATE ROLE copied_operator;
SELECT stacksaga.grant_usage('copied_operator', 'operator');
SET ROLE copied_operator;
SELECT stacksaga.forget_work('a copy', 'forget_work');
-- Again: nothing is left to do.
SELECT stacksaga.forget_work('a copy', 'forget_work');
RESET ROLE;
SELECT * FROM copied.sagas;
SELECT queue, ring_id, paused_at IS NOT NULL AS paused, paused_until, pause_reason FROM stacksaga.queue ORDER BY ring_id, queue;
SELECT subscription, paused_at IS NOT NULL AS paused, paused_until, pause_reason FROM stacksaga.subscription ORDER BY subscription;
SELECT schedule, paused FROM stacksaga.schedules ORDER BY schedule;
SELECT action, object, reason, detail, role_name FROM stacksaga.operator_actions WHERE action = 'forget' ORDER BY at;
SELECT action, count(*), count(DISTINCT reason) AS reasons FROM stacksaga.operator_actions WHERE role_name = 'copied_operator' GROUP BY 1 ORDER BY 1;
SELECT max(lease_until) <= stacksaga.clock_now() AS lost FROM stacksaga.subscription_position WHERE batch_id IS NOT NULL;

-- It stands still: nothing is claimed, handled or fired, whatever falls due.
SET stacksaga.clock_offset = '3 days';
SELECT stacksaga.run_pending(), stacksaga.fire_schedules();
SELECT count(*) FROM unnest('{copied,copied b,copied final}'::text[]) AS queue, stacksaga.claim_steps(queue, 'w', 9);
SELECT * FROM copied.sagas;
RESET stacksaga.clock_offset;
-- A later answer under a lost lease counts as any late answer does; the key goes on.
SELECT stacksaga.complete_step(saga_id, step, lease) FROM copied.lease WHERE key = 'claimed';
SELECT outcome, attempt FROM stacksaga.idempotency_begin('copied', 'key', '{}');
-- It can be taken up again, saga by saga.
SELECT stacksaga.resume_saga(copied.id('pending'), 'on'), stacksaga.resume_queue('copied', 'on');
SET stacksaga.clock_offset = '1 hour';
SELECT count(*) FROM stacksaga.claim_steps('copied', 'w', 9);
RESET stacksaga.clock_offset;

-- Thousands of sagas are walked in pages.
SELECT count(*) FROM stacksaga.start_sagas('plain', array_fill('{}'::jsonb, ARRAY[2500]));
SELECT stacksaga.forget_work('again', 'forget_work');
SELECT status, count(*) FROM stacksaga.saga WHERE key IS NULL GROUP BY 1;

DROP OWNED BY copied_support, copied_operator;
\c :home
SET client_min_messages = warning;
DROP DATABASE forget_work;
DROP ROLE copied_support, copied_operator;
