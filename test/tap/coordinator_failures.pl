# The failures of docs/coordination.md that no other test runs, each with its effect and its end: one master,
# an agent and four workers of the server. Nodes that only send heartbeats stand for services.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use StacksagaPrograms;
use StacksagaWorkers;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', q{
stacksaga.workers = 4
stacksaga.coordination = 'coordinator'
stacksaga.poll_interval = '200ms'
stacksaga.worker_rings = 'default/default'
});
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE coordinator LOGIN;
	SELECT stacksaga.grant_usage('coordinator', 'coordinator');
	SELECT stacksaga.create_ring('eu', 'assigned');
	SELECT stacksaga.alter_ring(region, cluster, setting, value)
	  FROM (VALUES ('default', 'default'), ('eu', 'assigned')) AS r(region, cluster),
		   (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'), ('heartbeat_interval', '200 ms'),
				   ('suspect_after', '1 second'), ('dead_after', '2 seconds'),
				   ('checkpoint_interval', '500 ms')) AS s(setting, value);
	CREATE TABLE beating (node text PRIMARY KEY, incarnation bigint NOT NULL, reports boolean);
	CREATE FUNCTION beat(b beating) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM stacksaga.heartbeat_node(b.node, b.incarnation);
		IF b.reports THEN
			PERFORM stacksaga.acknowledge_checkpoint(b.node, b.incarnation, '{}');
		END IF;
		RETURN true;
	END $$});
define_answer($node, 'postgres');

my $programs = StacksagaPrograms->new;
my $connection = $node->connstr('postgres');
$programs->add('master', sub {
	return ($program, 'master', '--name', 'master', '--http', '', '--region', 'default,eu',
		'--cluster', 'default,assigned', '-d', "$connection user=coordinator");
});
$programs->add('agent', sub {
	return ($program, 'agent', '--name', 'agent', '--http', '', '--region', 'eu', '--cluster', 'assigned',
		'-d', "$connection user=coordinator");
});

# Until a condition holds; meanwhile the nodes of table beating send heartbeats, and some report their progress.
sub wait_until
{
	my ($condition, $test) = @_;
	return ok($node->poll_query_until('postgres', qq{
			WITH beats AS MATERIALIZED (SELECT count(beat(b)) AS beats FROM beating AS b)
			SELECT beats >= 0 AND ($condition) FROM beats}), $test);
}

# The slots that a node owns, as SQL.
sub slots_of
{
	my ($name) = @_;
	return "(SELECT coalesce(sum(share), 0) * 256 FROM stacksaga.nodes WHERE node = '$name')";
}

sub state_of
{
	my ($name) = @_;
	return "(SELECT state FROM stacksaga.nodes WHERE node = '$name')";
}

my $whole = q{(SELECT sum(share) = 1 FROM stacksaga.nodes WHERE region = 'default' AND state = 'active')};
my $windows = q{SELECT count(*) FROM stacksaga.token_window JOIN stacksaga.ring USING (ring_id)
	WHERE region = 'default' AND agent = '' AND window_start > stacksaga.clock_now()};
sub windows_go_on
{
	my ($test) = @_;
	my $epoch = $node->safe_psql('postgres',
		q{SELECT epoch FROM stacksaga.ring_status WHERE region = 'default'});
	return wait_until(qq{(SELECT count(*) >= 2 FROM stacksaga.token_window JOIN stacksaga.ring USING (ring_id)
		WHERE region = 'default' AND agent = '' AND epoch > $epoch)}, $test);
}

# Stops a worker of the server while it runs no transaction, so that it holds no lock that others need.
my %frozen;
sub freeze
{
	my ($name) = @_;
	my $idle = qq{SELECT pid FROM stacksaga.nodes JOIN pg_stat_activity USING (pid)
		WHERE node = '$name' AND wait_event_type = 'Extension'};
	until (defined $frozen{$name})
	{
		my $pid = $node->safe_psql('postgres', $idle) || next;
		kill 'STOP', $pid;
		if ($node->safe_psql('postgres', $idle)) { $frozen{$name} = $pid }
		else { kill 'CONT', $pid }
	}
	return;
}

sub thaw
{
	my ($name) = @_;
	return kill 'CONT', delete $frozen{$name};
}
END { kill 'CONT', values %frozen }

$programs->keep_running;
wait_until("$whole AND (SELECT count(*) = 4 AND min(share * 256) >= 63 AND max(share * 256) <= 65
	FROM stacksaga.nodes WHERE region = 'default')", 'four workers share the ring');

# A node sends no heartbeats.
freeze('worker-1');
wait_until(state_of('worker-1') . " IN ('suspected', 'dead') AND " . slots_of('worker-1') . " = 0 AND $whole",
	'an unresponsive node is suspected, and the others have all of the ring');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'work goes on');
thaw('worker-1');
wait_until(state_of('worker-1') . " = 'active' AND " . slots_of('worker-1') . " >= 63", 'responsive again, it has its share');

# A node beats, but gets nowhere.
$node->safe_psql('postgres', q{
	INSERT INTO beating SELECT 'stuck', stacksaga.register_node('stuck'), true});
wait_until(slots_of('stuck') . " >= 50", 'a service takes part');
$node->safe_psql('postgres', 'UPDATE beating SET reports = false');
wait_until(state_of('stuck') . " = 'suspected' AND " . slots_of('stuck') . " = 0 AND $whole",
	'it beats and does not report its progress: suspected, and the others have all of the ring');
