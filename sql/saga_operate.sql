-- What operators do to sagas: cancel, suspend, resume, retry, resolve, one or many at a time.

CREATE SCHEMA op;
CREATE TABLE op.log (n serial, what text);
-- Fails for good what op.bad lists, as 'act a' or 'compensate a'.
CREATE TABLE op.bad (what text);
CREATE FUNCTION op.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM op.bad WHERE what = call.direction || ' ' || call.step) THEN
        RAISE EXCEPTION 'no %', call.step USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO op.log (what) VALUES (call.direction || ' ' || call.step);
    RETURN to_jsonb(call.step);
END
$$;
CREATE FUNCTION op.step(name text, stage int DEFAULT NULL, effect text DEFAULT 'compensable')
RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'op.run(stacksaga.step_call)',
        CASE effect WHEN 'compensable' THEN 'op.run(stacksaga.step_call)' END,
        stage => stage, effect => effect)
$$;
-- The calls that are refused say why.
CREATE FUNCTION op.try(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT stacksaga.' || call INTO result;
    RETURN NEXT result;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || regexp_replace(message, '[0-9a-f-]{36}', '(id)');
    RETURN NEXT '  DETAIL: ' || regexp_replace(detail, '[0-9]{12,}', '(lease)');
    RETURN NEXT '  HINT: ' || hint;
END
$$;
CREATE FUNCTION op.start(saga text) RETURNS uuid LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
        stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga;
    TRUNCATE op.log RESTART IDENTITY;
    SELECT set_config('stacksaga.clock_offset', '0', false);
    SELECT saga_id FROM stacksaga.start_saga(saga);
$$;
CREATE FUNCTION op.bad(VARIADIC bad text[]) RETURNS void LANGUAGE sql AS $$
    TRUNCATE op.bad; INSERT INTO op.bad SELECT unnest(bad);
$$;
CREATE VIEW op.now AS
    SELECT s.status, t.direction, s.current_step AS step, s.attempt, p.step AS parked_step,
           t.parked_direction AS parked, t.error
      FROM stacksaga.sagas s JOIN stacksaga.saga t USING (saga_id)
      LEFT JOIN stacksaga.definition_step p
        ON p.definition_id = t.definition_id AND p.step_no = t.parked_step
     WHERE s.parent_id IS NULL;
CREATE VIEW op.actions AS
    SELECT action, step, outcome, role = current_user AS mine, reason, status_before, status_after
      FROM stacksaga.saga_actions ORDER BY acted_at;

SELECT stacksaga.define_saga('three', ARRAY[op.step('a'), stacksaga.queue_step('b', 'op', compensable => true,
    timeout => '10 minutes', retry => stacksaga.retry_policy(max_attempts => 2, jitter => 0)),
    op.step('c')]);

-- Cancelled before anything was done, between steps, and with a step in flight, which settles first.
SELECT op.start('three') AS id \gset
SELECT stacksaga.cancel_saga(:'id', 'not needed');
SELECT * FROM op.now;
SELECT * FROM op.actions;
SELECT op.try(format('cancel_saga(%L, %L)', :'id', 'again'));
SELECT op.start('three') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.cancel_saga(:'id', 'not needed');
SELECT count(*) AS claimable FROM stacksaga.claim_steps('op', 'w');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT what FROM op.log ORDER BY n;
SELECT op.start('three') AS id \gset
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.claim_steps('op', 'w') \gset
SELECT stacksaga.cancel_saga(:'id', 'not needed');
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'b', :lease);
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT stacksaga.cancel_saga(:'id', 'once more') AS again;
SELECT stacksaga.complete_step(:'id', 'b', :lease, '"done"');
SELECT direction, results, stacksaga.complete_step(saga_id, step, lease) AS status
  FROM stacksaga.claim_steps('op', 'w');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT what FROM op.log ORDER BY n;
SELECT count(*) FROM stacksaga.work;

-- Suspended: nothing is due, no time runs out, and an answer counts.
SELECT op.start('three') AS id \gset
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.claim_steps('op', 'w') \gset
SELECT stacksaga.suspend_saga(:'id', 'audit') AS first, stacksaga.suspend_saga(:'id', 'audit') AS again;
SET stacksaga.clock_offset = '1 hour';
SELECT stacksaga.run_pending();
SELECT count(*) AS claimable FROM stacksaga.claim_steps('op', 'w');
SELECT * FROM op.now;
SELECT stacksaga.complete_step(:'id', 'b', :lease, '"late"');
SELECT stacksaga.run_pending();
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT * FROM op.actions;
SELECT op.try(format('%s_saga(%L, %L)', call, :'id', 'why'))
  FROM unnest('{suspend,resume,retry,cancel}'::text[]) AS call;
