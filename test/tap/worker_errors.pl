# A problem of one saga does not delay the others: errors that are not a handler's, a step that
# cannot be called, and a cancel in the middle of a handler.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('errors');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
wait_until_works($node, 'postgres', 1);

sub await
{
	my ($id) = @_;
	return $node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '120 seconds')");
}

# A trigger on a table of ours raises for some sagas: when their marker is written, and for one of
# them also when its failure is.
$node->safe_psql('postgres', q{
	CREATE TABLE broken (saga_id uuid PRIMARY KEY);
	CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.broken b WHERE b.saga_id = NEW.saga_id) THEN
			RAISE EXCEPTION 'nothing can be written for %', NEW.saga_id;
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER break BEFORE INSERT ON stacksaga.effect FOR EACH ROW EXECUTE FUNCTION break();
	CREATE TRIGGER break BEFORE INSERT ON stacksaga.failure FOR EACH ROW EXECUTE FUNCTION break();
	CREATE FUNCTION fail(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'never';
	END $$;
	SELECT stacksaga.define_saga('fail', ARRAY[
		stacksaga.sql_step('only', 'fail(stacksaga.step_call)')])});
my $offset = -s $node->logfile;
# All of them due at once, the broken ones among the others; in one batch.
my @ids = split /\n/, $node->safe_psql('postgres', q{
	WITH started AS MATERIALIZED (
		SELECT n, (stacksaga.start_saga(CASE n WHEN 7 THEN 'fail' ELSE 'answer' END)).saga_id
		  FROM generate_series(1, 12) AS n),
	marked AS (INSERT INTO broken SELECT saga_id FROM started WHERE n IN (3, 7))
	SELECT saga_id FROM started ORDER BY n});
foreach my $n (1 .. 12)
{
	next if $n == 3 or $n == 7;
	is(await($ids[ $n - 1 ]), 'completed', "saga $n goes on beside the broken ones");
}
foreach my $n (3, 7)
{
	my $broken = $ids[ $n - 1 ];
	$node->wait_for_log(qr/saga $broken: step 1 is postponed for \d s/, $offset);
	is($node->safe_psql('postgres', qq{
		SELECT status || ' ' || attempt FROM stacksaga.sagas WHERE saga_id = '$broken'}),
		'pending 0', "saga $n was postponed, and not charged an attempt");
}
ok($node->poll_query_until('postgres', q{
	SELECT bool_and(paused_until > stacksaga.clock_now()) FROM stacksaga.sagas
	 WHERE saga_id IN (SELECT saga_id FROM broken)}), 'to be tried again');
ok($node->poll_query_until('postgres', 'SELECT failures >= 2 FROM stacksaga.worker_stats'),
	'the statistics of the worker count it');
my $broken = $ids[2];
is(log_count($node, qr/ERROR:  nothing can be written for $broken/, $offset),
	log_count($node, qr/saga $broken: step 1 is postponed/, $offset),
	'the log says why, each time');
$node->safe_psql('postgres', 'DELETE FROM broken');
is(await($ids[2]), 'completed', 'a saga that was postponed is done when it can be');
is(await($ids[6]), 'failed', 'and so is the other one');
$node->safe_psql('postgres', q{
	DROP TRIGGER break ON stacksaga.effect; DROP TRIGGER break ON stacksaga.failure});

# A deferred trigger on a table of ours raises: for the item that wrote the row, which is charged.
$node->safe_psql('postgres', q{
	CREATE CONSTRAINT TRIGGER break AFTER INSERT ON stacksaga.effect
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION break();
	SELECT stacksaga.define_saga('stubborn', ARRAY[
		stacksaga.sql_step('only', 'answer(stacksaga.step_call)',
			retry => stacksaga.retry_policy(max_attempts => 0,
				initial_interval => '100 milliseconds', retry_on => '{P0001}'))])});
