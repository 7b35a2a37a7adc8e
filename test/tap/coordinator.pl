# The real daemon against a real server: it publishes windows, survives kill -9, a second daemon and a restart
# of the server, and its exit code says why it ends.
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

my %log;

# Starts a master with the name given; its log goes to a file of that name.
sub start_master
{
	my ($name, @options) = @_;
	$log{$name} = "$PostgreSQL::Test::Utils::log_path/coordinator_$name.log";
	return IPC::Run::start(
		[
			$program, 'master', '--name', $name, '--log-level', 'debug', '--http', '',
			'-d', $node->connstr('postgres') . ' user=coordinator', @options
		],
		'<', '/dev/null', '>', '/dev/null', '2>>', $log{$name});
}

sub log_of
{
	my ($name) = @_;
	return slurp_file($log{$name});
}

sub count_of
{
	my ($name, $pattern) = @_;
	return scalar(() = log_of($name) =~ /$pattern/g);
}

sub windows
{
	my ($where) = @_;
	return $node->safe_psql('postgres',
		"SELECT count(*) FROM stacksaga.token_window WHERE $where");
}

# Waits until so many more windows that match are published.
sub wait_for_windows
{
	my ($more, $where, $test) = @_;
	my $target = windows($where) + $more;
	return ok(
		$node->poll_query_until('postgres',
			"SELECT count(*) >= $target FROM stacksaga.token_window WHERE $where"),
		$test);
}

sub stop_master
{
	my ($master, $signal, $test) = @_;
	$master->signal($signal);
	$master->finish;
	return is(($master->results)[0], 0, $test);
}

sub exits_with
{
	my ($code, $pattern, $test, @options) = @_;
	my ($output, $errors);
	IPC::Run::run([ $program, 'master', '--once', @options ], '<', '/dev/null', '>', \$output,
		'2>', \$errors);
	is($? >> 8, $code, "$test: exit code $code");
	return like($errors, $pattern, "$test: says so");
}

my $superuser = $node->connstr('postgres');
my $coordinator = "$superuser user=coordinator";

# Before there is an extension, and before there are grants.
$node->safe_psql('postgres', 'CREATE ROLE coordinator LOGIN');
exits_with(64, qr/log-level/, 'misuse', '--log-level', 'loud');
exits_with(78, qr/CREATE EXTENSION stacksaga/, 'no extension', '-d', $superuser);
$node->create_extension('postgres');
exits_with(77, qr/stacksaga\.grant_usage\('coordinator', 'coordinator'\)/, 'no grants',
	'-d', $coordinator);
exits_with(77, qr/class=permission/, 'no such role', '-d', "$superuser user=nobody");
exits_with(69, qr/sqlstate=3D000/, 'no database', '-d', $node->connstr('nowhere'));
$node->safe_psql('postgres', q{SELECT stacksaga.grant_usage('coordinator', 'coordinator')});
exits_with(65, qr/create_ring/, 'no such ring', '-d', $coordinator, '--region', 'nowhere');
exits_with(0, qr/no active node/, 'a ring without nodes', '-d', $coordinator);

# Windows of a second, and nodes that stay active without a heartbeat for as long as this test takes.
$node->safe_psql('postgres', q{
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
				   ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
	SELECT stacksaga.register_node('a'), stacksaga.register_node('b', weight => 3);
});
exits_with(0, qr/published window/, 'one window by hand', '-d', $coordinator);

# One daemon.
my $first = start_master('first');
wait_for_windows(2, q{publisher = 'first'}, 'the daemon publishes windows');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM stacksaga.token_window
		 WHERE publisher = 'first' AND (published_at >= window_start
			   OR published_at < window_start - interval '900 ms')}),
	0, 'no window is published after its start or before its lead');
my $major = $node->major;
like((split /\n/, log_of('first'))[0],
	qr/msg=coordinating version=\S+ .*server_version="?$major\..*default\/default \(window 1s, lead 900ms\)/,
	'the first line has versions, ring and intervals');

# Nodes take over the slots that were assigned to them, by weight.
my %incarnation = map { split /\|/ }
  split /\n/, $node->safe_psql('postgres', 'SELECT node, incarnation FROM stacksaga.nodes');
ok( $node->poll_query_until('postgres', qq{
		WITH beats AS MATERIALIZED (
			SELECT h.* FROM (VALUES ('a', $incarnation{a}), ('b', $incarnation{b})) AS n(name, i),
				   LATERAL stacksaga.heartbeat_node(n.name, n.i) AS h)
		SELECT (SELECT count(*) FROM beats) = 2 AND (
			SELECT array_agg(share * 256 ORDER BY node) FROM stacksaga.nodes) = '{64,192}'}),
	'the nodes own the shares of their weights');
$node->safe_psql('postgres', "SELECT stacksaga.drain_node('b', $incarnation{b})");
ok( $node->poll_query_until('postgres', qq{
		WITH beats AS MATERIALIZED (
			SELECT h.* FROM stacksaga.heartbeat_node('a', $incarnation{a}) AS h)
		SELECT (SELECT count(*) FROM beats) = 1 AND (
			SELECT share = 1 FROM stacksaga.nodes WHERE node = 'a')}),
	'a draining node is left out of the windows that follow');

# Killed, and started again.
$first->signal('KILL');
eval { $first->finish };
my $epoch = $node->safe_psql('postgres', 'SELECT epoch FROM stacksaga.ring_status');
$first = start_master('first');
wait_for_windows(2, q{publisher = 'first'}, 'a daemon that was killed goes on when started again');
cmp_ok($node->safe_psql('postgres', 'SELECT epoch FROM stacksaga.ring_status'),
	'>', $epoch, 'with higher epochs');

# Two at once.
my $second = start_master('second');
ok( $node->poll_query_until('postgres', q{
		SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = 'coordinator'}),
	'two daemons are connected');
wait_for_windows(4, 'true', 'two concurrent daemons publish');
stop_master($first, 'TERM', 'the first ends with 0 on SIGTERM');
wait_for_windows(2, q{publisher = 'second'}, 'the second goes on alone');
my $published = count_of('first', 'msg="published window"') + count_of('second', 'msg="published window"');
is( windows(q{publisher IN ('first', 'second')}), $published,
	'every window was published by one of them, as it says');
is(count_of($_, 'level=error'), 0, "no error in the log of the $_")
  for qw(first second);

# The server goes away and comes back, cleanly and not.
for my $mode (qw(fast immediate))
{
	$node->stop($mode);
	exits_with(69, qr/class=reconnect/, "a server that was stopped ($mode)", '-d', $coordinator);
	$node->start;
	wait_for_windows(2, q{publisher = 'second'}, "the daemon comes back after a $mode stop");
}
cmp_ok(count_of('second', 'msg=coordinating'), '>=', 3, 'it connected again after each start');
cmp_ok(count_of('second', 'msg="database unavailable"'), '>=', 2, 'and logged the outages');
stop_master($second, 'INT', 'the second ends with 0 on SIGINT');
like(log_of('second'), qr/msg=stopped signal=SIGINT\n\z/, 'and says why');

# A daemon cannot recover its revoked grants by waiting.
my $third = start_master('third');
wait_for_windows(1, q{publisher = 'third'}, 'a third daemon publishes');
$node->safe_psql('postgres', 'REVOKE USAGE ON SCHEMA stacksaga FROM coordinator');
$third->finish;
is(($third->results)[0], 77, 'it ends with 77 when its grants are revoked');

$node->stop;
done_testing();