-- A lease that would have run out has, when it is resumed.
SELECT op.start('three') AS id \gset
SELECT stacksaga.run_pending();
SELECT count(*) FROM stacksaga.claim_steps('op', 'w');
SELECT stacksaga.suspend_saga(:'id', 'audit');
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT stacksaga.run_pending();
SELECT step, attempt FROM stacksaga.claim_steps('op', 'w');
-- When a step fails for good, it compensates once it is resumed.
SELECT op.start('three') AS id \gset
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.claim_steps('op', 'w') \gset
SELECT stacksaga.suspend_saga(:'id', 'audit');
SELECT stacksaga.fail_step(:'id', 'b', :lease, 'no money', 'non_retryable');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT what FROM op.log ORDER BY n;
-- Before its first attempt; and cancelled while it is suspended.
SELECT op.start('three') AS id \gset
SELECT stacksaga.suspend_saga(:'id', 'wait'), stacksaga.resume_saga(:'id', 'go');
SELECT stacksaga.run_pending();
SELECT stacksaga.suspend_saga(:'id', 'wait'), stacksaga.cancel_saga(:'id', 'no');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
-- While it compensates.
SELECT stacksaga.define_saga('back', ARRAY[op.step('a'), op.step('b'), op.step('c')]);
SELECT op.bad('act c');
SELECT op.start('back') AS id \gset
SELECT stacksaga.run_pending(4);
SELECT * FROM op.now;
SELECT stacksaga.suspend_saga(:'id', 'wait');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT stacksaga.resume_saga(:'id', 'go');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT what FROM op.log ORDER BY n;
-- A suspension does not count for the deadline, which is moved by it.
SELECT stacksaga.define_saga('late', ARRAY[op.step('a'), stacksaga.signal_step('s', 'go')],
    deadline => '5 minutes');
SELECT op.bad('');
SELECT op.start('late') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.suspend_saga(:'id', 'wait');
SET stacksaga.clock_offset = '10 minutes';
SELECT stacksaga.run_pending();
SELECT stacksaga.resume_saga(:'id', 'go');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SET stacksaga.clock_offset = '16 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM op.now;

-- Parked for a compensation: tried again, with attempts anew, or resolved.
SELECT op.bad('act c', 'compensate a');
SELECT op.start('back') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT op.try(format('%s_saga(%L, %L)', call, :'id', 'why'))
  FROM unnest('{suspend,resume,cancel}'::text[]) AS call;
SELECT stacksaga.retry_saga(:'id', 'fixed?');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT stacksaga.resolve_step(:'id', 'a', 'not_done', reason => 'looked it up');
SELECT * FROM op.now;
SELECT op.bad('');
SELECT stacksaga.retry_saga(:'id', 'fixed');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT step, direction, attempt, status, error FROM stacksaga.saga_history
 WHERE direction = 'compensate' ORDER BY finished_at, attempt;
SELECT * FROM op.actions;
SELECT op.bad('act c', 'compensate a');
SELECT op.start('back') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.resolve_step(:'id', 'a', 'done', '"by hand"', 'did it myself');
SELECT * FROM op.now;
SELECT step, direction, attempt, status, worker = current_user AS mine FROM stacksaga.saga_history
 WHERE direction = 'compensate' ORDER BY finished_at, attempt;
-- Two side by side: each is settled on its own.
SELECT stacksaga.define_saga('pair', ARRAY[op.step('a', 1), op.step('b', 1), op.step('c', 2)]);
SELECT op.bad('act c', 'compensate a', 'compensate b');
SELECT op.start('pair') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT stacksaga.resolve_step(:'id', 'a', 'done');
SELECT * FROM op.now;
SELECT stacksaga.resolve_step(:'id', 'b', 'done');
SELECT * FROM op.now;

-- Parked past an irreversible step: it can only complete.
SELECT stacksaga.define_saga('pivot', ARRAY[op.step('a'), op.step('p', effect => 'irreversible'),
    op.step('x', 3, 'guarded'), op.step('y', 3, 'guarded'), op.step('z', effect => 'guarded')]);
SELECT op.bad('act x', 'act y');
SELECT op.start('pivot') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT op.try(format('cancel_saga(%L, %L)', :'id', 'why'));
SELECT stacksaga.resolve_step(:'id', 'x', 'done', '"x by hand"');
SELECT * FROM op.now;
SELECT stacksaga.run_pending();
SELECT op.bad('');
SELECT stacksaga.retry_saga(:'id', 'fixed');
SELECT stacksaga.run_pending();
SELECT status, output FROM stacksaga.saga_result(:'id');

-- An irreversible step whose outcome is unknown.
SELECT stacksaga.define_saga('doubt', ARRAY[op.step('a'), stacksaga.queue_step('p', 'op',
    effect => 'irreversible'), op.step('z', effect => 'guarded')]);
