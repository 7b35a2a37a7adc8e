# On Citus: shards move while a bank's transfers run, messages are published and keys are begun, and a node is killed in
# the middle of a move: that which the shard moves to, that which it moves from, and neither. With two workers, then
# with three. No transfer and no message is lost, none is done twice. Runs where Citus is installed.
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

# Each node delivers what its own steps publish, and notes what it heard in a table of its own.
my $hear = q{
	SET citus.enable_ddl_propagation = off;
	CREATE TABLE heard (number bigserial, key text, n int)};
my $subscribe = q{SELECT stacksaga.create_subscription('ear', 'told', handler => 'hear(stacksaga.message)')};
$main->safe_psql('postgres', q{SELECT stacksaga.citus_enable(shard_count => 8, sagas => true)});
$_->safe_psql('postgres', $hear) for $main, @workers;
$main->safe_psql('postgres', q{
	CREATE TABLE account (id int PRIMARY KEY, amount bigint NOT NULL);
	CREATE TABLE booking (account int, transfer text, what text);
	SELECT create_distributed_table('account', 'id', shard_count => 8);
	SELECT create_distributed_table('booking', 'account', colocate_with => 'account');
	CREATE FUNCTION hear(message stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO heard (key, n) VALUES (message.key, (message.payload ->> 'n')::int);
	END $$;
	CREATE FUNCTION book(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		number int := step.input ->> step.step;
		n int := CASE step.step WHEN 'debtor' THEN 1 ELSE 2 END;
	BEGIN
		UPDATE account SET amount = amount + 2 * n - 3 WHERE id = number;
		INSERT INTO booking VALUES (number, step.input ->> 'id', step.step);
		PERFORM stacksaga.publish('told', jsonb_build_object('n', n), key => step.input ->> 'id');
		RETURN '{}';
	END $$;
	SELECT stacksaga.define_saga('transfer', ARRAY[stacksaga.sql_step('debtor', 'book(stacksaga.step_call)'),
		stacksaga.sql_step('creditor', 'book(stacksaga.step_call)')])});
$main->safe_psql('postgres', "INSERT INTO account SELECT i, 1000 FROM generate_series(1, $accounts) AS i");
$_->safe_psql('postgres', $subscribe) for $main, @workers;

my $folder = PostgreSQL::Test::Utils::tempdir();
my $transfers = 0;
sub start_transfers
{
	my ($node, $count) = @_;
	my $file = "$folder/" . $transfers . '.sql';
	append_to_file($file, join '', map {
		++$transfers;
		sprintf qq{SELECT created FROM stacksaga.start_saga('transfer', '{"id": "%d", "debtor": %d, "creditor": %d}', key => '%d');\n},
			$transfers, 1 + $transfers % $accounts, 1 + ($transfers * 7 + 3) % $accounts, $transfers
	} 1 .. $count);
	my ($output, $errors) = ('', '');
	return { file => $file, node => $node, output => \$output, program => IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $file ], '<', \undef, '>', \$output, '2>', \$errors) };
}
# Those whose start was refused, or whose node was killed, are started again: a key is started once.
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

sub check_all
{
	my ($what) = @_;
	is_soon(q{SELECT count(*) FROM stacksaga.saga WHERE status <> 'completed'}, 0, "$what: all sagas end");
	is($main->safe_psql('postgres', 'SELECT sum(amount) FROM account'), 1000 * $accounts, "$what: no money is lost or made");
	is($main->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (transfer, what)) FROM booking'),
		join('|', (2 * $transfers) x 2), "$what: each step is booked once");
	my %heard;
	my $disorder = 0;
	foreach my $node ($main, @workers)
	{
		$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM stacksaga.subscription s,
			stacksaga_internal.outbox_unread_since(s.subscription_id) AS u(at) WHERE u.at IS NOT NULL}) or diag('unread messages');
		my %last;
		foreach my $line (split /\n/, $node->safe_psql('postgres', 'SELECT key, n FROM heard ORDER BY number'))
		{
			my ($key, $n) = split /\|/, $line;
			++$heard{$line};
			++$disorder if ($last{$key} // 0) > $n;
			$last{$key} = $n;
		}
	}
	is(scalar(keys %heard), 2 * $transfers, "$what: no message is lost");
	is(scalar(grep { $_ > 1 } values %heard), 0, "$what: none is heard twice");
	is($disorder, 0, "$what: a key's messages of a node are in order");
	return;
}

