-- A suspended saga keeps the lease of a step: its service may be at work. It counts for the limits of the queue, and
-- the view queues, the timelines and doctor() say so.

\set SHOW_CONTEXT never
SET TimeZone = 'UTC';
SELECT stacksaga.define_saga('kept lease', ARRAY[stacksaga.queue_step('pay', 'kept', compensable => false)]);
SELECT stacksaga.define_saga('kept by child', ARRAY[stacksaga.child_step('order', 'kept lease')]);
SELECT stacksaga.set_queue('kept', max_running => 1);
SELECT (stacksaga.start_saga('kept lease')).saga_id AS first \gset
SELECT count(*) FROM stacksaga.claim_steps('kept', 'till');
SELECT (stacksaga.start_saga('kept lease')).saga_id AS second \gset
CREATE VIEW kept AS
SELECT waiting, running, suspended_leases FROM stacksaga.queues WHERE queue = 'kept';
CREATE FUNCTION kept_lines(saga_id uuid, suspended text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT regexp_replace(replace(line, suspended, '(first)'), '[-0-9]{10} [0-9:.]{12}', '(instant)')
      FROM stacksaga.saga_timeline(saga_id) AS line WHERE line LIKE 'queue kept:%'
$$;
CREATE FUNCTION kept_doctor(suspended text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT replace(regexp_replace(detail, '\d\d:\d\d:\d\d', '(a while)') || ' | ' || fix, suspended, '(first)')
      FROM stacksaga.doctor() WHERE check_name = 'queues' AND detail LIKE '%"kept"%'
$$;

-- Not suspended: nothing of it.
TABLE kept;
SELECT stacksaga.suspend_saga(:'first', 'the till is being repaired');
TABLE kept;
-- Its lease does not run out, and after an hour both sagas' timelines and doctor() name it.
SET stacksaga.clock_offset = '59 minutes';
SELECT kept_lines(:'first', :'first'), kept_lines(:'second', :'first'), kept_doctor(:'first');
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.run_pending() IS NOT NULL AS ran;
TABLE kept;
SELECT count(*) FROM stacksaga.claim_steps('kept', 'till 2');
SELECT kept_lines(:'first', :'first') UNION ALL SELECT kept_lines(:'second', :'first');
SELECT kept_doctor(:'first');
-- A queue without a limit of what runs is not held up.
SELECT stacksaga.set_queue('kept', rate => 1000);
SELECT kept_lines(:'second', :'first') UNION ALL SELECT kept_doctor(:'first');
SELECT stacksaga.set_queue('kept', max_running_per_group => 1);
SELECT count(*) FROM kept_doctor(:'first');
SELECT stacksaga.set_queue('kept', max_running => 1);
-- The saga is resumed: its lease has run out.
SELECT stacksaga.resume_saga(:'first', 'repaired');
SELECT stacksaga.run_pending() IS NOT NULL AS ran;
SELECT suspended_leases FROM kept;
SELECT kept_lines(:'second', :'first') UNION ALL SELECT kept_doctor(:'first');
SELECT stacksaga.cancel_saga(saga_id, 'enough') FROM stacksaga.sagas WHERE saga = 'kept lease' AND finished_at IS NULL;

-- The lease of a child runs out under its suspended parent.
SELECT (stacksaga.start_saga('kept by child')).saga_id AS parent \gset
SELECT stacksaga.run_pending() IS NOT NULL AS ran;
SELECT count(*) FROM stacksaga.claim_steps('kept', 'till');
SELECT stacksaga.suspend_saga(:'parent', 'an inspection');
SET stacksaga.clock_offset = '130 minutes';
SELECT stacksaga.run_pending() IS NOT NULL AS ran;
TABLE kept;
SELECT kept_doctor(:'parent');
SELECT stacksaga.resume_saga(:'parent', 'done');
SELECT stacksaga.cancel_saga(:'parent', 'enough');
SELECT stacksaga.run_pending() IS NOT NULL AS ran;

RESET stacksaga.clock_offset;
SELECT count(*) FROM stacksaga.sagas WHERE saga LIKE 'kept%' AND finished_at IS NULL;
SELECT stacksaga.drop_queue('kept');
DROP VIEW kept;
DROP FUNCTION kept_lines, kept_doctor;