CREATE FUNCTION op.doubt() RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    id uuid := op.start('doubt');
BEGIN
    PERFORM stacksaga.run_pending();
    PERFORM stacksaga.fail_step(saga_id, step, lease, 'no answer', 'unknown')
       FROM stacksaga.claim_steps('op', 'w');
    RETURN id;
END
$$;
SELECT op.doubt() AS id \gset
SELECT * FROM op.now;
SELECT op.try(format('cancel_saga(%L, %L)', :'id', 'why'));
SELECT stacksaga.resolve_step(:'id', 'p', 'done', '"seen"');
SELECT stacksaga.run_pending();
SELECT status, output FROM stacksaga.saga_result(:'id');
SELECT op.doubt() AS id \gset
SELECT op.try(format('resolve_step(%L, ''p'', ''not_done'', reason => ''not in their books'')', :'id'));
SELECT stacksaga.resolve_step(:'id', 'p', 'never', reason => 'they refuse the key');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT what FROM op.log ORDER BY n;
SELECT op.doubt() AS id \gset
SELECT op.try(format('retry_saga(%L, ''they refuse duplicates'')', :'id'));
-- Its lease ran out: it is not tried again, and its late answer counts.
SELECT op.start('doubt') AS id \gset
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.claim_steps('op', 'w') \gset
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT op.try(format('retry_saga(%L, ''again'')', :'id'));
SELECT attempt FROM stacksaga.claim_steps('op', 'w');
SELECT op.try(format('complete_step(%L, ''p'', %s)', :'id', :lease));
-- A sibling fails while it is in flight: what becomes of the saga waits for it. Done, it is past the point of no return,
-- and parked for the sibling.
SELECT stacksaga.define_saga('race', ARRAY[op.step('a'), stacksaga.queue_step('p', 'op', stage => 2,
    effect => 'irreversible'), stacksaga.queue_step('q', 'op2', stage => 2, effect => 'guarded')]);
SELECT op.start('race') AS id \gset
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.claim_steps('op', 'w') \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')
  FROM stacksaga.claim_steps('op2', 'w');
SELECT status, compensation_requested, last_error FROM stacksaga.sagas;
SELECT stacksaga.complete_step(:'id', 'p', :lease);
SELECT * FROM op.now;
SELECT status, compensation_requested FROM stacksaga.sagas;
SELECT action, step, reason FROM stacksaga.saga_actions WHERE saga_id = :'id';
SELECT stacksaga.retry_saga(:'id', 'it may be done now');
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('op2', 'w');

-- A step whose attempt is under its lease is not resolved; once the lease has ended it is, and its answer is late.
SELECT op.start('three') AS id \gset
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.claim_steps('op', 'w') \gset
SELECT op.try(format('resolve_step(%L, ''b'', ''done'', ''1'', ''they called'')', :'id'));
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.resolve_step(:'id', 'b', 'done', '1', 'they called');
SELECT op.try(format('complete_step(%L, ''b'', %s, ''1'')', :'id', :lease));
SELECT stacksaga.run_pending();
SELECT status, output FROM stacksaga.saga_result(:'id');