@ids = split /\n/, $node->safe_psql('postgres', q{
	WITH started AS MATERIALIZED (
		SELECT n, (stacksaga.start_saga('stubborn')).saga_id FROM generate_series(1, 5) AS n),
	marked AS (INSERT INTO broken SELECT saga_id FROM started WHERE n = 1)
	SELECT saga_id FROM started ORDER BY n});
foreach my $n (2 .. 5)
{
	is(await($ids[ $n - 1 ]), 'completed', "saga $n goes on beside one whose marker is refused");
}
ok($node->poll_query_until('postgres', qq{
	SELECT count(*) >= 2 AND bool_and(error LIKE 'nothing can be written%') FROM stacksaga.failure
	 WHERE saga_id = '$ids[0]'}), 'that one is charged, with the reason');
$node->safe_psql('postgres', 'DELETE FROM broken');
is(await($ids[0]), 'completed', 'and done when it can be');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.failure WHERE saga_id IN (}
	. join(',', map { "'$_'" } @ids[ 1 .. 4 ]) . ')'), '0', 'nobody else is charged');
$node->safe_psql('postgres', 'DROP TRIGGER break ON stacksaga.effect');

# The results of the steps before are too large for one value: the step was not called, so its saga parks.
$node->append_conf('postgresql.conf', "stacksaga.max_payload = '200MB'");
$node->reload;
$node->safe_psql('postgres', q{
	CREATE FUNCTION large(stacksaga.step_call) RETURNS jsonb
		LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', 140000000)) $$;
	SELECT stacksaga.define_saga('large', ARRAY[
		stacksaga.sql_step('first', 'large(stacksaga.step_call)'),
		stacksaga.sql_step('second', 'large(stacksaga.step_call)'),
		stacksaga.sql_step('third', 'answer(stacksaga.step_call)')])});
is(run_saga($node, 'postgres', 'large'), 'parked', 'a saga whose step cannot be called is parked');
is($node->safe_psql('postgres', q{
	SELECT step || ' ' || error_class || ': ' || left(error, 40) FROM stacksaga.saga_history
	 WHERE status = 'failed' AND error LIKE 'total size%'}),
	'third non_retryable: total size of jsonb object elements exce', 'and its history says why');

# An operator cancels the worker in the middle of a handler.
$node->safe_psql('postgres', q{
	CREATE FUNCTION wait(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(1);
		RETURN '2';
	END $$;
	SELECT stacksaga.define_saga('wait', ARRAY[stacksaga.sql_step('only', 'wait(stacksaga.step_call)',
		timeout => '1 hour', retry => stacksaga.retry_policy(initial_interval => '0'))])});
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $id = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('wait')});
my $waiting = q{SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	 WHERE a.backend_type = 'stacksaga worker' AND NOT l.granted};
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($waiting) AS w");
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM ($waiting) AS w");
$node->poll_query_until('postgres', qq{
	SELECT count(*) = 1 FROM stacksaga.saga_history WHERE saga_id = '$id' AND status = 'failed'});
$holder->quit;
is(await($id), 'completed', 'a step that was cancelled from outside is tried again');
is($node->safe_psql('postgres', qq{
	SELECT error_class || ': ' || error FROM stacksaga.saga_history
	 WHERE saga_id = '$id' AND status = 'failed'}),
	'retryable: canceling statement due to user request', 'as a retryable failure');

# A lock of the session that a handler leaves behind does not stay in the worker's.
$node->safe_psql('postgres', q{
	CREATE FUNCTION leave(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_lock(4711);
		RETURN '3';
	END $$;
	SELECT stacksaga.define_saga('leave', ARRAY[
		stacksaga.sql_step('only', 'leave(stacksaga.step_call)')])});
is(run_saga($node, 'postgres', 'leave'), 'completed', 'a step that takes a lock of its session');
ok($node->poll_query_until('postgres',
		q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711)}),
	'and leaves it to nobody');

