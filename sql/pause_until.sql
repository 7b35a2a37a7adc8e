-- pause_queue() until an instant: from then on the queue is not paused, and nobody has to do anything.
CREATE EXTENSION IF NOT EXISTS stacksaga;
\set VERBOSITY terse
SELECT stacksaga.define_saga('until', ARRAY[stacksaga.queue_step('a', 'until', compensable => false)]);
CREATE FUNCTION pg_temp.at(by interval) RETURNS text LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', by::text, false) $$;

-- An end in the past, now or never.
SELECT stacksaga.pause_queue('until', 'a test', '-infinity');
SELECT stacksaga.pause_queue('until', 'a test', 'infinity');
SELECT stacksaga.pause_queue('until', 'a test', stacksaga.clock_now());
SELECT stacksaga.pause_queue('until', 'a test', until => stacksaga.clock_now() - interval '1 us');
SELECT count(*) FROM stacksaga.queue;

-- Until then nothing is claimed, and it is paused; from then on nothing is left of it.
SELECT stacksaga.clock_now() + interval '1 hour' AS until \gset
SELECT stacksaga.pause_queue('until', 'the bank is closed', :'until');
SELECT saga_id FROM stacksaga.start_saga('until') \gset
SELECT count(*) FROM stacksaga.claim_steps('until', 'w');
SELECT paused, paused_since IS NOT NULL AS since, paused_until = :'until' AS until, pause_reason, waiting
  FROM stacksaga.queues WHERE queue = 'until';
SELECT q -> 'paused' AS paused, (q ->> 'paused_until')::timestamptz = :'until' AS until, q -> 'held_back' AS held_back
  FROM jsonb_path_query(stacksaga.status(), '$.**.queues[*] ? (@.queue == "until")') AS q;
SELECT waits_for ~ 'not claimed: the queue is paused until \d{4}' AS says_until
  FROM stacksaga.find_sagas(saga => 'until');
SELECT detail LIKE '%("the bank is closed"): 1 steps wait' AS says_so FROM stacksaga.doctor()
 WHERE check_name = 'queues' AND detail LIKE 'queue "until" has been paused for %';
SELECT stacksaga.pause_queue('until', 'twice', :'until');
SELECT action, object, reason, detail ~ '^until \d{4}-' AS has_until FROM stacksaga.operator_actions
 WHERE object = 'queue until';
SELECT pg_temp.at('59 minutes') IS NOT NULL;
SELECT count(*) FROM stacksaga.claim_steps('until', 'w');
SELECT pg_temp.at('61 minutes') IS NOT NULL;
SELECT paused, paused_since, paused_until, pause_reason, waiting FROM stacksaga.queues WHERE queue = 'until';
SELECT value FROM stacksaga.metrics() WHERE name = 'stacksaga_queue_paused' AND labels ->> 'queue' = 'until';
SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'queues' AND detail LIKE '%"until"%paused%';
SELECT stacksaga.resume_queue('until', 'it is over');
SELECT count(*) FROM stacksaga.claim_steps('until', 'w');

-- It can be paused again, and is resumed before its end; then no row is left.
SELECT stacksaga.pause_queue('until', 'again', stacksaga.clock_now() + interval '1 hour');
SELECT paused, pause_reason FROM stacksaga.queues WHERE queue = 'until';
SELECT stacksaga.resume_queue('until', 'earlier than thought');
SELECT count(*) FROM stacksaga.queue;
-- Paused without an end after one with an end.
SELECT stacksaga.pause_queue('until', 'again', stacksaga.clock_now() + interval '1 second');
SELECT pg_temp.at('62 minutes') IS NOT NULL;
SELECT stacksaga.pause_queue('until', 'for long');
SELECT pg_temp.at('63 days') IS NOT NULL;
SELECT paused, paused_until FROM stacksaga.queues WHERE queue = 'until';
SELECT stacksaga.resume_queue('until', 'enough');
-- One that nothing names and whose pause is over is not listed; limits stay, without the pause.
SELECT stacksaga.pause_queue('until nothing', 'a test', stacksaga.clock_now() + interval '1 second');
SELECT stacksaga.pause_queue('until limits', 'a test', stacksaga.clock_now() + interval '1 second');
SELECT stacksaga.set_queue('until limits', 3);
SELECT queue, paused FROM stacksaga.queues WHERE queue LIKE 'until %' ORDER BY 1;
SELECT pg_temp.at('64 days') IS NOT NULL;
SELECT queue, paused, max_running FROM stacksaga.queues WHERE queue LIKE 'until %' ORDER BY 1;
SELECT detail FROM stacksaga.doctor() WHERE check_name = 'queues' AND detail LIKE '%"until %' ORDER BY 1;
SELECT stacksaga.drop_queue('until limits');
SELECT count(*) FROM stacksaga.queue WHERE queue = 'until limits';
SELECT pg_temp.at('0') IS NOT NULL;
DELETE FROM stacksaga.queue WHERE queue LIKE 'until%';

-- Who waits is woken at the end of the pause, not before, and claims.
SELECT stacksaga.start_saga('until') IS NOT NULL;
SELECT clock_timestamp() AS began \gset
SELECT stacksaga.pause_queue('until', 'a moment', stacksaga.clock_now() + interval '1 second');
CALL stacksaga.wait_for_steps('until', '30 s');
SELECT clock_timestamp() - :'began' BETWEEN '1 s' AND '20 s' AS at_the_end;
SELECT count(*) FROM stacksaga.claim_steps('until', 'w');
SELECT count(stacksaga.complete_step(w.saga_id, 'a', w.lease)) FROM stacksaga.work w
 WHERE w.queue = 'until' AND w.lease_until IS NOT NULL;
DELETE FROM stacksaga.queue WHERE queue LIKE 'until%';