-- Many at a time: a dry run changes nothing, and one that refuses spoils nothing.
SELECT op.start('three') AS one \gset
SELECT saga_id AS two FROM stacksaga.start_saga('three') \gset
SELECT saga_id AS three FROM stacksaga.start_saga('back') \gset
SELECT stacksaga.run_pending();
CREATE FUNCTION op.many(call text, dry boolean) RETURNS TABLE (saga text, before text, after text,
    code text, error text) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format('SELECT s.saga, status_before, status_after, sqlstate,
        regexp_replace(error, ''[0-9a-f-]{36}'', ''(id)'') FROM stacksaga.%I_sagas(
        ARRAY(SELECT saga_id FROM stacksaga.sagas) || ''{00000000-0000-0000-0000-000000000000}'',
        ''why'', %L) LEFT JOIN stacksaga.sagas s USING (saga_id) ORDER BY 1', call, dry);
END
$$;
SELECT * FROM op.many('suspend', true);
SELECT saga, status FROM stacksaga.sagas ORDER BY 1;
SELECT * FROM op.many('suspend', false);
SELECT saga, status FROM stacksaga.sagas ORDER BY 1;
SELECT * FROM op.many('resume', false);
SELECT * FROM op.many('cancel', false);
SELECT * FROM op.many('retry', false);
SELECT action, count(*) FROM stacksaga.saga_actions GROUP BY action ORDER BY action;

-- Two steps of a stage whose outcomes cannot be known: each is settled before the saga goes on, and
-- one that failed meanwhile parks it again.
CREATE FUNCTION op.pivots() RETURNS uuid LANGUAGE sql AS $$
    SELECT stacksaga.define_saga('pivots', ARRAY[op.step('a', 1),
        stacksaga.queue_step('p', 'op p', effect => 'irreversible', stage => 2),
        stacksaga.queue_step('q', 'op q', effect => 'irreversible', stage => 2),
        stacksaga.queue_step('r', 'op r', compensable => false, stage => 2)]);
    SELECT op.start('pivots');
$$;
CREATE FUNCTION op.claim(queue text) RETURNS bigint LANGUAGE sql AS $$
    SELECT lease FROM stacksaga.claim_steps(queue, 'w');
$$;
SELECT op.pivots() AS id \gset
SELECT stacksaga.run_pending();
SELECT op.claim('op p') AS p, op.claim('op q') AS q, op.claim('op r') AS r \gset
SELECT stacksaga.fail_step(:'id', 'p', :p, 'no idea', 'unknown');
SELECT stacksaga.complete_step(:'id', 'r', :r);
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
SELECT stacksaga.complete_step(:'id', 'q', :q);
SELECT * FROM op.now;
SELECT stacksaga.resolve_step(:'id', 'p', 'done');
-- While the saga is parked nothing else of it begins; p is known not to be done, and tried again.
SELECT op.pivots() AS id \gset
SELECT stacksaga.run_pending();
SELECT op.claim('op p') AS p, op.claim('op r') AS r \gset
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SELECT op.claim('op q') AS q;
SELECT * FROM op.now;
SELECT stacksaga.fail_step(:'id', 'p', :p, 'down', 'retryable');
SELECT op.claim('op q') IS NOT NULL AS q;
SELECT * FROM op.now;
-- ... and as long as p may have been done the saga cannot compensate: a cancel waits.
SELECT op.pivots() AS id \gset
SELECT stacksaga.run_pending();
SELECT op.claim('op p') AS p \gset
SELECT stacksaga.fail_step(:'id', 'p', :p, 'no idea', 'unknown');
SELECT op.try(format('retry_saga(%L, ''looked, saw nothing'')', :'id'));
SELECT op.try(format('cancel_saga(%L, ''why'')', :'id'));
SELECT status, compensation_requested FROM stacksaga.sagas;
SELECT stacksaga.resolve_step(:'id', 'p', 'never');
SELECT stacksaga.run_pending();
SELECT * FROM op.now;
-- An irreversible step that completes while a sibling's failure waits for it: the failure parks the saga.
SELECT op.pivots() AS id \gset
SELECT stacksaga.run_pending();
SELECT op.claim('op p') AS p \gset
SELECT stacksaga.fail_step(:'id', 'r', op.claim('op r'), 'no', 'non_retryable');
SELECT stacksaga.complete_step(:'id', 'p', :p);
SELECT op.try(format('resolve_step(%L, ''p'', ''never'')', :'id'));
SELECT * FROM op.now;
SELECT op.try(format('cancel_saga(%L, ''why'')', :'id'));
SELECT stacksaga.resolve_step(:'id', 'r', 'done');
SELECT * FROM op.now;

-- Bad input.
SELECT op.start('three') AS id \gset
SELECT line FROM unnest(ARRAY[
    'cancel_saga(NULL, ''why'')',
    format('cancel_saga(%L, NULL)', :'id'),
    format('suspend_saga(%L, '''')', :'id'),
    format('retry_saga(%L, repeat(''x'', 4097))', :'id'),
    'resume_saga(''00000000-0000-0000-0000-000000000000'', ''why'')',
    format('resolve_step(%L, NULL, ''done'')', :'id'),
    format('resolve_step(%L, ''nobody'', ''done'')', :'id'),
    format('resolve_step(%L, ''a'', ''perhaps'')', :'id'),
    format('resolve_step(%L, ''c'', ''done'')', :'id'),
    format('resolve_step(%L, ''a'', ''done'', direction => ''back'')', :'id'),
    format('resolve_step(%L, ''a'', ''not_done'', ''1'')', :'id'),
    format('resolve_step(%L, ''a'', ''done'', to_jsonb(repeat(''x'', 2000000)))', :'id'),
    format('cancel_sagas(ARRAY[NULL, %L]::uuid[], ''why'')', :'id'),
    'cancel_sagas(NULL, ''why'')',
    format('cancel_sagas(ARRAY[ARRAY[%L]]::uuid[], ''why'')', :'id'),
    format('cancel_sagas(ARRAY[%L]::uuid[], NULL)', :'id'),
    format('cancel_sagas(ARRAY[%L]::uuid[], ''why'', NULL)', :'id')]) AS call, op.try(call) AS line;
SELECT * FROM op.now;
SELECT count(*) FROM stacksaga.saga_action;

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga;
DROP SCHEMA op CASCADE;
