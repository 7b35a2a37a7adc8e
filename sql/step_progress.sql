-- extend_step(…, progress): what a service says of an attempt, until the attempt ends.

SELECT stacksaga.define_saga('progress', ARRAY[
    stacksaga.queue_step('copy', 'progress', compensation_queue => 'progress', timeout => '1 hour',
                         retry => stacksaga.retry_policy(initial_interval => '0', jitter => 0)),
    stacksaga.queue_step('check', 'progress_check', compensable => false)]);
SELECT saga_id AS id FROM stacksaga.start_saga('progress') \gset
CREATE VIEW progress_seen AS
    SELECT h.step, h.direction, h.attempt, h.status, h.progress
      FROM stacksaga.saga_history h JOIN stacksaga.sagas s USING (saga_id)
     WHERE s.saga = 'progress' ORDER BY h.started_at, h.attempt;
CREATE FUNCTION progress_line(id uuid) RETURNS SETOF text LANGUAGE sql
    AS $$ SELECT substr(line, 26) FROM stacksaga.saga_timeline(id) AS line WHERE line ~ 'step copy: claimed' $$;
CREATE FUNCTION progress_try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    EXECUTE statement;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN SQLSTATE || ': ' || SQLERRM || ': ' || detail;
END $$;

SELECT lease FROM stacksaga.claim_steps('progress', 'copier') \gset
SELECT * FROM progress_seen;
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 minute', '{"files": 3, "of": 10}');
SELECT * FROM progress_seen;
SELECT * FROM progress_line(:'id');
-- NULL leaves what is there, by default too; JSON null erases it; another one takes its place.
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '2 minutes');
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, progress => NULL);
SELECT progress FROM progress_seen;
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 second', progress => '"half"');
SELECT progress FROM progress_seen;
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 second', progress => 'null');
SELECT progress, progress IS NULL AS is_null FROM progress_seen;
SELECT * FROM progress_line(:'id');
-- Up to 4 kB. Over it the lease is not extended, and what was said before stays.
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '5 minutes', to_jsonb(repeat('x', 4094)));
SELECT length(progress::text) FROM progress_seen;
SELECT length(substring(progress_line FROM 'progress (.*)')) AS shown FROM progress_line(:'id');
SELECT lease_until AS before FROM stacksaga.work WHERE saga_id = :'id' \gset
SELECT progress_try(format('SELECT * FROM stacksaga.extend_step(%L, ''copy'', %s, ''30 minutes'', to_jsonb(repeat(''y'', 4095)))', :'id', :lease));
SELECT progress_try(format('SELECT * FROM stacksaga.extend_step(%L, ''copy'', %s, ''30 minutes'', (SELECT jsonb_agg(n) FROM generate_series(1, 10000) AS n))', :'id', :lease)) ~ '^SG413' AS refused;
SELECT lease_until = :'before' AS same_lease, length(progress::text) AS length FROM stacksaga.work WHERE saga_id = :'id';
-- Nobody else's lease writes it.
SELECT progress_try(format('SELECT * FROM stacksaga.extend_step(%L, ''copy'', %s, ''1 minute'', ''"stolen"'')', :'id', :lease + 1)) ~ '^SG412' AS refused;
SELECT length(progress::text) FROM progress_seen;

-- It is gone with the attempt: it failed, its lease ran out, it was released, it completed.
SELECT stacksaga.fail_step(:'id', 'copy', :lease, 'the disk is full', 'retryable', '0');
SELECT * FROM progress_seen;
SELECT count(progress) FROM stacksaga.work;
SELECT lease FROM stacksaga.claim_steps('progress', 'copier') \gset
SELECT attempt, progress FROM progress_seen WHERE status = 'started';
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 second', '"second"');
SET stacksaga.clock_offset = '10 minutes';
SELECT lease FROM stacksaga.claim_steps('progress', 'copier') \gset
SELECT attempt, status, progress FROM progress_seen;
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 second', '"third"');
SELECT progress FROM progress_seen WHERE status = 'started';
SELECT stacksaga.release_step(:'id', 'copy', :lease);
SELECT count(progress) FROM stacksaga.work;
SELECT lease FROM stacksaga.claim_steps('progress', 'copier') \gset
SELECT progress FROM progress_seen WHERE status = 'started';
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 second', '"fourth"');
SELECT stacksaga.complete_step(:'id', 'copy', :lease, '{"files": 10}');
SELECT step, attempt, status, progress FROM progress_seen;
SELECT count(progress) FROM stacksaga.work;

-- Of compensations, too; a cancel does not touch what is in flight. A saga that can be redacted has no attempt, so none.
SELECT lease FROM stacksaga.claim_steps('progress_check', 'checker') \gset
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'check', :lease, '1 minute', '{"name": "Ann A."}');
SELECT stacksaga.cancel_saga(:'id', 'nobody wants it');
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'check', :lease, '1 minute');
SELECT progress FROM progress_seen WHERE status = 'started';
SELECT stacksaga.fail_step(:'id', 'check', :lease, 'no', 'non_retryable');
SELECT lease, direction FROM stacksaga.claim_steps('progress', 'copier') \gset
\echo :direction
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'copy', :lease, '1 minute', '{"deleted": 2}');
SELECT step, direction, progress FROM progress_seen WHERE status = 'started';
SELECT stacksaga.complete_step(:'id', 'copy', :lease);
SELECT stacksaga.redact_saga(:'id', 'ticket');
SELECT count(progress) FROM progress_seen;
SELECT count(*) FROM stacksaga.work WHERE saga_id = :'id';

-- The old signature is gone.
SELECT count(*) FROM pg_proc WHERE proname = 'extend_step';
RESET stacksaga.clock_offset;
DROP VIEW progress_seen;
DROP FUNCTION progress_line, progress_try;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.step_release, stacksaga.saga_action;
