-- run_pending() finds what fell due long ago, also where the entries of work that is done make a search long: it then
-- begins where the last one ended, and says that nothing is due only after a search from the beginning.
BEGIN;
CREATE FUNCTION run_pending_old(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
SELECT stacksaga.define_saga('run pending old', ARRAY[
    stacksaga.sql_step('a', 'public.run_pending_old(stacksaga.step_call)')]);
SELECT count(*) FROM stacksaga.start_sagas('run pending old', array_fill('{}'::jsonb, ARRAY[10000]));
SELECT count(*) FROM stacksaga.start_sagas('run pending old', array_fill('{}'::jsonb, ARRAY[10000]));
SELECT count(*) FROM stacksaga.start_sagas('run pending old', array_fill('{}'::jsonb, ARRAY[10000]));
SELECT stacksaga.run_pending(30000);
SELECT stacksaga.run_pending();
SET LOCAL stacksaga.clock_offset = '-1 hour';
SELECT count(*) FROM stacksaga.start_saga('run pending old');
SET LOCAL stacksaga.clock_offset = '0';
SELECT stacksaga.run_pending();
ROLLBACK;
