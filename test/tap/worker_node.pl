# A worker as a node of its ring: woken by commits, superseded, in a ring that is not there yet.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('node');
$node->init(worker_databases => [ 'postgres' ]);
# So long that only a wake explains that anything is done.
$node->append_conf('postgresql.conf', "stacksaga.poll_interval = '60s'");
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
wait_until_works($node, 'postgres', 1);

my $begun = time;
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a saga runs') foreach 1 .. 5;
cmp_ok(time - $begun, '<', 30, 'workers are woken by the commit that makes work');

# Work that falls due is done when it does, not at the next poll.
my $id = $node->safe_psql('postgres', q{
	SELECT saga_id FROM stacksaga.start_saga('answer', run_at => stacksaga.clock_now() + '2 seconds')});
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '30 seconds')"),
	'completed', 'a worker wakes by itself when work falls due');

# A rolled back transaction makes no work, a rolled back savepoint only less.
$node->safe_psql('postgres', q{
	BEGIN;
	SELECT stacksaga.start_saga('answer', key => 'kept');
	SAVEPOINT s;
	SELECT stacksaga.start_saga('answer', key => 'dropped');
	ROLLBACK TO s;
	COMMIT});
$node->poll_query_until('postgres',
	q{SELECT status = 'completed' FROM stacksaga.sagas WHERE key = 'kept'});
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.sagas WHERE key = 'dropped'}),
	0, 'a savepoint that is rolled back changes nothing for the rest');

# No service takes its name; another server's worker of that name may, after a fail-over say.
$node->raises_sqlstate('postgres', q{SELECT stacksaga.register_node('worker-1')}, 'SG400');
my $usurper = $node->safe_psql('postgres', q{
	UPDATE stacksaga.node SET pid = NULL, incarnation = nextval('stacksaga.node_incarnation_seq')
	 WHERE node = 'worker-1' RETURNING incarnation});
$node->poll_query_until('postgres', qq{
	SELECT incarnation > $usurper AND pid IS NOT NULL FROM stacksaga.node WHERE node = 'worker-1'});
pass('the worker finds out at its next heartbeat and registers again');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'and works');

# A step that gives up every lock of its session, the worker's number among them.
$node->safe_psql('postgres', q{
	CREATE FUNCTION unlock(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		SELECT pg_advisory_unlock_all(); SELECT '0'::jsonb $$;
	SELECT stacksaga.define_saga('unlock',
		ARRAY[stacksaga.sql_step('only', 'unlock(stacksaga.step_call)')])});
is(run_saga($node, 'postgres', 'unlock'), 'completed', 'a step may unlock what it did not lock');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'the worker goes on');
my ($worker) = worker_pids($node, 'postgres');
is($node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'), 1, 'it has its number again');
is_deeply([ worker_pids($node, 'postgres') ], [$worker], 'so that no other is started');

# A ring that is not there: said once, and served when it is.
my @pids = worker_pids($node, 'postgres');
my $start = -s $node->logfile;
$node->append_conf('postgresql.conf', "stacksaga.cluster = 'blue'");
$node->reload;
$node->wait_for_log(qr/LOG:  database "postgres" has no ring with region "default" and cluster "blue"\n.*HINT:  Correct the settings stacksaga.region and stacksaga.cluster/, $start);
$node->safe_psql('postgres', q{SELECT stacksaga.create_ring('default', 'blue')});
$node->poll_query_until('postgres', q{
	SELECT count(*) = 1 FROM stacksaga.node n JOIN stacksaga.worker_stats w USING (pid)
	 WHERE n.node = 'worker-1@default/blue'});
is(run_saga($node, 'postgres', 'answer'), 'completed', 'the worker serves the ring of its settings');
is_deeply([ worker_pids($node, 'postgres') ], \@pids, 'all this time it is the same process');
is(log_count($node, qr/has no ring with region/, $start), 1, 'and says once that there was none');

# What it did is to be seen.
$node->poll_query_until('postgres', q{
	SELECT items > 0 AND turns >= items AND failures = 0 AND last_turn_ms > 0
	       AND mode = 'standalone' AND database = current_database()
	  FROM stacksaga.worker_stats});
pass('worker_stats shows it');

# A slot that a window gives it, of which it knows since a heartbeat: taken over when the window opens, not at the
# heartbeat after that.
$node->safe_psql('postgres', q{
	SELECT stacksaga.alter_ring('default', 'blue', setting, value) FROM (VALUES ('window_length', '10 minutes'),
		('dead_after', '2 minutes'), ('suspect_after', '1 minute'), ('heartbeat_interval', '10 seconds')) AS s(setting, value)});
$node->append_conf('postgresql.conf', "stacksaga.coordination = 'coordinator'");
$node->reload;
my $beat = q{SELECT heartbeat_at FROM stacksaga.node WHERE node = 'worker-1@default/blue'};
my $beaten = $node->safe_psql('postgres', $beat);
$node->poll_query_until('postgres', "SELECT heartbeat_at > '$beaten' FROM stacksaga.node WHERE node = 'worker-1\@default/blue'") for 1 .. 2;
$beaten = $node->safe_psql('postgres', $beat);
$node->safe_psql('postgres', qq{
	UPDATE stacksaga.slot SET owner = NULL, next_owner = n.incarnation, next_from = '$beaten'::timestamptz + interval '13 seconds'
	  FROM stacksaga.node n WHERE n.node = 'worker-1\@default/blue' AND slot.ring_id = n.ring_id AND slot = 7});
$node->poll_query_until('postgres', q{SELECT s.owner = n.incarnation FROM stacksaga.slot s JOIN stacksaga.node n USING (ring_id)
	WHERE n.node = 'worker-1@default/blue' AND s.slot = 7}) or die;
# The heartbeat is written first, so it may be a moment older than the window.
is($node->safe_psql('postgres', qq{SELECT n.heartbeat_at >= '$beaten'::timestamptz + interval '12.9 seconds',
	n.heartbeat_at < '$beaten'::timestamptz + interval '18 seconds' FROM stacksaga.node n WHERE n.node = 'worker-1\@default/blue'}),
	't|t', 'a worker takes a slot over when its window opens');

$node->stop;
done_testing();
