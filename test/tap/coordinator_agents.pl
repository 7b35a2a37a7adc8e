# One master, two agents and six workers: each agent assigns its slots to its workers, a killed agent loses
# nothing, and it keeps its slots for rebalance_delay. Then one master for two databases.
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
	CREATE ROLE coordinator LOGIN;
	SELECT stacksaga.grant_usage('coordinator', 'coordinator');
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
				   ('heartbeat_interval', '500 ms'), ('suspect_after', '5 seconds'),
				   ('dead_after', '10 seconds'), ('checkpoint_interval', '2 seconds')) AS s(setting, value);
	CREATE TABLE beating (node text PRIMARY KEY, incarnation bigint NOT NULL);
});
my $connection = $node->connstr('postgres') . ' user=coordinator';

my %log;

sub start_daemon
{
	my ($role, $name, @options) = @_;
	$log{$name} = "$PostgreSQL::Test::Utils::log_path/coordinator_agents_$name.log";
	return IPC::Run::start(
		[
			$program, $role, '--name', $name, '--log-level', 'debug', '--http', '',
			(grep { $_ eq '-d' } @options) ? () : ('-d', $connection), @options
		],
		'<', '/dev/null', '>', '/dev/null', '2>>', $log{$name});
}

sub kill_daemon
{
	my ($daemon) = @_;
	$daemon->signal('KILL');
	eval { $daemon->finish };
	return;
}

# Waits for a condition, and lets the workers that beat do so meanwhile: the first call of each says that
# they live and takes over what an open window gives them.
sub wait_until
{
	my ($condition, $test, $database) = @_;
	return ok(
		$node->poll_query_until($database // 'postgres', qq{
			WITH beats AS MATERIALIZED (
				SELECT count(h.state) AS beats FROM beating b,
					   LATERAL stacksaga.heartbeat_node(b.node, b.incarnation) AS h)
			SELECT beats >= 0 AND ($condition) FROM beats}),
		$test);
}

sub refused
{
	my ($code, $pattern, $test, @arguments) = @_;
	my ($output, $errors);
	IPC::Run::run([ $program, @arguments ], '<', '/dev/null', '>', \$output, '2>', \$errors);
	is($? >> 8, $code, "$test: exit code $code");
	return like($errors, $pattern, "$test: says so");
}

refused(64, qr/--name is required/, 'an agent without a name', 'agent', '-d', $connection);
refused(64, qr/an agent is a node of one ring/, 'an agent of two rings',
	'agent', '--name', 'north', '--cluster', 'one,two', '-d', $connection);
refused(64, qr/--weight/, 'an agent without weight', 'agent', '--name', 'north', '--weight', '0');

# Agents first, then workers, which the ring gives to the agents in turn, then a master.
my %agent = map { $_ => start_daemon('agent', $_) } qw(north south);
wait_until(q{(SELECT count(*) = 2 FROM stacksaga.nodes WHERE kind = 'agent' AND state = 'active')},
	'two agents register');
$node->safe_psql('postgres',
	q{INSERT INTO beating SELECT w, stacksaga.register_node(w)
		FROM (SELECT 'w' || i AS w FROM generate_series(1, 6) AS i) AS w});
is( $node->safe_psql('postgres',
		q{SELECT agent, count(*) FROM stacksaga.nodes WHERE kind = 'worker' GROUP BY agent ORDER BY 1}),
	"north|3\nsouth|3", 'the ring gives workers to them in turn');
my $master = start_daemon('master', 'master');
my $even = q{(SELECT count(*) = 6 AND min(share * 256) >= 42 AND max(share * 256) <= 44
				FROM stacksaga.nodes WHERE kind = 'worker')};
wait_until($even, 'the agents assign equal shares to all workers');
wait_until(q{(SELECT count(DISTINCT agent) = 2 FROM stacksaga.token_window WHERE agent <> ''
				 AND publisher = agent)}, 'each agent publishes its part');
wait_until(q{(SELECT count(*) = 2 AND min((progress ->> 'windows')::bigint) > 0 FROM stacksaga.nodes
			   WHERE kind = 'agent')}, 'and confirms how many it has published');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM stacksaga.slot s JOIN stacksaga.node n ON n.incarnation = s.owner
		 WHERE n.kind = 'agent'}), 0, 'agents own nothing themselves');

# A worker leaves: its agent assigns its slots to the others.
$node->safe_psql('postgres',
	q{SELECT stacksaga.leave_ring(node, incarnation) FROM beating WHERE node = 'w1';
	  DELETE FROM beating WHERE node = 'w1'});
wait_until(q{(SELECT count(*) = 5 AND min(share * 256) >= 50 AND sum(share) = 1
				FROM stacksaga.nodes WHERE kind = 'worker')}, 'the slots of a worker that left are reassigned');

# An agent is killed: its workers keep their slots, and the master assigns slots to them.
my $owners = q{SELECT md5(string_agg(slot || ':' || node, ',' ORDER BY slot))
				 FROM stacksaga.ring_slots('default', 'default')};
my $before = $node->safe_psql('postgres', $owners);
kill_daemon($agent{north});
wait_until(q{(SELECT state = 'dead' FROM stacksaga.nodes WHERE node = 'north')},
	'an agent that was killed is found dead');
wait_until(q{(SELECT count(*) >= 2 FROM stacksaga.token_window
			   WHERE agent = '' AND published_at > stacksaga.clock_now() - interval '3 seconds')},
	'windows go on');
is($node->safe_psql('postgres', $owners), $before, 'its workers keep what they own');
$node->safe_psql('postgres',
	q{SELECT stacksaga.leave_ring(node, incarnation) FROM beating WHERE node = 'w3';
	  DELETE FROM beating WHERE node = 'w3'});
