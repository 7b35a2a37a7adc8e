-- set_queue, drop_queue, pause_queue, resume_queue: what is claimed under limits, and what is refused.

CREATE SCHEMA limits;
SELECT stacksaga.define_saga('limited', ARRAY[stacksaga.queue_step('a', 'limited', compensable => true,
    retry => stacksaga.retry_policy(initial_interval => '1 second', multiplier => 1, jitter => 0))]);
SELECT stacksaga.define_saga('undone', ARRAY[
    stacksaga.queue_step('a', 'limited', compensable => true), stacksaga.queue_step('b', 'limited', compensable => false)]);
SELECT stacksaga.define_saga('grouped', ARRAY[stacksaga.queue_step('a', 'grouped', compensable => true)]);
CREATE FUNCTION limits.claim(n integer, lease interval DEFAULT '30 seconds') RETURNS bigint LANGUAGE sql AS
    $$ SELECT count(*) FROM stacksaga.claim_steps('limited', 'w', n, lease) $$;
CREATE FUNCTION limits.complete(n integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.complete_step(l.saga_id, 'a', l.lease))
      FROM (SELECT w.saga_id, w.lease FROM stacksaga.work w
             WHERE w.queue = 'limited' AND w.lease_until IS NOT NULL LIMIT n) AS l $$;
CREATE VIEW limits.queue AS
    SELECT waiting, running, oldest_due IS NOT NULL AS has_oldest, paused, max_running,
           max_running_per_group AS per_group, rate, rate_interval FROM stacksaga.queues WHERE queue = 'limited';
TABLE limits.queue;
SELECT count(*) FROM generate_series(1, 40) n, LATERAL stacksaga.start_saga('limited', key => n::text);

-- max_running: at no instant more leases than that.
SELECT stacksaga.set_queue('limited', max_running => 3);
SELECT limits.claim(10);
SELECT limits.claim(10);
TABLE limits.queue;
SELECT limits.complete(2);
SELECT limits.claim(1), limits.claim(10), limits.claim(10);
-- A claim that is undone leaves its slots free.
SELECT limits.complete(2);
BEGIN;
SELECT limits.claim(10);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT limits.claim(1);
ROLLBACK TO s;
SELECT limits.claim(10);
COMMIT;
TABLE limits.queue;
-- A lease that ran out holds its slot until it is settled, which a claim does.
SET stacksaga.clock_offset = '40 seconds';
SELECT limits.claim(10);
TABLE limits.queue;
-- Lowered: nothing is claimed until leases fall below it. Raised: at once.
SELECT stacksaga.set_queue('limited', max_running => 2);
SELECT limits.claim(10), limits.complete(1), limits.claim(10), limits.complete(1), limits.claim(10);
SELECT stacksaga.set_queue('limited', max_running => 5);
SELECT limits.claim(10);
-- A queue that had no limits knows what runs when it gets them.
SELECT stacksaga.drop_queue('limited');
SELECT limits.claim(2);
SELECT stacksaga.set_queue('limited', max_running => 7);
SELECT limits.claim(10);
SELECT stacksaga.set_queue('limited', max_running => 8);
SELECT limits.claim(10);
SELECT limits.complete(100);

-- rate: retries are claims too, and any window counts, wherever it begins.
SELECT stacksaga.set_queue('limited', rate => 4, rate_interval => '10 seconds');
SELECT limits.claim(3);
SELECT count(stacksaga.fail_step(w.saga_id, 'a', w.lease, 'no', 'retryable')) FROM stacksaga.work w WHERE w.queue = 'limited'
   AND w.lease_until IS NOT NULL;
SET stacksaga.clock_offset = '49 seconds';
SELECT limits.claim(3), limits.claim(3);
SET stacksaga.clock_offset = '51 seconds';
SELECT limits.claim(9), limits.claim(9);
SET stacksaga.clock_offset = '60 seconds';
SELECT limits.claim(9), limits.claim(9);
-- A claim that is undone does not count.
SET stacksaga.clock_offset = '90 seconds';
BEGIN;
SELECT limits.claim(9);
ROLLBACK;
SELECT limits.claim(9);
SELECT limits.complete(100);
SELECT stacksaga.set_queue('limited');
TABLE limits.queue;
SELECT count(*) FROM stacksaga.queue;

-- max_running_per_group: of each group; what has no group has no such limit.
SELECT count(*) FROM generate_series(1, 12) n, LATERAL stacksaga.start_saga('grouped', key => n::text,
    group_key => 'group ' || n % 3, priority => 1 + n % 5);
