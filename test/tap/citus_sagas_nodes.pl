# On Citus: sagas over the shards of several nodes. Each node starts any saga and runs those of its own shards, while
# shards move and split, a node joins and a node is killed: no transfer of a bank is lost, and none is made twice.
# Runs where Citus is installed.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(2, "stacksaga.databases = 'postgres'");
my $main = $cluster->coordinator;
my @workers = ($cluster->worker(0), $cluster->worker(1));
my $accounts = 40;

sub is_soon
{
	my ($query, $expected, $what) = @_;
	$main->poll_query_until('postgres', $query, $expected) or diag('it is: ' . $main->safe_psql('postgres', $query));
	return is($main->safe_psql('postgres', $query), $expected, $what);
}
sub problems { return $main->safe_psql('postgres', 'SELECT severity, problem FROM stacksaga.citus_check()') }

# Oids differ between nodes.
$workers[1]->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; CREATE ROLE elsewhere');
$main->safe_psql('postgres', q{
	SELECT stacksaga.citus_enable(shard_count => 8, sagas => true);
	CREATE ROLE bank LOGIN});
# Each node has privileges of its own. Citus connects as the definer, who therefore may log in.
$_->safe_psql('postgres', q{SELECT stacksaga.grant_usage('bank', 'service')}) for $main, @workers;
$main->safe_psql('postgres', q{
	CREATE SCHEMA bank AUTHORIZATION bank;
	SET ROLE bank;
	CREATE TABLE bank.account (id int PRIMARY KEY, amount bigint NOT NULL);
	CREATE TABLE bank.booking (account int, transfer text, direction text, role text);
	RESET ROLE;
	SELECT create_distributed_table('bank.account', 'id', shard_count => 8);
	SELECT create_distributed_table('bank.booking', 'account', colocate_with => 'bank.account');
	SET ROLE bank;
	CREATE FUNCTION bank.book(account int, change bigint, step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE bank.account AS a SET amount = a.amount + change WHERE a.id = book.account;
		INSERT INTO bank.booking VALUES (book.account, step.input ->> 'id', step.step || ' ' || step.direction, current_user);
		RETURN '{}';
	END $$;
	CREATE FUNCTION bank.debit(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN bank.book((step.input ->> 'from')::int, CASE step.direction WHEN 'act' THEN -1 ELSE 1 END, step);
	END $$;
	CREATE FUNCTION bank.credit(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (step.input ->> 'is_refused')::boolean THEN
			RAISE 'refused' USING ERRCODE = 'SG424';
		END IF;
		RETURN bank.book((step.input ->> 'to')::int, 1, step);
	END $$;
	RESET ROLE});
$main->safe_psql('postgres', "INSERT INTO bank.account SELECT i, 1000 FROM generate_series(1, $accounts) AS i");
$main->safe_psql('postgres', q{
	SET citus.enable_ddl_propagation = off;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA stacksaga TO bank;
	SET ROLE bank;
	SELECT stacksaga.define_saga('transfer', ARRAY[
		stacksaga.sql_step('debit', 'bank.debit(stacksaga.step_call)', compensation => 'bank.debit(stacksaga.step_call)'),
		stacksaga.sql_step('credit', 'bank.credit(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('order', ARRAY[stacksaga.child_step('pay', 'transfer'), stacksaga.queue_step('ship', 'ship', compensable => true)])});
is(problems(), '', 'the check finds nothing');
$workers[0]->raises_sqlstate('postgres', q{SELECT stacksaga.define_saga('x', ARRAY[stacksaga.queue_step('a', 'a', compensable => true)])}, 'SG409');

my $transfers = 0;
sub transfer_sql
{
	my ($count) = @_;
	my $first = $transfers + 1;
	$transfers += $count;
	return join '', map {
		my ($from, $to) = (1 + $_ % $accounts, 1 + ($_ * 7 + 3) % $accounts);
		my $refused = $_ % 10 == 0 ? 'true' : 'false';
		qq{SELECT created FROM stacksaga.start_saga('transfer',
			'{"id": "$_", "from": $from, "to": $to, "is_refused": $refused}', key => '$_');\n} =~ s/\n\t+/ /r
	} $first .. $transfers;
}

# What the bank must be like when all has ended.
sub check_bank
{
	my ($what) = @_;
	is_soon(q{SELECT count(*) FROM stacksaga.saga WHERE finished_at IS NULL}, 0, "$what: all sagas end");
	is($main->safe_psql('postgres', q{
		SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status = 'failed')
		  FROM stacksaga.saga s JOIN stacksaga.saga_definition d USING (definition_id) WHERE d.saga = 'transfer' AND s.key IS NOT NULL}),
		join('|', $transfers - int($transfers / 10), int($transfers / 10)), "$what: as they were told to");
	is($main->safe_psql('postgres', 'SELECT sum(amount) FROM bank.account'), 1000 * $accounts, "$what: no money is lost or made");
	is($main->safe_psql('postgres', q{
		SELECT count(*), count(DISTINCT (transfer || direction)), count(*) FILTER (WHERE role = 'bank') FROM bank.booking
		 WHERE transfer NOT LIKE 'order%'}),
		join('|', (2 * $transfers) x 3), "$what: each step is booked once, by its definer");
	return;
}

# Each node starts sagas, and runs those of its shards.
$_->safe_psql('postgres', transfer_sql(30)) for $main, @workers;
check_bank('on two nodes');
is($_->safe_psql('postgres', q{SELECT count(*) > 0 FROM stacksaga.citus_oid WHERE name = 'bank'}), 't', $_->name . ' has run sagas') for @workers;
my ($here, $there) = map { $_->safe_psql('postgres', q{SELECT oid FROM pg_roles WHERE rolname = 'bank'}) } @workers;
isnt($here, $there, 'the definer has another oid on each node');
is($workers[1]->safe_psql('postgres', q{SELECT created FROM stacksaga.start_saga('transfer',
	'{"id": "1", "from": 2, "to": 11, "is_refused": false}', key => '1')}), 'f', 'a key stands for its saga on each node');

# Children on other nodes than their parents, and services that claim on each node.
$main->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 20) AS i, stacksaga.start_saga('order',
	jsonb_build_object('id', 'order ' || i, 'from', i, 'to', 41 - i), key => i::text)});
is_soon(q{SELECT count(*) FROM stacksaga.work WHERE queue = 'ship'}, 20, 'children complete on any node');
my @claimed = map { $_->safe_psql('postgres', q{SELECT count(stacksaga.complete_step(s.saga_id, s.step, s.lease))
	FROM stacksaga.claim_steps('ship', 'shipper', 100) AS s}) } @workers;
ok($claimed[0] > 0 && $claimed[1] > 0, "each node has some to claim: @claimed");
is($claimed[0] + $claimed[1], 20, 'and all of them together');
is($main->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.claim_steps('ship', 'shipper', 100)}), 0, 'a node without shards has none');
check_bank('with children');

# Any node answers for all of them.
for my $node ($main, @workers)
{
	is($node->safe_psql('postgres', q{SELECT saga, status, output, region FROM stacksaga.sagas
		WHERE saga_id = stacksaga.saga_id_of('order', '7')}), 'order|completed|{"pay": {"debit": {}, "credit": {}}, "ship": null}|default', $node->name . ' shows a saga');
	is($node->safe_psql('postgres', q{SELECT sum(live_sagas) FROM stacksaga.definitions}), 0, 'counts those that live');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.find_sagas(saga => 'order', max_sagas => 100)}), 20, 'and finds some');
}

