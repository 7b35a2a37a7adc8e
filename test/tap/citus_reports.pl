# On Citus: what services, operators and monitors read, asked of each node. A report tells of the node that is asked, also
# while another one is down; what is about one saga any node answers. Runs where Citus is installed.
use strict;
use warnings;

use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(2, "stacksaga.databases = 'postgres'");
my $main = $cluster->coordinator;
my @workers = ($cluster->worker(0), $cluster->worker(1));
my @nodes = ($main, @workers);

$main->safe_psql('postgres', q{
	SELECT stacksaga.citus_enable(shard_count => 8, sagas => true);
	CREATE FUNCTION does(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF step.saga = 'stuck' AND step.direction = 'compensate' OR step.saga = 'odd' THEN
			RAISE 'no luck with %', step.input ->> 'id' USING ERRCODE = 'SG424';
		END IF;
		RETURN '{}';
	END $$;
	SELECT stacksaga.define_saga('served', ARRAY[stacksaga.queue_step('pay', 'pay', compensable => true, fallback => 'later')]);
	SELECT stacksaga.define_saga('outer', ARRAY[stacksaga.child_step('inside', 'served')]);
	SELECT stacksaga.define_saga('stuck', ARRAY[
		stacksaga.sql_step('a', 'does(stacksaga.step_call)', compensation => 'does(stacksaga.step_call)'),
		stacksaga.queue_step('b', 'b', compensable => true)])});
$main->safe_psql('postgres', q{
	SELECT count(*) FROM generate_series(1, 40) AS i,
		stacksaga.start_saga('served', jsonb_build_object('id', i), key => i::text,
			headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}');
	SELECT count(*) FROM generate_series(1, 10) AS i,
		stacksaga.start_saga('outer', jsonb_build_object('id', i), key => i::text,
			headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}');
	SELECT count(*) FROM generate_series(1, 20) AS i,
		stacksaga.start_saga('stuck', jsonb_build_object('id', i), key => i::text)});
sub is_soon
{
	my ($query, $expected, $what) = @_;
	$main->poll_query_until('postgres', $query, $expected) or diag('it is: ' . $main->safe_psql('postgres', $query));
	return is($main->safe_psql('postgres', $query), $expected, $what);
}
sub sum_of
{
	my ($query, @of) = @_;
	my $sum = 0;
	$sum += $_->safe_psql('postgres', $query) || 0 for @of;
	return $sum;
}
is_soon(q{SELECT count(*) FROM stacksaga.work WHERE queue = 'pay'}, 50, 'children have started');
is_soon(q{SELECT count(*) FROM stacksaga.work WHERE queue = 'b'}, 20, 'first steps are done');
$main->safe_psql('postgres', q{SELECT count(stacksaga.cancel_saga(stacksaga.saga_id_of('stuck', i::text), 'enough'))
	FROM generate_series(1, 20) AS i});
is_soon(q{SELECT count(*) FROM stacksaga.saga WHERE status = 'parked'}, 20, 'some are parked');
$_->safe_psql('postgres', q{SELECT count(stacksaga.complete_step(s.saga_id, s.step, s.lease))
	FROM stacksaga.claim_steps('pay', 'payer', 10) AS s}) for @workers;

# Every view, on every node.
my @views = split /\n/, $main->safe_psql('postgres', q{
	SELECT relname FROM pg_class WHERE relnamespace = 'stacksaga'::regnamespace AND relkind = 'v' ORDER BY 1});
for my $node (@nodes)
{
	for my $view (@views)
	{
		my ($code, undef, $errors) = $node->psql('postgres', "SELECT * FROM stacksaga.$view");
		is($errors, '', $node->name . ": view $view");
	}
}

# Every function that reads and changes nothing.
my @calls = (
	'status()', 'metrics()', 'metric_descriptions()', 'doctor()', "saga_diagram('stuck')", "explain_retries('served')",
	"find_sagas(saga => 'served', max_sagas => 100)", "find_sagas(status => 'parked')", "saga_timeline(stacksaga.saga_id_of('stuck', '1'))",
	"traced_sagas('-infinity')", "saga_spans(ARRAY[stacksaga.saga_id_of('served', '1')])",
	"saga_result(stacksaga.saga_id_of('served', '1'))", "saga_id_of('served', '1')", "locate('a')", "token('a')",
	"dedupe_state('a', 'b')", 'node_transitions()');
for my $node (@nodes)
{
	for my $call (@calls)
	{
		my ($code, undef, $errors) = $node->psql('postgres', "SELECT * FROM stacksaga.$call");
		is($errors, '', $node->name . ": $call");
	}
}
is($main->safe_psql('postgres', 'SELECT severity, problem FROM stacksaga.citus_check()'), '', 'the check finds nothing');
$workers[0]->raises_sqlstate('postgres', 'SELECT stacksaga.citus_check()', 'SG409');

# A node tells of its shards: all of them together make up the whole, and none is told twice.
my %whole = (
	q{SELECT stacksaga.status() ->> 'parked'} => 20,
	q{SELECT jsonb_array_length(stacksaga.status() -> 'parked_sagas')} => 20,
	q{SELECT sum((e ->> 'sagas')::int) FROM jsonb_array_elements(stacksaga.status() -> 'parked_errors') AS e} => 20,
	q{SELECT sum((s ->> 'sagas')::int) FROM jsonb_array_elements(stacksaga.status() -> 'sagas') AS s} => 80,
	q{SELECT waiting FROM stacksaga.queues WHERE queue = 'pay'} => 30,
	q{SELECT sum(value) FROM stacksaga.metrics() WHERE name = 'stacksaga_sagas_parked'} => 20,
	q{SELECT sum(value) FROM stacksaga.metrics() WHERE name = 'stacksaga_queue_waiting_steps' AND labels ->> 'queue' = 'pay'} => 30,
	q{SELECT sum(sagas) FROM (SELECT (regexp_match(detail, '^(\d+) sagas are parked'))[1]::int AS sagas FROM stacksaga.doctor()) AS d} => 20,
	q{SELECT count(*) FROM stacksaga.traced_sagas('-infinity')} => sum_of(q{SELECT count(*) FROM stacksaga.saga
		WHERE finished_at IS NOT NULL AND headers ? 'traceparent'}, $main));
is(sum_of($_, @workers), $whole{$_}, $_) for sort keys %whole;
is(sum_of(q{SELECT stacksaga.status() ->> 'parked'}, $main), 0, 'a coordinator without shards has none');
is($main->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.find_sagas(status => 'parked', max_sagas => 100)}), 20,
	'but finds them all');

