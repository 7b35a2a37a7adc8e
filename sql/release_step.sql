-- release_step, release_steps: a service gives back what it has claimed and not done. Each block is a sentence of docs/reference/run.md.

-- (14 names no folder: there it is the one that the tests are started from.)
\set srcdir `printf %s "${PG_ABS_SRCDIR:-.}"`
\set truth :srcdir '/sql/include/truth.sql'
\i :truth
CREATE SCHEMA release;
CREATE VIEW release.history AS
    SELECT h.step, h.direction, h.attempt, h.status, h.error_class, h.error, h.worker
      FROM stacksaga.saga_history h ORDER BY h.step, h.direction, h.attempt, h.status;
CREATE FUNCTION release.retry(attempts int) RETURNS stacksaga.retry_policy LANGUAGE sql AS $$
    SELECT stacksaga.retry_policy(max_attempts => attempts, initial_interval => '5 s', jitter => 0)
$$;
-- Everything that the engine has, to see that something changed nothing.
CREATE FUNCTION release.state() RETURNS text LANGUAGE sql AS $$
    SELECT md5(concat((SELECT string_agg(s::text, ',' ORDER BY s::text) FROM stacksaga.saga s),
                      (SELECT string_agg(w::text, ',' ORDER BY w::text) FROM stacksaga.work w),
                      (SELECT string_agg(e::text, ',' ORDER BY e::text) FROM stacksaga.effect e),
                      (SELECT string_agg(f::text, ',' ORDER BY f::text) FROM stacksaga.failure f),
                      (SELECT string_agg(r::text, ',' ORDER BY r::text) FROM stacksaga.step_release r)))
$$;

-- The caller says that this attempt had no effect: no attempt is charged, and the step is due again at once.
SELECT stacksaga.define_saga('release one', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, retry => release.retry(1))]);
SELECT truth.start('release one') AS id \gset
SELECT truth.claim('pays') AS first \gset
SELECT stacksaga.release_step(:'id', 'pay', :first, reason => 'deployment');
SELECT truth.claim('pays') AS second \gset
SELECT :second > :first AS a_lease_rises_with_every_claim;
SELECT stacksaga.release_step(:'id', 'pay', :second);
SELECT * FROM release.history;
SELECT regexp_replace(line, '[-0-9]{10} [0-9:.]{12}( *)', '') AS line FROM stacksaga.saga_timeline(:'id') AS line;
-- The one attempt of the policy is still there, and is used up by a failure.
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'HTTP 503', 'retryable');
SELECT * FROM release.history;

-- Again under the same lease before the next claim: the same answer, and nothing changes. A failure that says as much adds nothing.
SELECT truth.start('release one') AS id \gset
SELECT truth.claim('pays') AS first \gset
SELECT stacksaga.release_step(:'id', 'pay', :first, '1 minute');
SELECT release.state() AS before \gset
SELECT stacksaga.release_step(:'id', 'pay', :first, '1 minute');
SELECT stacksaga.release_step(:'id', 'pay', :first);
SELECT stacksaga.fail_step(:'id', 'pay', :first, 'HTTP 503', 'retryable'), stacksaga.fail_step(:'id', 'pay', :first, 'no answer');
SELECT truth.try(format('extend_step(%L, ''pay'', %s)', :'id', :first));
SELECT truth.try(format('fail_step(%L, ''pay'', %s, ''HTTP 422'', ''non_retryable'')', :'id', :first));
-- A completion contradicts the release: refused, and shown.
SELECT truth.try(format('complete_step(%L, ''pay'', %s)', :'id', :first));
SELECT release.state() = :'before' AS nothing_changed;
SELECT stacksaga.run_pending();
SELECT truth.try(format('acknowledge_contradiction(%L, ''pay'', ''seen'')', :'id'));
SELECT truth.claim('pays') AS too_early;
SELECT truth.pass('1 minute');
SELECT truth.claim('pays') AS second \gset
SELECT truth.try(format('release_step(%L, ''pay'', %s)', :'id', :first));
SELECT stacksaga.complete_step(:'id', 'pay', :second);
-- A release of what was completed under this lease contradicts that.
SELECT truth.try(format('release_step(%L, ''pay'', %s)', :'id', :second));

-- What was claimed in time and answered after its lease, before another claim, is released in time.
SELECT truth.start('release one') AS id \gset
SELECT truth.claim('pays') AS first \gset
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.release_step(:'id', 'pay', :first);
SELECT * FROM release.history;