# What a step publishes is in the log of the node that ran it, and each node has subscriptions of its own.
$main->safe_psql('postgres', q{
	CREATE FUNCTION announce(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM stacksaga.publish('announced', step.input, key => step.input ->> 'id');
		RETURN '{}';
	END $$;
	SELECT stacksaga.define_saga('announce', ARRAY[stacksaga.sql_step('announce', 'announce(stacksaga.step_call)')]);
	SELECT stacksaga.create_subscription('listener', 'announced')});
is(problems(), "warning|subscriptions_differ\nwarning|subscriptions_differ", 'the check names nodes without a subscription');
$_->safe_psql('postgres', q{SELECT stacksaga.create_subscription('listener', 'announced')}) for @workers;
is(problems(), '', 'and is content when they have it');
$main->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 20) AS i,
	stacksaga.start_saga('announce', jsonb_build_object('id', 'order ' || i), key => 'announce ' || i)});
is_soon(q{SELECT count(*) FROM stacksaga.saga WHERE key LIKE 'announce%' AND status = 'completed'}, 20, 'steps publish');
my @heard;
for (my $tries = 0; @heard < 20 && $tries < 300; ++$tries)
{
	push @heard, map { split /\n/, $_->safe_psql('postgres', q{
		SELECT key FROM stacksaga.receive_messages('listener', 'consumer', 100)}) } $main, @workers;
	select undef, undef, undef, 0.1;
}
my %heard = map { $_ => 1 } @heard;
is(scalar(@heard) . ' ' . scalar(keys %heard), '20 20', 'each message is heard once, on the node of its saga');

