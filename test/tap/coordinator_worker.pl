# The external worker: it does due work, comes back after the server, is watched as a node, and leaves
# when it is told to.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN;
	CREATE TABLE done (saga_id uuid, attempt integer);
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.done VALUES (call.saga_id, call.attempt);
		IF call.input ? 'wait' THEN
			PERFORM pg_advisory_lock_shared(7);
			PERFORM pg_advisory_unlock_shared(7);
		END IF;
		RETURN '{}';
	END $$;
	SELECT stacksaga.define_saga('one', ARRAY[stacksaga.sql_step('act', 'public.act(stacksaga.step_call)',
		timeout => '10 minutes')]);
	SELECT stacksaga.alter_ring('default', 'default', 'heartbeat_interval', '100 ms')});

sub work_ends_with
{
	my ($code, $pattern, $test, @options) = @_;
	my $errors = '';
	IPC::Run::run([ $program, 'worker', '--http', '', @options ], '<', '/dev/null', '>', \my $out,
		'2>', \$errors);
	is($? >> 8, $code, "$test: exit code $code");
	return like($errors, $pattern, "$test: says so");
}
my @as_worker = ('-d', $node->connstr('postgres') . ' user=worker');
work_ends_with(77, qr/grant_usage.*'worker', 'operator'/, 'no grants', @as_worker);
$node->safe_psql('postgres', q{
	SELECT stacksaga.grant_usage('worker', k) FROM (VALUES ('operator'), ('coordinator')) AS v(k)});
work_ends_with(65, qr/create_ring/, 'no such ring', @as_worker, '--cluster', 'nowhere');
work_ends_with(64, qr/serves one ring/, 'two rings', '--cluster', 'a,b');

my $log = "$PostgreSQL::Test::Utils::log_path/worker.log";
my $worker;
sub start_worker
{
	$worker = IPC::Run::start(
		[ $program, 'worker', '--name', 'outside', '--http', '', '--log-level', 'debug', @as_worker, @_ ],
		'<', '/dev/null', '>', '/dev/null', '2>>', $log);
	return;
}
start_worker();
ok($node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM stacksaga.nodes WHERE node = 'outside' AND state = 'active'}),
	'it registers as a node');
$node->safe_psql('postgres', q{SELECT stacksaga.start_sagas('one',
	(SELECT array_agg('{}'::jsonb) FROM generate_series(1, 250)))});
my $all_done = q{SELECT count(*) = %d FROM stacksaga.sagas WHERE status = 'completed'};
ok($node->poll_query_until('postgres', sprintf($all_done, 250)), 'it does what is due');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT saga_id) FROM done'), '250|250',
	'each once');
ok($node->poll_query_until('postgres', q{
		SELECT (progress ->> 'items')::int >= 250 FROM stacksaga.nodes WHERE node = 'outside'}),
	'and tells its progress when it is asked');

$node->restart('immediate');
$node->safe_psql('postgres', q{SELECT FROM stacksaga.start_saga('one')});
ok($node->poll_query_until('postgres', sprintf($all_done, 251)), 'it comes back after the server');

# A long step: it beats meanwhile, and SIGTERM lets the step end.
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(7)');
$node->safe_psql('postgres', q{SELECT FROM stacksaga.start_saga('one', '{"wait": true}')});
ok($node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'worker' AND wait_event = 'advisory'}),
	'a step takes long');
my $beat = q{SELECT heartbeat_at FROM stacksaga.node WHERE node = 'outside'};
my $before = $node->safe_psql('postgres', $beat);
ok($node->poll_query_until('postgres', "SELECT ($beat) > '$before'"), 'the node beats meanwhile');
$worker->signal('TERM');
ok($node->poll_query_until('postgres', q{
		SELECT state = 'draining' FROM stacksaga.nodes WHERE node = 'outside'}),
	'told to end, it drains');
$holder->query_safe('SELECT pg_advisory_unlock(7)');
$holder->quit;
$worker->finish;
is(($worker->results)[0], 0, 'and ends');
is($node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM stacksaga.sagas WHERE status = 'completed'),
			   (SELECT count(*) FROM stacksaga.nodes WHERE node = 'outside')}),
	'252|0', 'the step is done and the node has left');
like(slurp_file($log), qr/msg="left the ring"/, 'which the log tells');

# Another of the same name fences it.
start_worker();
ok($node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM stacksaga.nodes WHERE node = 'outside'}), 'it is started again');
$node->safe_psql('postgres', q{SELECT stacksaga.register_node('outside')});
$worker->finish;
is(($worker->results)[0], 75, 'it ends when another one takes its name');
like(slurp_file($log), qr/sqlstate=SG412/, 'and says why');

done_testing();