-- retry_after: 0 to 7 days.
SELECT truth.claim('pays') AS lease \gset
SELECT truth.try(format('release_step(%L, ''pay'', %s, %s)', :'id', :lease, after))
  FROM (VALUES ('''-1 s'''), ('''7 days 0.000001 s'''), ('''1 month'''), ('''infinity'''), ('NULL')) AS v(after);
SELECT stacksaga.release_step(:'id', 'pay', :lease, '7 days');
SELECT due_at - now BETWEEN '6 days 23:59' AND '7 days' AS in_a_week FROM stacksaga.work, stacksaga.clock_now() AS now;
SELECT truth.try(call) FROM (VALUES
    ('release_step(NULL, ''pay'', 1)'), ('release_step(gen_random_uuid(), NULL, 1)'), ('release_step(gen_random_uuid(), ''pay'', NULL)'),
    ('release_step(gen_random_uuid(), ''pay'', 1)'), (format('release_step(%L, ''ship'', 1)', :'id')),
    ('release_step(gen_random_uuid(), ''pay'', 1, reason => repeat(''x'', 65537))')) AS v(call);

-- With 0 the step stands where it stood in its group and rank; with more it is due at that instant, and its age counts from there.
SELECT stacksaga.define_saga('release order', ARRAY[
    stacksaga.queue_step('pick', 'picks', compensable => true, retry => release.retry(1))]);
SELECT truth.start('release order', '0') AS id \gset
SELECT stacksaga.cancel_saga(:'id', 'not of this test');
SELECT count(*) FROM (SELECT stacksaga.start_saga('release order', to_jsonb(format('%s%s', g, n)), priority => p, group_key => g,
                                run_at => stacksaga.clock_now() - make_interval(secs => 100 - n))
                        FROM generate_series(1, 3) AS n, (VALUES ('a', 3), ('b', 4)) AS v(g, p)) AS s;
CREATE TEMPORARY TABLE claimed AS
    SELECT saga_id, step, lease, input #>> '{}' AS name FROM stacksaga.claim_steps('picks', 'w', 6);
SELECT name FROM claimed ORDER BY name;
SELECT r.status, count(*) FROM (SELECT array_agg(saga_id) AS ids, array_agg(step) AS steps, array_agg(lease) AS leases
                                  FROM (SELECT * FROM claimed WHERE name NOT IN ('a1', 'b1') ORDER BY name DESC) AS c) AS c,
       stacksaga.release_steps(ids, steps, leases) AS r GROUP BY r.status;
SELECT stacksaga.release_step(saga_id, step, lease, '10 s') FROM claimed WHERE name = 'b1';
SELECT stacksaga.release_step(saga_id, step, lease) FROM claimed WHERE name = 'a1';
SELECT set_config('stacksaga.clock_offset', '20 s', false);
SELECT count(*) FROM (SELECT stacksaga.start_saga('release order', '"a4"', priority => 3, group_key => 'a')) AS s;
SELECT left(input #>> '{}', 1) AS of_group, string_agg(input #>> '{}', ' ' ORDER BY n) AS in_order
  FROM stacksaga.claim_steps('picks', 'w', 7) WITH ORDINALITY AS c(saga_id, saga, step, direction, attempt, input, results, headers,
       deadline, lease, lease_until, idempotency_key, by_fallback, claimed_at, n) GROUP BY 1 ORDER BY 1;

-- Its permits are free at once; its rate is not given back.
SELECT stacksaga.define_saga('release limits', ARRAY[
    stacksaga.queue_step('call', 'calls', compensable => true, retry => release.retry(1))]);
SELECT stacksaga.set_queue('calls', max_running => 3, max_running_per_group => 1);
SELECT truth.start('release limits', '{}') AS id \gset
SELECT count(*) FROM (SELECT stacksaga.start_saga('release limits', group_key => g) FROM unnest('{a,a,b,b}'::text[]) AS g) AS s;
TRUNCATE claimed;
INSERT INTO claimed SELECT saga_id, step, lease FROM stacksaga.claim_steps('calls', 'w', 5);
SELECT count(*) FROM claimed;
SELECT count(*) FROM stacksaga.claim_steps('calls', 'w', 5);
BEGIN;
SELECT stacksaga.release_step(saga_id, step, lease, '1 minute') FROM claimed;
SELECT count(*) FROM stacksaga.claim_steps('calls', 'w', 5);
COMMIT;
SELECT stacksaga.set_queue('calls', rate => 2, rate_interval => '1 hour');
SELECT truth.start('release limits') AS id \gset
SELECT stacksaga.release_step(:'id', 'call', truth.claim('calls'));
SELECT stacksaga.release_step(:'id', 'call', truth.claim('calls'));
SELECT truth.claim('calls') AS the_rate_is_used_up;
SELECT stacksaga.drop_queue('calls');

-- Earlier attempts stay as they are: one in doubt still is.
SELECT stacksaga.define_saga('release doubt', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, retry => release.retry(3), fallback => 'lends'),
    stacksaga.queue_step('ship', 'ships', compensable => true)]);
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS first \gset
SELECT truth.pass('31 s'), truth.pass('5 s');
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'));
SELECT * FROM release.history;
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT direction, attempt FROM stacksaga.claim_steps('pays', 'w');

