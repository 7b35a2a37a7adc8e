# On Citus: the dedupe ladder is distributed by token, any node may call it, and what is written here and on another
# node commits together. Runs where Citus is installed.
use strict;
use warnings;

use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(2);
my $main = $cluster->coordinator;
my @nodes = ($main, $cluster->worker(0), $cluster->worker(1));

sub problems
{
	return $main->safe_psql('postgres', 'SELECT severity, problem FROM stacksaga.citus_check()');
}

# Enabling: what is there is kept, and the check has nothing left to say.
is(problems(), 'error|not_enabled', 'the check says that stacksaga is not enabled');
$main->safe_psql('postgres', q{
	SELECT stacksaga.idempotency_finish('pay', 'before', lease, '"kept"') FROM stacksaga.idempotency_begin('pay', 'before')});
$main->safe_psql('postgres', 'SELECT stacksaga.citus_enable(shard_count => 8)');
is(problems(), '', 'the check finds nothing');
$main->raises_sqlstate('postgres', 'SELECT stacksaga.citus_enable()', 'SG409');
$cluster->worker(0)->raises_sqlstate('postgres', 'SELECT stacksaga.citus_enable()', 'SG409');
$cluster->worker(0)->raises_sqlstate('postgres', 'SELECT * FROM stacksaga.citus_check()', 'SG409');
$main->raises_sqlstate('postgres', 'DROP EXTENSION stacksaga', '2BP01');
for my $node (@nodes)
{
	is($node->safe_psql('postgres', q{SELECT outcome, response FROM stacksaga.idempotency_begin('pay', 'before')}),
		'replay|"kept"', $node->name . ' replays what was finished before');
}

# A shard is a contiguous range of the ring.
$main->safe_psql('postgres', q{SELECT count(stacksaga.accept_message('c', i::text)) FROM generate_series(1, 500) AS i});
is($main->safe_psql('postgres', q{
	SELECT count(*), count(*) FILTER (WHERE token::bigint >> 32 BETWEEN s.shardminvalue::bigint AND s.shardmaxvalue::bigint)
	  FROM stacksaga.accepted_message m
	  JOIN pg_dist_shard s ON s.shardid = get_shard_id_for_distribution_column('stacksaga.accepted_message', m.token)}),
	'500|500', 'a shard holds a range of the ring');

# A key has one owner, whichever node is asked.
my $lease = $cluster->worker(0)->safe_psql('postgres', q{SELECT lease FROM stacksaga.idempotency_begin('pay', 'k1')});
for my $node (@nodes)
{
	$node->raises_sqlstate('postgres', q{SELECT * FROM stacksaga.idempotency_begin('pay', 'k1')}, 'SR409');
}
$cluster->worker(1)->safe_psql('postgres', "SELECT stacksaga.idempotency_checkpoint('pay', 'k1', $lease, 'half')");
$main->raises_sqlstate('postgres', "SELECT stacksaga.idempotency_finish('pay', 'k1', $lease + 1)", 'SG412');
$main->safe_psql('postgres', "SELECT stacksaga.idempotency_finish('pay', 'k1', $lease, '7')");
is($_->safe_psql('postgres', q{SELECT outcome, response, recovery_point FROM stacksaga.idempotency_begin('pay', 'k1')}),
	'replay|7|half', $_->name . ' replays') for @nodes;
is($main->safe_psql('postgres', q{SELECT rung, state FROM stacksaga.dedupe_state('pay', 'k1')}),
	'idempotency_key|completed', 'the state of a key is found');
$cluster->worker(0)->safe_psql('postgres', q{SELECT stacksaga.idempotency_forget('pay', 'k1', 'ticket 815')});
for my $node (@nodes)
{
	$node->raises_sqlstate('postgres', q{SELECT * FROM stacksaga.idempotency_begin('pay', 'k1')}, 'SG409');
}
is($main->safe_psql('postgres', q{
	SELECT s.state, k.response IS NULL FROM stacksaga.dedupe_state('pay', 'k1') AS s, stacksaga.idempotency_key AS k
	 WHERE k.key = 'k1'}), 'forgotten|t', 'a key that one node has forgotten is forgotten on each');
is($main->safe_psql('postgres', q{
	BEGIN; SELECT outcome FROM stacksaga.idempotency_begin('pay', 'undone'); ROLLBACK;
	BEGIN; SELECT lease FROM stacksaga.idempotency_begin('pay', 'released') \gset
	SELECT stacksaga.idempotency_release('pay', 'released', :lease); COMMIT;
	SELECT count(*) FROM stacksaga.idempotency_key WHERE key IN ('undone', 'released')}),
	"new\n\n0", 'a begin that is rolled back or released leaves nothing');

# Sessions of three nodes at once: each message is accepted once, each increment counts, a producer is fenced.
$main->safe_psql('postgres', q{
	CREATE FUNCTION increment() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		seen record;
	BEGIN
		LOOP
			SELECT * INTO seen FROM stacksaga.read_value('s', 'counter');
			BEGIN
				RETURN stacksaga.compare_and_set('s', 'counter', seen.version, to_jsonb(coalesce(seen.value::int, 0) + 1));
			EXCEPTION WHEN SQLSTATE 'SG412' THEN -- somebody was faster
			END;
		END LOOP;
	END $$;
	SELECT create_distributed_function('increment()')});