# What a handler leaves for the commit would be run as the worker, a superuser.
$node->safe_psql('postgres', q{
	CREATE TABLE read_as (who text);
	CREATE FUNCTION peek() RETURNS integer LANGUAGE sql AS
		$$ INSERT INTO read_as VALUES (current_user) RETURNING 1 $$;
	CREATE FUNCTION hold(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE 'DECLARE later CURSOR WITH HOLD FOR SELECT peek()';
		RETURN '4';
	END $$;
	SELECT stacksaga.define_saga('hold', ARRAY[
		stacksaga.sql_step('only', 'hold(stacksaga.step_call)')])});
is(run_saga($node, 'postgres', 'hold'), 'failed', 'a step that leaves a cursor WITH HOLD has failed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM read_as'), '0', 'and nobody has read it');

# Nor are the temporary tables of one handler there for another, of the same role or not, in the session of the worker.
$node->safe_psql('postgres', q{
	CREATE ROLE trapper; CREATE ROLE trapped;
	SELECT stacksaga.grant_usage(r, 'operator') FROM unnest('{trapper,trapped}'::name[]) AS r;
	GRANT CREATE ON SCHEMA public TO trapper, trapped;
	GRANT TEMPORARY ON DATABASE postgres TO trapper, trapped;
	GRANT SELECT, INSERT ON read_as TO trapper, trapped;
	SET ROLE trapper;
	CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.read_as VALUES (current_user);
		RETURN NEW;
	END $$;
	CREATE FUNCTION lay(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		CREATE TEMP TABLE IF NOT EXISTS scratch (n integer);
		GRANT ALL ON scratch TO PUBLIC;
		CREATE OR REPLACE TRIGGER spring BEFORE INSERT ON scratch FOR EACH ROW EXECUTE FUNCTION public.spring();
		RETURN '5';
	END $$;
	SELECT stacksaga.define_saga('lay', ARRAY[
		stacksaga.sql_step('only', 'lay(stacksaga.step_call)')]);
	SET ROLE trapped;
	CREATE FUNCTION walk(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		CREATE TEMP TABLE IF NOT EXISTS scratch (n integer);
		INSERT INTO scratch VALUES (1);
		RETURN (SELECT to_jsonb(count(*)) FROM scratch);
	END $$;
	SELECT stacksaga.define_saga('walk', ARRAY[
		stacksaga.sql_step('only', 'walk(stacksaga.step_call)')])});
is(run_saga($node, 'postgres', 'lay'), 'completed', 'a step leaves a temporary table with a trigger');
is(run_saga($node, 'postgres', 'walk'), 'completed', 'and a step of another role uses its name');
is($node->safe_psql('postgres', 'SELECT count(*) FROM read_as'), '0', 'and the trigger is not fired');
is(run_saga($node, 'postgres', 'walk'), 'completed', 'a role makes its own again');
is($node->safe_psql('postgres', q{
	SELECT string_agg((output -> 'only')::text, ' ' ORDER BY created_at) FROM stacksaga.sagas WHERE saga = 'walk'}),
	'1 1', 'without what was in it');

# SET CONSTRAINTS lasts to the end of the transaction, and so not to the next step of the same turn.
$node->safe_psql('postgres', q{
	CREATE TABLE parent (id integer PRIMARY KEY);
	CREATE TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION order_of(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO child VALUES ((call.input ->> 0)::integer);
		INSERT INTO parent VALUES ((call.input ->> 0)::integer);
		SET CONSTRAINTS ALL IMMEDIATE;
		RETURN '6';
	END $$;
	SELECT stacksaga.define_saga('order', ARRAY[
		stacksaga.sql_step('only', 'order_of(stacksaga.step_call)')]);
	SELECT count(*) FROM stacksaga.start_sagas('order',
		ARRAY(SELECT jsonb_build_array(n) FROM generate_series(1, 8) n))});
ok($node->poll_query_until('postgres', q{
	SELECT bool_and(status IN ('completed', 'failed')) FROM stacksaga.sagas WHERE saga = 'order'}),
	'steps that set their constraints come to an end');
is($node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE status = 'completed') FROM stacksaga.sagas WHERE saga = 'order'}),
	'8', 'and none is checked by what another one has set');

$node->stop;
done_testing();