-- While the saga compensates a released act is over: it is not offered again, and undone only where an earlier attempt is unknown.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT stacksaga.release_step(:'id', 'pay', :lease), stacksaga.release_step(:'id', 'pay', :lease);
SELECT * FROM release.history;
SELECT count(*) FROM stacksaga.work;
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT truth.pass('31 s'), truth.pass('5 s');
SELECT truth.claim('pays') AS lease \gset
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT stacksaga.release_step(:'id', 'pay', :lease);
SELECT direction, attempt, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');

-- While the saga is suspended the step is held like the others, in a parked saga it is withdrawn.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT stacksaga.suspend_saga(:'id', 'audit');
SELECT stacksaga.release_step(:'id', 'pay', :lease), stacksaga.release_step(:'id', 'pay', :lease);
SELECT truth.claim('pays') AS held;
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT direction, attempt FROM stacksaga.claim_steps('pays', 'w');
SELECT stacksaga.define_saga('release parked', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => false, retry => release.retry(1), stage => 1),
    stacksaga.queue_step('wire', 'wires', effect => 'irreversible', stage => 1)]);
SELECT truth.start('release parked') AS id \gset
SELECT truth.claim('pays') AS pay, truth.claim('wires') AS wire \gset
SELECT stacksaga.fail_step(:'id', 'wire', :wire, 'no answer');
SELECT stacksaga.release_step(:'id', 'pay', :pay), stacksaga.release_step(:'id', 'pay', :pay);
SELECT truth.claim('pays') AS withdrawn;
SELECT stacksaga.resolve_step(:'id', 'wire', 'done', reason => 'it is on the statement');
SELECT direction, attempt FROM stacksaga.claim_steps('pays', 'w');

-- A released fallback stays the fallback, on its queue.
SELECT truth.start('release doubt') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'HTTP 422', 'non_retryable');
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('lends'));
SELECT truth.claim('pays') AS pays;
SELECT direction, attempt, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('lends', 'w');

-- A message step is published again, not before one second.
SELECT stacksaga.define_saga('release message', ARRAY[
    stacksaga.message_step('send', 'release.commands', compensation_topic => 'release.commands', timeout => '1 minute', retry => release.retry(1))]);
SELECT truth.start('release message') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.release_step(:'id', 'send', lease) FROM stacksaga.work;
SELECT stacksaga.run_pending() AS not_at_once;
SELECT truth.pass('0.9 s'), truth.pass('0.2 s');
SELECT step, attempt, status FROM release.history;
SELECT stacksaga.release_step(:'id', 'send', lease, '1 minute') FROM stacksaga.work WHERE lease_until IS NOT NULL;
SELECT truth.pass('59 s'), truth.pass('2 s');
SELECT stacksaga.complete_step(:'id', 'send', lease) FROM stacksaga.work;

-- Compensations can be released.
SELECT truth.start('release doubt') AS id \gset
SELECT stacksaga.complete_step(:'id', 'pay', truth.claim('pays'));
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), reason => 'deployment');
SELECT direction, attempt, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
SELECT * FROM release.history;

-- A late release counts as a late failure does that is retryable: under the latest lease, until another claim has the step, its
-- compensation has begun or the step is settled. It has a row of its own beside the attempt's.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS first \gset
SELECT truth.pass('31 s');
SELECT stacksaga.release_step(:'id', 'pay', :first, reason => 'was never sent');
SELECT stacksaga.release_step(:'id', 'pay', :first, reason => 'was never sent');
SELECT * FROM release.history;
SELECT truth.claim('pays') AS second \gset
SELECT truth.try(format('release_step(%L, ''pay'', %s)', :'id', :first));
-- None is in doubt, so the fallback may act.
SELECT stacksaga.fail_step(:'id', 'pay', :second, 'HTTP 422', 'non_retryable');
SELECT by_fallback FROM stacksaga.claim_steps('lends', 'w');
-- The charge of the lost lease is taken back: three attempts are left.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT truth.pass('31 s');
SELECT stacksaga.release_step(:'id', 'pay', :lease);
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'HTTP 503', 'retryable', '0'),
       stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'HTTP 503', 'retryable', '0');