# Whoever may read a table through a function may read its shards.
$main->safe_psql('postgres', 'CREATE ROLE watcher LOGIN');
for my $node (@nodes)
{
	$node->safe_psql('postgres', q{SELECT stacksaga.grant_usage('watcher', 'monitor')});
	is($node->safe_psql('postgres', q{SET ROLE watcher; SELECT stacksaga.status() ->> 'parked'}),
		$node->safe_psql('postgres', q{SELECT stacksaga.status() ->> 'parked'}), 'a monitor reads as much');
	next if $node == $main;
	$node->raises_sqlstate('postgres', q{SET ROLE watcher; WITH stacksaga_this_node AS (SELECT) SELECT * FROM stacksaga.work}, '42501');
}

# Every view that a role of support may read, it reads on every node.
for my $node (@nodes)
{
	$node->safe_psql('postgres', q{SELECT stacksaga.grant_usage('watcher', 'support')});
	for my $view (@views)
	{
		next if $node->safe_psql('postgres', "SELECT has_table_privilege('watcher', 'stacksaga.$view', 'SELECT')") eq 'f';
		is(($node->psql('postgres', "SET ROLE watcher; SELECT * FROM stacksaga.$view"))[2], '', $node->name . ": support reads $view");
	}
}

is(sum_of('SET ROLE watcher; SELECT count(*) FROM stacksaga.sagas', @workers), 80, 'of its own node');
is($main->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.sagas'), 80, 'a superuser of all nodes');

# One saga: any node tells the same.
my $timeline = q{SELECT * FROM stacksaga.saga_timeline(stacksaga.saga_id_of('stuck', '7'))};
my $told = $main->safe_psql('postgres', $timeline);
like($told, qr/start of saga stuck.*\n.*step a: completed\n.*cancel.*\n.*no luck with 7.*\n.*saga parked/, 'a timeline');
is($_->safe_psql('postgres', $timeline), $told, $_->name . ' tells the same') for @workers;

# The span of a child is below a step of its parent, wherever that is.
is(sum_of(q{SELECT count(*) FROM stacksaga.traced_sagas('-infinity') AS t JOIN stacksaga.saga_spans(ARRAY[t.saga_id]) AS s ON true
	WHERE s.name = 'served' AND s.parent_span_id <> 'b7ad6b7169203331'}, @workers),
	sum_of(q{SELECT count(*) FROM stacksaga.saga WHERE parent_id IS NOT NULL AND finished_at IS NOT NULL}, $main), 'spans of children');

# A session that has made its plans notices that a shard has moved.
my $waiting = q{SELECT waiting FROM stacksaga.queues WHERE queue = 'pay'};
my @sessions = map { $_->background_psql('postgres') } @workers;
my @before = map { $_->query_safe($waiting) } @sessions;
my ($source, $target) = map { $_->port } @workers;
$main->safe_psql('postgres', qq{
	SELECT citus_move_shard_placement(shardid, '127.0.0.1', $source, '127.0.0.1', $target, 'block_writes')
	  FROM (SELECT shardid FROM pg_dist_shard JOIN pg_dist_shard_placement p USING (shardid)
	         WHERE logicalrelid = 'stacksaga.work'::regclass AND p.nodeport = $source ORDER BY shardid LIMIT 1) AS p});
my @after = map { $_->query_safe($waiting) } @sessions;
is($after[0] + $after[1], 30, 'after a move none is missing and none told twice');
isnt($after[0], $before[0], 'though some are told by another node');
$_->quit for @sessions;

# While a node is down.
$workers[1]->stop('immediate');
for my $node ($main, $workers[0])
{
	for my $call ('status()', 'metrics()', 'doctor()', "traced_sagas('-infinity')")
	{
		is(($node->psql('postgres', "SELECT * FROM stacksaga.$call"))[2], '', $node->name . " alone: $call");
	}
	is(($node->psql('postgres', 'SELECT * FROM stacksaga.queues'))[2], '', $node->name . ' alone: queues');
}
done_testing();