my (@sessions, @outputs);
for my $node (@nodes, @nodes)
{
	my $output = '';
	my $session = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<',
		\(join('', map { "SELECT stacksaga.accept_message('race', '$_');\n" } 1 .. 100)
			. join('', map { "SELECT 'n' FROM increment();\n" } 1 .. 30)), '>', \$output);
	push @sessions, $session;
	push @outputs, \$output;
}
$_->finish for @sessions;
my $all = join '', map { $$_ } @outputs;
is(scalar(() = $all =~ /^t$/mg), 100, 'each of 100 messages is accepted once');
is($main->safe_psql('postgres', q{SELECT value FROM stacksaga.read_value('s', 'counter')}), 180, 'each increment counts');

# Two new instances of a producer on two nodes: the later epoch stays.
$main->safe_psql('postgres', q{SELECT stacksaga.accept_sequence('p', 1, 1)});
my $older = $cluster->worker(0)->background_psql('postgres');
$older->query_safe(q{BEGIN});
$older->query_safe(q{SELECT stacksaga.accept_sequence('p', 3, 1)});
my ($seen, $errors) = ('', '');
my $younger = IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d', $cluster->worker(1)->connstr('postgres'),
	'-c', q{SELECT stacksaga.accept_sequence('p', 2, 1)} ], '>', \$seen, '2>', \$errors);
$main->poll_query_until('postgres', q{SELECT count(*) > 0 FROM citus_lock_waits});
$older->query_safe(q{COMMIT});
$younger->finish;
like($errors, qr/SG412/, 'an epoch that another node has passed meanwhile is fenced');
is($main->safe_psql('postgres', q{SELECT epoch, sequence FROM stacksaga.producer_sequence}), '3|1', 'the later epoch stays');
$older->quit;

# Retention.
$main->safe_psql('postgres', q{
	SELECT stacksaga.idempotency_finish('old', 'k', lease)
	  FROM stacksaga.idempotency_begin('old', 'k', lease => '1 millisecond', retention => '1 millisecond');
	SELECT count(*) FROM (SELECT stacksaga.idempotency_begin('old', 'open', lease => '1 millisecond', retention => '1 millisecond')) AS b;
	SELECT stacksaga.accept_message('old', 'm', '1 millisecond')});
is($main->safe_psql('postgres', 'SELECT stacksaga.expire_dedupe()'), 2, 'a key and a message have expired');
is($main->safe_psql('postgres', q{SELECT (SELECT count(*) FROM stacksaga.idempotency_key WHERE scope = 'old'),
	(SELECT count(*) FROM stacksaga.accepted_message WHERE consumer = 'old'),
	(SELECT count(*) FROM stacksaga.idempotency_key WHERE scope = 'pay')}), '1|0|2', 'what has expired is removed, what is open stays');

# A new node takes part, shards move and split, and nothing changes.
my $third = $cluster->add_worker;
my $before = $main->safe_psql('postgres', 'SELECT count(*), sum(hashtext(consumer || message_id)) FROM stacksaga.accepted_message');
my $moved = $main->safe_psql('postgres', q{
	SELECT count(citus_move_shard_placement(shardid, p.nodename, p.nodeport, '127.0.0.1', } . $third->port . q{, 'block_writes'))
	  FROM (SELECT shardid, nodename, nodeport FROM pg_dist_shard JOIN pg_dist_shard_placement p USING (shardid)
	         WHERE logicalrelid = 'stacksaga.idempotency_key'::regclass ORDER BY shardid LIMIT 3) AS p});
is($moved, 3, 'three shards move');
$main->safe_psql('postgres', q{
	SELECT citus_split_shard_by_split_points(shardid, ARRAY[((shardminvalue::bigint + shardmaxvalue::bigint) / 2)::text],
		ARRAY[nodeid, nodeid], 'block_writes')
	  FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
	 WHERE logicalrelid = 'stacksaga.idempotency_key'::regclass ORDER BY shardid LIMIT 1});
is($main->safe_psql('postgres', 'SELECT count(*), sum(hashtext(consumer || message_id)) FROM stacksaga.accepted_message'),
	$before, 'all messages are there after moves and a split');
is($third->safe_psql('postgres', q{SELECT outcome FROM stacksaga.idempotency_begin('pay', 'k1')}), 'replay', 'the new node replays');
is(problems(), '', 'the check finds nothing');

# Back to one node.
$main->safe_psql('postgres', 'SELECT stacksaga.citus_disable()');
is($main->safe_psql('postgres', q{SELECT outcome, response FROM stacksaga.idempotency_begin('pay', 'k1')}), 'replay|7',
	'all keys come back');
is($main->safe_psql('postgres', q{
	SELECT count(*) FROM pg_extension, unnest(extconfig) AS c
	 WHERE c = ANY (stacksaga_internal.ladder_tables()::oid[]) AND extname = 'stacksaga'}), 4, 'pg_dump keeps them');
is($main->safe_psql('postgres', q{SELECT count(*) FROM pg_depend WHERE deptype = 'e' AND objid = ANY (stacksaga_internal.ladder_tables())}),
	4, 'they are the extension\'s again');
$main->raises_sqlstate('postgres', 'SELECT stacksaga.citus_disable()', 'SG409');
$main->safe_psql('postgres', 'DROP EXTENSION stacksaga CASCADE');
is($main->safe_psql('postgres', q{SELECT string_agg(result, ',') FROM run_command_on_all_nodes(
	$$SELECT count(*) FROM pg_class WHERE relname ~ 'idempotency_key|accepted_message|citus_guard'$$)}), '0,0,0,0', 'no shard is left');
done_testing();