SELECT attempt FROM stacksaga.claim_steps('pays', 'w');
-- Compensation has begun.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT truth.pass('31 s');
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT truth.try(format('release_step(%L, ''pay'', %s)', :'id', :lease));
-- It was settled by a person.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT truth.pass('31 s');
SELECT stacksaga.resolve_step(:'id', 'pay', 'done', reason => 'it is on the statement');
SELECT truth.try(format('release_step(%L, ''pay'', %s)', :'id', :lease));
-- An irreversible step that was lost parked the saga; it goes on.
SELECT truth.start('release parked') AS id \gset
SELECT truth.claim('wires') AS wire \gset
SELECT truth.pass('31 s');
SELECT status FROM stacksaga.sagas;
SELECT stacksaga.release_step(:'id', 'wire', :wire);
SELECT step, attempt FROM stacksaga.claim_steps('wires', 'w');

-- The 1,001st release in a row of one step and direction is charged as a retryable failure.
SELECT truth.start('release doubt') AS id \gset
DO $$
BEGIN
    FOR i IN 1 .. 1000 LOOP
        PERFORM stacksaga.release_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
    END LOOP;
END
$$;
SELECT releases, attempt - attempt_base AS charged FROM stacksaga.work;
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), reason => 'still closed');
SELECT releases, attempt - attempt_base AS charged, due_at - now > '4 s' AS paused_by_the_policy
  FROM stacksaga.work, stacksaga.clock_now() AS now;
SELECT status, error_class, count(*), max(error) AS error FROM release.history GROUP BY 1, 2 ORDER BY 1;
SELECT truth.pass('5 s');
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), '1 minute');
SELECT releases, attempt - attempt_base AS charged FROM stacksaga.work;

-- Where an attempt is in doubt, a release that ends later than dedupe_retention after it is charged.
SET stacksaga.dedupe_retention = '1h';
SELECT stacksaga.define_saga('release memory', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, retry => release.retry(9))]);
SELECT truth.start('release memory') AS id \gset
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), '2 hours');
SELECT attempt - attempt_base AS charged FROM stacksaga.work;
SELECT truth.start('release memory') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT truth.pass('5 s');
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), '50 minutes');
SELECT attempt - attempt_base AS charged FROM stacksaga.work;
SELECT truth.pass('50 minutes');
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), '10 minutes');
SELECT attempt - attempt_base AS charged, due_at - now > '9 minutes' AS after_retry_after
  FROM stacksaga.work, stacksaga.clock_now() AS now;
SELECT * FROM release.history;
RESET stacksaga.dedupe_retention;

-- An irreversible step that is released while a request stands was not done: it is not offered again, and compensation begins.
SELECT truth.start('release parked') AS id \gset
SELECT truth.claim('wires') AS wire \gset
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT compensation_requested FROM stacksaga.sagas;
SELECT stacksaga.release_step(:'id', 'wire', :wire);
SELECT truth.claim('wires') AS wires, truth.claim('pays') AS pays;

-- A claim after a release neither feeds the retry budget nor takes from it.
SELECT truth.start('release one') AS id \gset
SELECT stacksaga.cancel_saga(:'id', 'not of this test');
SELECT stacksaga.define_saga('release budget', ARRAY[
    stacksaga.queue_step('call', 'released', compensable => true, retry => release.retry(0))]);
SELECT count(*) FROM (SELECT stacksaga.start_saga('release budget') FROM generate_series(1, 200)) AS s;
TRUNCATE claimed;
INSERT INTO claimed SELECT saga_id, step, lease FROM stacksaga.claim_steps('released', 'w', 200);
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'HTTP 503', 'retryable', '0')) FROM claimed;
-- It is used up now: a fifth of the first attempts, and ten.
SET stacksaga.retry_budget = 0;
TRUNCATE claimed;
INSERT INTO claimed SELECT saga_id, step, lease FROM stacksaga.claim_steps('released', 'w', 200);
SELECT count(*) BETWEEN 1 AND 60 AS some FROM claimed;
SELECT count(*) < 20 AS the_budget_is_used_up FROM stacksaga.claim_steps('released', 'w', 200);
-- What a retry claimed and gave back is claimed again without the budget.
SELECT count(*) = (SELECT count(*) FROM claimed) AS all_released FROM claimed c, stacksaga.release_step(saga_id, step, lease);
SELECT count(*) >= (SELECT count(*) FROM claimed) AS all_again FROM stacksaga.claim_steps('released', 'w', 200);
RESET stacksaga.retry_budget;
-- Three claims of a first attempt, two of them released, pay for a fifth of one retry.
SELECT stacksaga.define_saga('release feed', ARRAY[
    stacksaga.queue_step('call', 'fed', compensable => true, retry => release.retry(0))]);