# Sessions that start transfers on a node, whatever becomes of the others.
my $folder = PostgreSQL::Test::Utils::tempdir();
sub start_transfers
{
	my ($node, $count) = @_;
	my $file = "$folder/" . $transfers . '.sql';
	append_to_file($file, transfer_sql($count));
	my ($output, $errors) = ('', '');
	return { output => \$output, file => $file, node => $node, program => IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $file ], '<', \undef, '>', \$output, '2>', \$errors) };
}
# Those whose start was refused are started again: a key is started once.
sub finish_transfers
{
	foreach my $session (@_)
	{
		$session->{program}->finish;
		next if (() = ${ $session->{output} } =~ /^[tf]$/mg) == (() = slurp_file($session->{file}) =~ /^SELECT/mg);
		$session->{node}->safe_psql('postgres', slurp_file($session->{file}));
	}
	return;
}
# Citus ends a deadlock of a move and a saga by cancelling one of them.
sub until_done
{
	my ($query) = @_;
	for (1 .. 50)
	{
		my ($code, undef, $errors) = $main->psql('postgres', $query);
		return 1 if $code == 0;
		die $errors if $errors !~ /deadlock/;
	}
	return 0;
}
sub move_shards
{
	my ($from, $to, $count, $mode) = @_;
	my ($source, $target) = map { $_->port } $from, $to;
	return scalar grep { until_done(qq{
		SELECT citus_move_shard_placement(shardid, '127.0.0.1', $source, '127.0.0.1', $target, '$mode')
		  FROM (SELECT shardid FROM pg_dist_shard JOIN pg_dist_shard_placement p USING (shardid)
		         WHERE logicalrelid = 'stacksaga.idempotency_key'::regclass AND p.nodeport = $source
		         ORDER BY shardid LIMIT 1) AS p}) } 1 .. $count;
}
my @sessions = map { start_transfers($_, 100) } $main, @workers;
is(move_shards(@workers, 2, 'block_writes'), 2, 'shards move while sagas run');
is(move_shards(reverse(@workers), 1, 'force_logical'), 1, 'also without blocking writes');
ok(until_done(q{
	SELECT citus_split_shard_by_split_points(shardid, ARRAY[((shardminvalue::bigint + shardmaxvalue::bigint) / 2)::text],
		ARRAY[nodeid, nodeid], 'block_writes')
	  FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
	 WHERE logicalrelid = 'stacksaga.idempotency_key'::regclass ORDER BY shardid LIMIT 1}), 'a shard is split');
finish_transfers(@sessions);
check_bank('after moves and a split');

# A node joins.
my $third = $cluster->add_worker;
push @workers, $third;
$third->safe_psql('postgres', q{SELECT stacksaga.create_subscription('listener', 'announced')});
$third->safe_psql('postgres', q{SELECT stacksaga.grant_usage('bank', 'service')});
is(problems(), 'error|definitions_missing', 'the check says what a node that joins lacks');
$main->safe_psql('postgres', q{SELECT replicate_reference_tables('block_writes')});
is(problems(), '', 'and then finds nothing');
@sessions = map { start_transfers($_, 60) } $main, @workers;
is(move_shards($workers[0], $third, 2, 'block_writes'), 2, 'shards move to a node that joined');
finish_transfers(@sessions);
check_bank('on three nodes');
ok($third->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.citus_oid}) > 0, 'the new node has run sagas');

# Trap: Citus knows a shard that a transaction has read by an id that the move leaves as it is, and would send what the
# transaction writes behind the move to where the shard was, unless the transaction runs on the node that it moves to.
my $number = $transfers + 1;
my ($shard, $source) = split /\|/, $main->safe_psql('postgres', qq{
	SELECT shardid, nodeport FROM pg_dist_shard_placement WHERE shardid = get_shard_id_for_distribution_column('stacksaga.saga',
		stacksaga.token_uuid(stacksaga.saga_id_of('transfer', '$number'))::stacksaga.ring_token)});
my ($starter, $target) = grep { $_->port != $source } @workers;
my $mover = $main->background_psql('postgres');
$mover->query_safe('BEGIN');
$mover->query_safe("SELECT citus_move_shard_placement($shard, '127.0.0.1', $source, '127.0.0.1', " . $target->port . ", 'block_writes')");
my $waiting = start_transfers($starter, 1);
$starter->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$mover->query_safe('COMMIT');
$mover->quit;
finish_transfers($waiting);
check_bank('a start that has waited for a move');

# A node is killed.
@sessions = map { start_transfers($_, 100) } $main, $workers[0], $third;
$workers[1]->stop('immediate');
is($third->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.claim_steps('ship', 'shipper', 100)}), 0, 'the others go on');
like($main->safe_psql('postgres', 'SELECT problem FROM stacksaga.citus_check()'), qr/node_unreachable/, 'the check names the node');
$workers[1]->start;
$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_prepared_xacts') for $main, @workers;
finish_transfers(@sessions);
check_bank('after a node was killed');

# Back to one node.
my $sagas = $main->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.saga');
$main->safe_psql('postgres', 'SELECT stacksaga.citus_disable()');
is($main->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.saga'), $sagas, 'all sagas come back');
is($main->safe_psql('postgres', q{SELECT string_agg(result, ',') FROM run_command_on_all_nodes(
	$$SELECT count(*) FROM pg_class WHERE relname ~ '^(saga|work|effect|failure|definition_step)[a-z_]*_[0-9]+$'$$)}),
	'0,0,0,0', 'no shard is left');
$main->safe_psql('postgres', transfer_sql(20));
check_bank('back on one node');
$main->safe_psql('postgres', 'DROP EXTENSION stacksaga CASCADE');
done_testing();