wait_until(q{(SELECT count(*) = 4 AND min(share * 256) >= 63 AND sum(share) = 1
				FROM stacksaga.nodes WHERE kind = 'worker')},
	'the master assigns the slots of one that left to all');

# It comes back under its name.
$agent{north} = start_daemon('agent', 'north');
my $since = $node->safe_psql('postgres', 'SELECT epoch FROM stacksaga.ring_status');
wait_until(qq{(SELECT count(*) >= 2 FROM stacksaga.token_window
				WHERE agent = 'north' AND epoch > $since)}, 'an agent that comes back assigns slots again');

# With rebalance_delay the slots of a lost agent are frozen, those of its dead worker too.
$node->safe_psql('postgres',
	q{SELECT stacksaga.alter_ring('default', 'default', 'rebalance_delay', '1 hour')});
kill_daemon($agent{south});
$node->safe_psql('postgres', q{DELETE FROM beating WHERE node = 'w2'});
wait_until(q{(SELECT count(*) = 2 FROM stacksaga.nodes WHERE node IN ('south', 'w2') AND state = 'dead')},
	'an agent and a worker of it die');
my $held = q{(SELECT share * 256 FROM stacksaga.nodes WHERE node = 'w2')};
my $frozen = $node->safe_psql('postgres', "SELECT $held");
cmp_ok($frozen, '>=', 63, 'the worker had its share');
my $epoch = $node->safe_psql('postgres', 'SELECT epoch FROM stacksaga.ring_status');
wait_until(qq{(SELECT count(*) >= 3 FROM stacksaga.token_window
				WHERE agent = '' AND epoch > $epoch)}, 'windows go on while slots are frozen');
is($node->safe_psql('postgres', "SELECT $held"), $frozen, 'frozen slots stay');
$agent{south} = start_daemon('agent', 'south');
wait_until(q{(SELECT count(*) = 3 AND min(share * 256) >= 84 AND sum(share) = 1
				FROM stacksaga.nodes WHERE kind = 'worker' AND state = 'active')},
	'a dead worker\'s slots are reassigned when its agent is back');

# The same again, until there is no delay any more.
kill_daemon($agent{south});
$node->safe_psql('postgres', q{DELETE FROM beating WHERE node = 'w4'});
wait_until(q{(SELECT count(*) = 2 FROM stacksaga.nodes WHERE node IN ('south', 'w4') AND state = 'dead')},
	'the agent dies again, and another worker');
$node->safe_psql('postgres',
	q{SELECT stacksaga.alter_ring('default', 'default', 'rebalance_delay', '0')});
wait_until(q{(SELECT count(*) = 2 AND min(share * 256) >= 127 AND sum(share) = 1
				FROM stacksaga.nodes WHERE kind = 'worker' AND state = 'active')},
	'without a delay the slots are reassigned');

# The name is taken by another; a stop by signal leaves the ring.
my $namesake = start_daemon('agent', 'north');
$agent{north}->finish;
is(($agent{north}->results)[0], 75, 'an agent whose name is taken ends');
like(slurp_file($log{north}), qr/msg=stopping .*sqlstate=SG412/, 'and says so');
$namesake->signal('TERM');
$namesake->finish;
is(($namesake->results)[0], 0, 'SIGTERM ends an agent well');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.nodes WHERE node = 'north'}),
	0, 'and takes it out of the ring');
$master->signal('TERM');
$master->finish;

# check-config tries each of several databases, and reports on each.
my @other = ('-d', 'dbname=nowhere ' . $connection =~ s/dbname=\S+//r);
refused(69, qr/not usable: \S*nowhere\S*: .*database "nowhere" does not exist/, 'one of two databases is missing',
	'check-config', '-d', $connection, @other);
refused(69, qr/not usable: \S*nowhere/, 'and so is the first', 'check-config', @other, '-d', $connection);
my $output;
IPC::Run::run([ $program, 'check-config', '-d', $connection, '-d', "$connection application_name=other" ],
	'<', '/dev/null', '>', \$output);
is($?, 0, 'two databases are usable');
is(scalar(() = $output =~ /^connected: \S+ has stacksaga \d/mg), 2, 'and each is reported');

# One master for two databases: an error in one does not delay the other.
for my $database (qw(one two))
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->create_extension($database);
	$node->safe_psql($database, q{
		SELECT stacksaga.grant_usage('coordinator', 'coordinator');
		SELECT stacksaga.alter_ring('default', 'default', setting, value)
		  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
					   ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
		CREATE TABLE beating (node text PRIMARY KEY, incarnation bigint NOT NULL);
		INSERT INTO beating VALUES ('only', stacksaga.register_node('only'))});
}
$master = start_daemon('master', 'both',
	map { ('-d', $node->connstr($_) . ' user=coordinator') } qw(one two));
my $owned = q{(SELECT share = 1 FROM stacksaga.nodes WHERE node = 'only')};
wait_until($owned, "windows of database $_", $_) for qw(one two);
$node->safe_psql('one', 'REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA stacksaga FROM coordinator');
my $windows = q{SELECT count(*) FROM stacksaga.token_window WHERE publisher = 'both'};
my $later = $node->safe_psql('two', $windows) + 3;
wait_until("($windows) >= $later", 'the other database goes on', 'two');
like(slurp_file($log{both}), qr/msg="database not served" on=\S*one\b.*sqlstate=42501/,
	'and the log says which one is not served');
$node->safe_psql('one', q{SELECT stacksaga.grant_usage('coordinator', 'coordinator')});
my $more = $node->safe_psql('one', $windows) + 1;
wait_until("($windows) >= $more", 'usable again, it is served again', 'one');
$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'SIGTERM ends it');

$node->stop;
done_testing();