SELECT count(*) FROM (SELECT stacksaga.start_saga('release feed') FROM generate_series(1, 200)) AS s;
SELECT count(r.status) FROM generate_series(1, 2) AS n, LATERAL (SELECT array_agg(c.saga_id) AS ids, array_agg(c.step) AS steps,
       array_agg(c.lease) AS leases FROM stacksaga.claim_steps('fed', 'w', 200 + 0 * n) AS c) AS c,
       LATERAL stacksaga.release_steps(c.ids, c.steps, c.leases) AS r;
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'HTTP 503', 'retryable', '0')) FROM stacksaga.claim_steps('fed', 'w', 200);
SELECT count(*) BETWEEN 30 AND 100 AS a_fifth_and_ten FROM stacksaga.claim_steps('fed', 'w', 200);

-- A step's timeout counts from its latest claim.
SELECT stacksaga.define_saga('release timeout', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, timeout => '1 minute', retry => release.retry(1))]);
SELECT truth.start('release timeout') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT set_config('stacksaga.clock_offset', '50 s', false);
SELECT stacksaga.extend_step(:'id', 'pay', :lease) IS NOT NULL AS extended;
SELECT stacksaga.release_step(:'id', 'pay', :lease);
SELECT lease_until - now > '59 s' AS the_whole_minute FROM stacksaga.claim_steps('pays', 'w', 1, '1 minute'), stacksaga.clock_now() AS now;

-- Many at a time: a row that release_step() would refuse gets the SQLSTATE and the error, and the others are released.
SELECT truth.start('release doubt') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT regexp_replace(saga_id::text, '^' || :'id' || '$', '(id)') AS saga_id, step, status, sqlstate, regexp_replace(error, :'id', '(id)') AS error
  FROM stacksaga.release_steps(ARRAY[:'id', :'id', :'id', '00000000-0000-4000-8000-000000000000', NULL]::uuid[],
                               '{pay,pay,pack,pay,pay}', ARRAY[:lease, :lease - 1, 1, 1, 1], reason => 'deployment');
SELECT * FROM release.history;
SELECT count(*) FROM stacksaga.release_steps('{}', '{}', '{}');
SELECT truth.try(call) FROM (VALUES
    ('release_steps(ARRAY[gen_random_uuid()], ''{}'', ''{}'')'), ('release_steps(NULL, ''{}'', ''{}'')'), ('release_steps(''{}'', NULL, ''{}'')'),
    ('release_steps(''{}'', ''{}'', NULL)'), ('release_steps(''{}'', ''{}'', ''{}'', NULL)'), ('release_steps(''{}'', ''{}'', ''{}'', ''8 days'')'),
    ('release_steps(array_fill(gen_random_uuid(), ''{10001}''), array_fill(''a''::text, ''{10001}''), array_fill(1::bigint, ''{10001}''))')) AS v(call);

-- What is written of it goes with the saga: counted, named in the tables of python-cqrs by nothing, erased and removed.
SELECT value > 0 AS counted FROM stacksaga.metrics() WHERE name = 'stacksaga_releases_total';
SELECT truth.start('release one') AS id \gset
SELECT stacksaga.release_step(:'id', 'pay', truth.claim('pays'), reason => 'Ada Lovelace asked for it');
SELECT stacksaga.complete_step(:'id', 'pay', truth.claim('pays'));
SELECT step_name, action, status FROM stacksaga.saga_logs ORDER BY created_at;
SELECT stacksaga.redact_saga(:'id', 'asked for');
SELECT * FROM release.history;
SELECT truth.pass('40 days');
SELECT stacksaga.expire_sagas() > 0 AS removed;
SELECT count(*) FROM stacksaga.step_release WHERE saga_id = :'id';

RESET stacksaga.clock_offset;
DROP SCHEMA truth, release CASCADE;