SELECT count(*) FROM generate_series(1, 5) n, LATERAL stacksaga.start_saga('grouped', key => 'plain ' || n);
SELECT stacksaga.set_queue('grouped', max_running_per_group => 2);
SELECT count(*) FROM stacksaga.claim_steps('grouped', 'w', 100);
SELECT group_key, count(*) FROM stacksaga.work WHERE queue = 'grouped' AND lease_until IS NOT NULL
 GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM stacksaga.claim_steps('grouped', 'w', 100);
SELECT count(stacksaga.complete_step(w.saga_id, 'a', w.lease)) FROM stacksaga.work w
 WHERE w.queue = 'grouped' AND w.lease_until IS NOT NULL AND w.group_key = 'group 1';
SELECT count(*) FROM stacksaga.claim_steps('grouped', 'w', 100);
-- Of both limits the smaller one counts.
SELECT stacksaga.set_queue('grouped', max_running => 14, max_running_per_group => 3);
SELECT count(*) FROM stacksaga.claim_steps('grouped', 'w', 2);
SELECT count(*) FROM stacksaga.claim_steps('grouped', 'w', 100);
SELECT group_key, count(*) FROM stacksaga.work WHERE queue = 'grouped' AND lease_until IS NOT NULL
 GROUP BY 1 ORDER BY 1;
SELECT stacksaga.drop_queue('grouped');
SELECT count(*) FROM stacksaga.claim_steps('grouped', 'w', 100);

-- A paused queue hands out compensations only; leases stay valid, and limits too.
SELECT limits.complete(limits.claim(100)::integer) > 0 AS emptied;
SELECT saga_id AS undone FROM stacksaga.start_saga('undone') \gset
SELECT limits.complete(limits.claim(1)::integer);
SELECT stacksaga.set_queue('limited', max_running => 2);
SELECT stacksaga.pause_queue('limited', 'an incident');
SELECT stacksaga.start_saga('limited') IS NOT NULL;
SELECT limits.claim(10);
SELECT stacksaga.cancel_saga(:'undone', 'compensate it');
SELECT direction, attempt FROM stacksaga.claim_steps('limited', 'w', 10);
SELECT paused, paused_since IS NOT NULL AS since, pause_reason, max_running, waiting, running
  FROM stacksaga.queues WHERE queue = 'limited';
SELECT stacksaga.resume_queue('limited', 'it is over');
SELECT limits.claim(10), limits.claim(10);
SELECT count(stacksaga.complete_step(w.saga_id, 'a', w.lease)) FROM stacksaga.work w
 WHERE w.queue = 'limited' AND w.lease_until IS NOT NULL;
SELECT stacksaga.drop_queue('limited');
RESET stacksaga.clock_offset;

-- A transaction that holds the lock of a queue cannot be prepared.
SELECT stacksaga.set_queue('limited', max_running => 2);
SELECT stacksaga.start_saga('limited') IS NOT NULL;
BEGIN;
SELECT limits.claim(1);
\set VERBOSITY sqlstate
PREPARE TRANSACTION 'limited';
\set VERBOSITY default
-- REPEATABLE READ counts what runs now.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT limits.claim(10), limits.claim(10);
COMMIT;

-- What operators did.
SELECT action, object, reason, detail FROM stacksaga.operator_actions WHERE object = 'queue limited' ORDER BY at;

-- What a step waits for that no limit lets through, in words.
SELECT stacksaga.define_saga('worded', ARRAY[stacksaga.queue_step('charge', queue => 'worded', compensable => true)]);
CREATE VIEW limits.waiting AS
SELECT key, regexp_replace(waits_for, '[0-9]{4}-[0-9: .-]*[0-9]', '...', 'g') AS waits_for
  FROM stacksaga.find_sagas('worded') ORDER BY key;