$node->safe_psql('postgres', 'UPDATE beating SET reports = true');
wait_until(state_of('stuck') . " = 'active' AND " . slots_of('stuck') . " >= 50", 'its report ends the suspicion');
$node->safe_psql('postgres', q{
	SELECT stacksaga.leave_ring(node, incarnation) FROM beating; DELETE FROM beating});

# All masters stop, and then a node dies.
wait_until("$whole AND " . slots_of('worker-2') . " >= 63", 'those that stay share the ring');
$programs->kill_one('master');
$programs->reap('master', 0);
freeze('worker-2');
wait_until(slots_of('worker-2') . " = 0 AND $whole",
	'without a master live nodes take over the slots of a dead one');
is($node->safe_psql('postgres', $windows), 0, 'though nobody has published');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'and work goes on');
my $epoch = $node->safe_psql('postgres', q{SELECT epoch FROM stacksaga.ring_status WHERE region = 'default'});
$programs->keep_running;
thaw('worker-2');
wait_until("(SELECT epoch > $epoch FROM stacksaga.ring_status WHERE region = 'default')
	AND $whole AND " . slots_of('worker-2') . " >= 63", 'a master that comes back assigns slots to all, under a higher epoch');

# All masters stop, and the ring pauses.
$node->safe_psql('postgres', q{SELECT stacksaga.alter_ring('default', 'default', 'on_missing_window', 'pause')});
windows_go_on('a ring that pauses works while windows are published');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'its work is done');
$programs->kill_one('master');
$programs->reap('master', 0);
wait_until(q{NOT EXISTS (SELECT FROM stacksaga.nodes n, stacksaga.node_ranges(n.node)
	WHERE n.region = 'default')}, 'without a master, no node may work after the last window has ended');
my $saga = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('answer')});
# Each worker polls several times while the ring asks these nodes for their progress twice.
my $turns = $node->safe_psql('postgres',
	q{SELECT sum((progress ->> 'turns')::bigint) FROM stacksaga.nodes WHERE pid IS NOT NULL});
wait_until("(SELECT sum((progress ->> 'turns')::bigint) >= $turns + 12 FROM stacksaga.nodes
	WHERE pid IS NOT NULL)", 'workers poll');
is($node->safe_psql('postgres', "SELECT status FROM stacksaga.sagas WHERE saga_id = '$saga'"),
	'pending', 'and do none');
$programs->keep_running;
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$saga', '60 seconds')"),
	'completed', 'the next published window ends the pause');
$node->safe_psql('postgres', q{SELECT stacksaga.alter_ring('default', 'default', 'on_missing_window', 'keep')});

# The master ends, and an agent runs: it goes on assigning its slots.
$node->safe_psql('postgres', q{
	INSERT INTO beating SELECT n, stacksaga.register_node(n, 'eu', 'assigned')
	  FROM unnest('{d1,d2,d3}'::text[]) AS n});
wait_until(q{(SELECT count(*) = 3 AND min(share * 256) >= 85 FROM stacksaga.nodes
	WHERE agent = 'agent')}, 'an agent assigns slots to three workers');
$programs->kill_one('master');
$programs->reap('master', 0);
wait_until(q{(SELECT max(window_end) <= stacksaga.clock_now() FROM stacksaga.token_window
	WHERE agent = '')}, 'the master has stopped, and its last window is over');
$node->safe_psql('postgres', q{
	SELECT stacksaga.leave_ring(node, incarnation) FROM beating WHERE node = 'd3';
	DELETE FROM beating WHERE node = 'd3'});
wait_until(q{(SELECT count(*) = 2 AND min(share * 256) = 128 FROM stacksaga.nodes WHERE agent = 'agent')},
	'the agent assigns the slots of a worker that left to the others');
$programs->keep_running;
windows_go_on('the master is back');

# The database's clock jumps ahead and back; heartbeats of before the jump are old until the next ones.
for my $offset ('1 hour', '0')
{
	$node->append_conf('postgresql.conf', "stacksaga.clock_offset = '$offset'\n");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('stacksaga.clock_offset')::interval = '$offset'");
	wait_until("$whole AND (SELECT window_end > stacksaga.clock_now() FROM stacksaga.ring_status
		WHERE region = 'default')", "clock_offset $offset: the open window is one of that time, all of the ring owned");
	windows_go_on("clock_offset $offset: windows go on");
	is(run_saga($node, 'postgres', 'answer'), 'completed', "clock_offset $offset: so does work");
}
like(slurp_file($programs->{of}{master}{log}), qr/msg="the database clock moved"/,
	'the log reports the jump');

# A worker of a standalone server ends: the others take its share.
$programs->stop_all;
is(join("\n", $programs->unexpected), '', 'no program ended unless it was made to');
$node->append_conf('postgresql.conf', "stacksaga.coordination = 'standalone'\n");
$node->reload;
my $own = q{(SELECT sum(share) = 1 AND count(*) = %d FROM stacksaga.nodes
	WHERE region = 'default' AND pid IS NOT NULL AND share > 0)};
wait_until(sprintf($own, 4), 'four workers share a standalone ring');
$node->append_conf('postgresql.conf', "stacksaga.workers = 3\n");
$node->reload;
wait_until(sprintf($own, 3), 'one ends, and the others take its share');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'and do its work');

$node->stop;
done_testing();
