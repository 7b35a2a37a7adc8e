# A handler that ends its process every time is run three times: then its saga is parked, whatever
# its policy allows, also where it runs ahead in one transaction with the steps before it. The server lives, other sagas go on, and who was told to quit is not charged.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('poison');
$node->init;
$node->append_conf('postgresql.conf', "restart_after_crash = on\nstacksaga.workers = 2");
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');

# Handlers that end their process, each in its own way. What they did is undone, so the server's log
# says how often they ran.
$node->safe_psql('postgres', q{
	CREATE FUNCTION testing_kill(signal integer) RETURNS integer
		LANGUAGE c AS 'stacksaga_testing', 'stacksaga_kill';
	CREATE FUNCTION testing_exit() RETURNS void
		LANGUAGE c AS 'stacksaga_testing', 'stacksaga_exit';
	CREATE FUNCTION note_run(c stacksaga.step_call) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		RAISE LOG 'killer runs: %', c.saga_id;
	END $$;
	CREATE FUNCTION out_of_memory(c stacksaga.step_call) RETURNS jsonb
		LANGUAGE sql AS $$ SELECT note_run(c); SELECT to_jsonb(testing_kill(9)) $$;
	CREATE FUNCTION segfault(c stacksaga.step_call) RETURNS jsonb
		LANGUAGE sql AS $$ SELECT note_run(c); SELECT to_jsonb(testing_kill(11)) $$;
	CREATE FUNCTION terminate(c stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		SELECT note_run(c); SELECT to_jsonb(pg_terminate_backend(pg_backend_pid())) $$;
	CREATE FUNCTION leave(c stacksaga.step_call) RETURNS jsonb
		LANGUAGE sql AS $$ SELECT note_run(c); SELECT to_jsonb(testing_exit()::text) $$;
	CREATE FUNCTION is_it_done(c stacksaga.step_call) RETURNS text
		LANGUAGE sql AS $$ SELECT note_run(c); SELECT testing_kill(11)::text $$;
	CREATE FUNCTION refuse(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
	END $$;
	CREATE FUNCTION forget(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'nobody knows' USING ERRCODE = 'SR504';
	END $$;
	CREATE TABLE switch (is_on boolean NOT NULL);
	INSERT INTO switch VALUES (true);
	CREATE FUNCTION compute(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE (SELECT is_on FROM switch) LOOP END LOOP;
		RETURN '1';
	END $$;
	SELECT stacksaga.define_saga(f, ARRAY[
		stacksaga.sql_step('before', 'answer(stacksaga.step_call)'),
		stacksaga.sql_step('killer', f || '(stacksaga.step_call)', retry => stacksaga.retry_policy(
			max_attempts => 0, initial_interval => '0'))])
	  FROM unnest(ARRAY['out_of_memory', 'segfault', 'terminate', 'leave']) AS f;
	SELECT stacksaga.define_saga('asked', ARRAY[stacksaga.sql_step('killer',
		'forget(stacksaga.step_call)', verify => 'is_it_done(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0'))]);
	SELECT stacksaga.define_saga('once', ARRAY[stacksaga.sql_step('killer',
		'terminate(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 1))]);
	SELECT stacksaga.define_saga('once ahead', ARRAY[
		stacksaga.sql_step('before', 'answer(stacksaga.step_call)'),
		stacksaga.sql_step('killer', 'terminate(stacksaga.step_call)',
			retry => stacksaga.retry_policy(max_attempts => 1))]);
	SELECT stacksaga.define_saga('undo', ARRAY[
		stacksaga.sql_step('killer', 'answer(stacksaga.step_call)', 'terminate(stacksaga.step_call)'),
		stacksaga.sql_step('undone first', 'answer(stacksaga.step_call)', 'answer(stacksaga.step_call)'),
		stacksaga.sql_step('refused', 'refuse(stacksaga.step_call)')],
		compensation_retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0'));
	CREATE FUNCTION testing_hold_and_quit() RETURNS void
		LANGUAGE c AS 'stacksaga_testing', 'stacksaga_hold_and_quit';
	CREATE FUNCTION testing_resume() RETURNS void
		LANGUAGE c AS 'stacksaga_testing', 'stacksaga_resume';
	CREATE SEQUENCE quits;
	CREATE FUNCTION is_told(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF nextval('quits') = 1 THEN
			PERFORM testing_hold_and_quit();
		END IF;
		RETURN '1';
	END $$;
	CREATE FUNCTION comes_next(stacksaga.step_call) RETURNS jsonb
		LANGUAGE sql AS $$ SELECT testing_resume(); SELECT '1'::jsonb $$;
	SELECT stacksaga.define_saga('told', ARRAY[stacksaga.sql_step('first', 'is_told(stacksaga.step_call)'),
		stacksaga.sql_step('second', 'comes_next(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('compute', ARRAY[stacksaga.sql_step('only',
		'compute(stacksaga.step_call)', timeout => '1 hour')])});

# In one transaction, under ids that are known before it: the server may crash before it answers.
sub start_sagas
{
	my @ids = split /\n/, $node->safe_psql('postgres',
		'SELECT gen_random_uuid() FROM generate_series(1, ' . @_ . ')');
	my $list = join(', ', map { "stacksaga.start_saga('$_[$_]', saga_id => '$ids[$_]')" } 0 .. $#_);
	$node->psql('postgres', "SELECT $list");
	return @ids;
}

# The server may be away. A saga that is tried more than three times never comes to its end.
sub await_status
{
	my ($id, $status) = @_;
	$node->poll_query_until('postgres', qq{
		SELECT status = '$status' OR (SELECT count(*) > 3 OR sum(crashes) > 3 FROM stacksaga.failure WHERE saga_id = '$id')
		  FROM stacksaga.sagas WHERE saga_id = '$id'});
	$node->psql('postgres', "SELECT status FROM stacksaga.sagas WHERE saga_id = '$id'",
		stdout => \my $found);
	return ($found // '') eq $status;
}

sub failures
{
	my ($id) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT string_agg(attempt || ' ' || error_class || ' ' || worker || ': ' || error, E'\n'
		                  ORDER BY attempt)
		  FROM stacksaga.saga_history WHERE saga_id = '$id' AND status = 'failed'});
}

# How often the function that ends its process has run for this saga.
sub runs
{
	my ($id) = @_;
	return scalar(() = slurp_file($node->logfile) =~ /killer runs: $id/g);
}

sub files
{
	return sort map { s{.*/}{}r } glob($node->data_dir . '/pg_stat_tmp/stacksaga.*.[1-9]');
}

is($node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'), 2, 'two workers run');
wait_until_works($node, 'postgres', 2);
my $database = $node->safe_psql('postgres',
	q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
is_deeply([ files() ], [ "stacksaga.$database.1", "stacksaga.$database.2" ],
	'each has its file');

foreach my $saga (qw(out_of_memory segfault terminate leave asked undo))
{
	my ($killer, $other) = start_sagas($saga, 'answer');
	ok(await_status($killer, 'parked'), "$saga: the saga is parked in the end");
	ok(await_status($other, 'completed'), "$saga: another one is done");
	my $failures = failures($killer);
	my @lines = split /\n/, $failures;
	is(runs($killer), 3, "$saga: after three attempts");
	# Verify is asked about the same attempt each time, of which the history has one row.
	my ($class, $before, $rows) =
	  $saga eq 'asked' ? ('unknown', 'nobody knows; ', 1) : ('retryable', '', 3);
	is(scalar(grep { /^\d $class .*worker-\d: ${before}the handler ended its process$/ } @lines),
		$rows, "$saga: its history says why") or diag($failures);
	is($node->safe_psql('postgres', qq{
		SELECT parked_step || ' ' || error FROM stacksaga.saga WHERE saga_id = '$killer'}),
		$saga eq 'undo' ? '1 no' : ($saga eq 'asked' ? 1 : 2) . ' the handler ended its process',
		"$saga: and so does the saga, unless it compensates for another reason");
}
foreach my $saga ('once', 'once ahead')
{
	my ($once) = start_sagas($saga);
	ok(await_status($once, 'failed'), "$saga: a policy of fewer attempts holds");
	is(scalar(() = failures($once) =~ /ended its process/g), 1, "$saga: one attempt failed");
	is(runs($once), 1, "$saga: it was run once");
}

# Told to quit just before the next step is written down: that step is not at fault either.
my ($told) = start_sagas('told');
ok(await_status($told, 'completed'), 'a step that begins when its worker has been told to quit is done later');
is(failures($told), '', 'and is not charged');

# In the middle of a handler: a shutdown, an order to quit, and a crash elsewhere are not its fault.
my ($innocent) = start_sagas('compute');

# The worker in the handler, once there is one that is none of these.
sub worker_in_step
{
	my @not = (0, @_);
	my $query = sprintf(q{SELECT a.pid FROM pg_stat_activity a JOIN pg_locks l USING (pid)
		 WHERE a.backend_type = 'stacksaga worker' AND l.relation = 'switch'::regclass
		   AND a.pid NOT IN (%s)}, join(',', @not));
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($query) AS w");
	return $node->safe_psql('postgres', $query);
}

my $victim = worker_in_step();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($victim)");
$victim = worker_in_step($victim);
wait_for_workers($node, 'postgres', 2);
my ($bystander) = grep { $_ != $victim } worker_pids($node, 'postgres');
my $offset = -s $node->logfile;
kill 'KILL', $bystander;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
$node->poll_query_until('postgres', 'SELECT true');
foreach my $mode ('fast', 'immediate')
{
	worker_in_step($victim);
	$node->stop($mode);
	$node->start;
	$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
}
worker_in_step();
$node->safe_psql('postgres', 'UPDATE switch SET is_on = false');
ok(await_status($innocent, 'completed'), 'the step of a worker that was told to quit is done');
is(failures($innocent), '', 'and was never charged');

# What is left behind.
$node->safe_psql('postgres', 'CREATE DATABASE gone');
my $gone = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'gone'});
$node->safe_psql('postgres', 'DROP DATABASE gone');
append_to_file($node->data_dir . "/pg_stat_tmp/stacksaga.$gone.1", 'anything');
$node->stop('fast');
is_deeply([ files() ], ["stacksaga.$gone.1"], 'an orderly end leaves no file');
append_to_file($node->data_dir . "/pg_stat_tmp/stacksaga.$database.1", 'not what we write' x 9);
$node->start;
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
wait_until_works($node, 'postgres', 2);
is_deeply([ files() ], [ "stacksaga.$database.1", "stacksaga.$database.2" ],
	'those of a database that is gone are removed');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'and a file with something else is no harm');

# A worker that cannot have its file works without.
$node->stop('fast');
mkdir $node->data_dir . "/pg_stat_tmp/stacksaga.$database.1" or die $!;
$offset = -s $node->logfile;
$node->start;
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
$node->wait_for_log(qr/could not open file "pg_stat_tmp\/stacksaga\.$database\.1"/, $offset);
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a worker without its file works');

$node->stop;
done_testing();