SELECT count(*) FROM generate_series(1, 2) AS n, stacksaga.start_saga('worded', key => 'words-' || n, group_key => 'a');
SELECT stacksaga.set_queue('worded', max_running => 1);
SELECT count(*) FROM stacksaga.claim_steps('worded', 'till-1', 10);
TABLE limits.waiting;
SELECT stacksaga.set_queue('worded', max_running_per_group => 1);
TABLE limits.waiting;
SELECT stacksaga.set_queue('worded', rate => 1, rate_interval => '1 hour');
SELECT count(*) FROM stacksaga.claim_steps('worded', 'till-1', 10);
SELECT count(*) FROM stacksaga.start_saga('worded', key => 'words-3', group_key => 'a');
TABLE limits.waiting;
SELECT stacksaga.pause_queue('worded', 'the bank is closed');
TABLE limits.waiting;
SELECT regexp_replace(t, '.* not claimed', '... not claimed') AS timeline_ends FROM stacksaga.sagas s,
       stacksaga.saga_timeline(s.saga_id) AS t WHERE s.key = 'words-3' AND t LIKE '%waits for%';
SELECT stacksaga.resume_queue('worded', 'it is open');
SELECT stacksaga.set_queue('worded');
TABLE limits.waiting;

-- However many run, a queue without max_running holds nothing back, nor does one that lets more run.
SELECT count(*) FROM stacksaga.start_sagas('worded', array_fill('{}'::jsonb, '{1100}'));
SELECT count(*) FROM stacksaga.claim_steps('worded', 'till-1', 1000, '1 hour');
CREATE VIEW limits.held_back AS
SELECT value FROM stacksaga.metrics()
 WHERE name = 'stacksaga_queue_held_back_steps' AND labels @> '{"queue": "worded", "limit": "max_running"}';
TABLE limits.held_back;
SELECT stacksaga.set_queue('worded', max_running => 2000);
TABLE limits.held_back;
SELECT stacksaga.set_queue('worded', max_running => 500);
SELECT value > 0 AS holds FROM limits.held_back;
SELECT stacksaga.set_queue('worded');

-- Bad input.
SELECT stacksaga.set_queue(NULL);
SELECT stacksaga.set_queue('');
SELECT stacksaga.set_queue(repeat('q', 64));
SELECT stacksaga.set_queue('limited', 0);
SELECT stacksaga.set_queue('limited', max_running_per_group => -1);
SELECT stacksaga.set_queue('limited', rate => 0);
SELECT stacksaga.set_queue('limited', rate => 1, rate_interval => '0');
SELECT stacksaga.set_queue('limited', rate => 1, rate_interval => NULL);
SELECT stacksaga.drop_queue('no limits');
SELECT stacksaga.pause_queue('limited', NULL);
SELECT stacksaga.pause_queue('limited', '');
SELECT stacksaga.resume_queue('limited', 'it runs');
SELECT stacksaga.pause_queue('limited', 'once');
SELECT stacksaga.pause_queue('limited', 'twice');
SELECT stacksaga.resume_queue('limited', 'again');
SELECT stacksaga.drop_queue('limited');

-- Who may: operators and support; services may not, monitors look.
CREATE ROLE limits_support;
CREATE ROLE limits_service;
SELECT stacksaga.grant_usage('limits_support', 'support'), stacksaga.grant_usage('limits_service', 'service');
SET ROLE limits_support;
SELECT stacksaga.set_queue('limited', 1);
SELECT stacksaga.pause_queue('limited', 'support');
SELECT count(*) FROM stacksaga.queues WHERE queue = 'limited' AND paused;
SELECT stacksaga.resume_queue('limited', 'support');
SELECT stacksaga.drop_queue('limited');
SET ROLE limits_service;
SELECT stacksaga.set_queue('limited', 1);
SELECT stacksaga.pause_queue('limited', 'service');
SELECT count(*) FROM stacksaga.queues;
RESET ROLE;
DROP OWNED BY limits_support, limits_service;
DROP ROLE limits_support, limits_service;
-- Nothing stays that another file would find due when it moves the clock.
SELECT count(stacksaga.complete_step(w.saga_id, CASE w.queue WHEN 'worded' THEN 'charge' ELSE 'a' END, w.lease)) > 0
  FROM stacksaga.work w WHERE w.queue IN ('limited', 'grouped', 'worded') AND w.lease_until IS NOT NULL;
SELECT count(stacksaga.cancel_saga(saga_id, 'the test is over')) > 0 FROM stacksaga.sagas
 WHERE saga IN ('limited', 'grouped', 'undone', 'worded') AND finished_at IS NULL;
SELECT count(stacksaga.complete_step(saga_id, step, lease)) > 0 FROM stacksaga.claim_steps('limited', 'w', 100);
SELECT count(*) FROM stacksaga.sagas
 WHERE saga IN ('limited', 'grouped', 'undone', 'worded') AND finished_at IS NULL;
DROP SCHEMA limits CASCADE;