# A shard of a node, and the first token in it.
sub shard_of
{
	my ($node) = @_;
	my $port = $node->port;
	return split /\|/, $main->safe_psql('postgres', qq{
		SELECT s.shardid, s.shardminvalue::bigint << 32
		  FROM pg_dist_shard s JOIN pg_dist_shard_placement p USING (shardid)
		 WHERE s.logicalrelid = 'stacksaga.idempotency_key'::regclass AND p.nodeport = $port ORDER BY s.shardid LIMIT 1});
}
sub move_sql
{
	my ($shard, $from, $to, $mode) = @_;
	return "SELECT citus_move_shard_placement($shard, '127.0.0.1', " . $from->port . ", '127.0.0.1', " . $to->port . ", '$mode')";
}
sub begin_move
{
	my ($output, $errors) = ('', '');
	return { errors => \$errors, program => IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $main->connstr('postgres'), '-c', move_sql(@_) ], '<', \undef, '>', \$output, '2>', \$errors) };
}

# A move waits, once it has copied the rows, for who has written the shard: here it is interrupted.
sub kill_during_move
{
	my ($from, $to, $killed, $what) = @_;
	my ($shard, $token) = shard_of($from);
	my @sessions = map { start_transfers($_, 60) } grep { $_ != $killed } $main, @workers;
	my $writer = $main->background_psql('postgres');
	$writer->query_safe('BEGIN');
	$writer->query_safe(qq{UPDATE stacksaga.idempotency_key SET attempt = attempt
		WHERE scope = '' AND key = '' AND token OPERATOR(stacksaga.=) '$token'::stacksaga.ring_token});
	my $move = begin_move($shard, $from, $to, 'force_logical');
	$to->poll_query_until('postgres', qq{SELECT count(*) > 0 FROM pg_class WHERE relname = 'idempotency_key_$shard'})
		or diag('the move does not begin');
	$killed->stop('immediate');
	$writer->{run}->kill_kill;
	$move->{program}->finish;
	like(${ $move->{errors} }, qr/ERROR|server closed|FATAL/, "$what: the move fails");
	$killed->start;
	$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_prepared_xacts') for $main, @workers;
	finish_transfers(@sessions);
	check_all($what);
	return $shard;
}
sub until_moved
{
	my ($query) = @_;
	my $errors;
	for (1 .. 100)
	{
		$main->psql('postgres', 'CALL citus_cleanup_orphaned_resources()');
		(my $code, undef, $errors) = $main->psql('postgres', $query);
		return 1 if $code == 0;
		select undef, undef, undef, 0.2;
	}
	diag($errors);
	return 0;
}

for my $round (2, 3)
{
	if ($round == 3)
	{
		push @workers, $cluster->add_worker;
		$workers[2]->safe_psql('postgres', $hear);
		$workers[2]->safe_psql('postgres', $subscribe);
		$main->safe_psql('postgres', q{SELECT replicate_reference_tables('block_writes')});
	}
	my $to = $workers[-1];
	my $shard = kill_during_move($workers[0], $to, $to, "$round workers, the target is killed");
	my @sessions = map { start_transfers($_, 30) } $main, @workers;
	ok(until_moved(move_sql($shard, $workers[0], $to, 'block_writes')), "$round workers: the move is done again");
	finish_transfers(@sessions);
	check_all("$round workers, moved");
	kill_during_move($to, $workers[0], $to, "$round workers, the source is killed");
}
kill_during_move($workers[0], $workers[2], $workers[1], 'neither end is killed');

# In the dedupe ladder too a transaction keeps the shard that it has read where it is: what it writes then is not lost.
$main->safe_psql('postgres', q{SELECT stacksaga.compare_and_set('s', 'k', NULL, '1')});
my ($shard, $port) = split /\|/, $main->safe_psql('postgres', q{
	SELECT shardid, nodeport FROM pg_dist_shard_placement WHERE shardid = get_shard_id_for_distribution_column('stacksaga.versioned_value',
		(SELECT token FROM stacksaga.versioned_value))});
my ($from) = grep { $_->port == $port } @workers;
my ($to, $other) = grep { $_->port != $port } @workers;
my $session = $other->background_psql('postgres');
$session->query_safe('BEGIN');
is($session->query_safe(q{SELECT value FROM stacksaga.read_value('s', 'k')}), 1, 'a value is read');
my $move = begin_move($shard, $from, $to, 'block_writes');
ok($main->poll_query_until('postgres', q{SELECT bool_or(result::int > 0) FROM run_command_on_all_nodes(
	$$SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted$$)}), 'the move of its shard waits');
is($session->query_safe(q{SELECT stacksaga.compare_and_set('s', 'k', 1, '2')}), 2, 'while the value is changed');
$session->query_safe('COMMIT');
$session->quit;
$move->{program}->finish;
is(${ $move->{errors} }, '', 'then it is moved');
is($main->safe_psql('postgres', q{SELECT value FROM stacksaga.read_value('s', 'k')}), 2, 'with the change');
is($main->safe_psql('postgres', q{SELECT problem FROM stacksaga.citus_check() WHERE problem NOT IN ('local_table')}), '', 'the check finds nothing');
done_testing();
