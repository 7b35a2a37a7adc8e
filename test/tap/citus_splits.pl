# On Citus: a transaction has written a shard and stays open, a lower shard is split, and the shard is moved in mode
# block_writes. Citus's lock is numbered by the position of the shard, which the split shifts, so the move does not wait,
# and what was written is in the placement that is dropped: a plain INSERT is lost, which this test shows first. A
# transaction of stacksaga notices it and fails with 40001. Runs where Citus is installed.
use strict;
use warnings;

use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(2);
my $main = $cluster->coordinator;
my @workers = ($cluster->worker(0), $cluster->worker(1));
$main->safe_psql('postgres', q{
	SELECT stacksaga.citus_enable(shard_count => 8, sagas => true);
	CREATE TABLE plain (token stacksaga.ring_token, n int);
	SELECT create_distributed_table('plain', 'token', colocate_with => 'stacksaga.idempotency_key');
	ALTER TABLE plain REPLICA IDENTITY FULL;
	SELECT stacksaga.define_saga('service', ARRAY[stacksaga.queue_step('work', queue => 'q', compensable => false)])});

# Shards by position, as Citus numbers them.
my $shards = q{SELECT s.shardid, s.shardminvalue::int AS first, s.shardmaxvalue::int AS last, p.nodeport,
	row_number() OVER (ORDER BY s.shardminvalue::int) - 1 AS position
	FROM pg_dist_shard s JOIN pg_dist_shard_placement p USING (shardid)
	WHERE s.logicalrelid = 'stacksaga.idempotency_key'::regclass};
sub shard_of
{
	my ($token) = @_;
	return split /\|/, $main->safe_psql('postgres',
		"SELECT shardid, nodeport, position FROM ($shards) AS s WHERE $token >> 32 BETWEEN first AND last");
}
sub lowest { return split /\|/, $main->safe_psql('postgres', "SELECT shardid, nodeport FROM ($shards) AS s WHERE position = 0") }
sub split_at
{
	my ($position, $mode) = @_;
	return $main->safe_psql('postgres', qq{
		SET statement_timeout = '60s';
		SELECT citus_split_shard_by_split_points(shardid, ARRAY[((first::bigint + last) / 2)::text],
			ARRAY[n.nodeid, n.nodeid], '$mode')
		  FROM ($shards) AS s JOIN pg_dist_node n USING (nodeport) WHERE position = $position});
}
# With a timeout, since a move that waits for a session of this test would wait for ever.
sub move
{
	my ($token, $timeout) = @_;
	my ($shard, $port) = shard_of($token);
	my ($to) = grep { $_->port != $port } @workers;
	my ($code, undef, $errors) = $main->psql('postgres', sprintf("SET statement_timeout = '%s'; ", $timeout // '60s') .
		"SELECT citus_move_shard_placement($shard, '127.0.0.1', $port, '127.0.0.1', " . $to->port . ", 'block_writes')");
	# The old placement is dropped some time later, and before another one comes there.
	$main->safe_psql('postgres', 'CALL citus_cleanup_orphaned_resources()') if $code == 0;
	return $errors;
}

# A token of one of the upper shards, and what a call for it is to be told: the first name that falls there.
sub upper
{
	my ($token_of) = @_;
	my ($name, $token) = split /\|/, $main->safe_psql('postgres', qq{
		SELECT name, token FROM (SELECT 'n' || i AS name FROM generate_series(1, 200) AS i) AS n,
			LATERAL (SELECT ($token_of)::bigint AS token) AS t
		 WHERE token >> 32 > (SELECT last FROM ($shards) AS s WHERE position = 1)
		 ORDER BY random() LIMIT 1});
	return ($name, $token);
}
my $scoped = sub { "stacksaga.token('$_[0]' || chr(31) || name)" };
my $saga = q{stacksaga.token_uuid(stacksaga.saga_id_of('service', name))};

sub open_session
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query('BEGIN');
	return $session;
}
sub commit
{
	my ($session) = @_;
	$session->{stderr} = '';
	$session->query('\set VERBOSITY verbose');
	$session->query('COMMIT');
	my $errors = $session->{stderr};
	$session->quit;
	return $errors;
}

# Citus by itself.
my (undef, $token) = upper('stacksaga.token(name)');
my $session = open_session($main);
$session->query_safe("INSERT INTO plain VALUES ('$token', 1)");
split_at(0, 'block_writes');
is(move($token), '', 'after a split of a lower shard a move does not wait for a plain INSERT');
is(commit($session), '', 'which commits');
is($main->safe_psql('postgres', 'SELECT count(*) FROM plain'), 0, 'and is lost');

# Each kind of call, on each node, splits of both kinds. A logical split waits for transactions that have written on the
# node of the lower shard, so there the transaction writes on the other one.
my @calls = (
	{ what => 'start_saga', token => $saga, call => q{SELECT created FROM stacksaga.start_saga('service', key => 'NAME')},
		has => q{SELECT count(*) FROM stacksaga.saga WHERE key = 'NAME'} },
	{ what => 'complete_step', token => $saga, before => q{SELECT created FROM stacksaga.start_saga('service', key => 'NAME')},
		claim => 1, call => q{SELECT stacksaga.complete_step(stacksaga.saga_id_of('service', 'NAME'), 'work', LEASE)},
		has => q{SELECT count(*) FROM stacksaga.saga WHERE key = 'NAME' AND status = 'completed'} },
	{ what => 'compare_and_set', token => $scoped->('v'), call => q{SELECT stacksaga.compare_and_set('v', 'NAME', NULL, '1')},
		has => q{SELECT count(*) FROM stacksaga.versioned_value WHERE key = 'NAME'} },
	{ what => 'a value that was read before', token => $scoped->('v'),
		before => q{SELECT stacksaga.compare_and_set('v', 'NAME', NULL, '1')},
		read => q{SELECT value FROM stacksaga.read_value('v', 'NAME')},
		call => q{SELECT stacksaga.compare_and_set('v', 'NAME', 1, '2')},
		has => q{SELECT count(*) FROM stacksaga.versioned_value WHERE key = 'NAME' AND value = '2'} },
	{ what => 'accept_message', token => $scoped->('c'), call => q{SELECT stacksaga.accept_message('c', 'NAME')},
		has => q{SELECT count(*) FROM stacksaga.accepted_message WHERE message_id = 'NAME'} },
	{ what => 'accept_sequence', token => 'stacksaga.token(name)', call => q{SELECT stacksaga.accept_sequence('NAME', 1, 1)},
		has => q{SELECT count(*) FROM stacksaga.producer_sequence WHERE producer = 'NAME'} },
	{ what => 'an idempotency key', token => $scoped->('k'), call => q{
			SELECT stacksaga.idempotency_finish('k', 'NAME', lease, '1') FROM stacksaga.idempotency_begin('k', 'NAME')},
		has => q{SELECT count(*) FROM stacksaga.idempotency_key WHERE key = 'NAME'} },
);
my $number = 0;
for my $case (@calls)
{
	my $mode = $number % 2 ? 'force_logical' : 'block_writes';
	my $node = $mode eq 'force_logical' ? $main : ($main, @workers)[$number % 3];
	my ($name, $of_case) = upper($case->{token});
	my %sql = map { $_ => defined $case->{$_} ? $case->{$_} =~ s/NAME/$name/gr : undef } qw(before read call has);
	$main->safe_psql('postgres', $sql{before}) if defined $sql{before};
	if ($case->{claim})
	{
		my $lease;
		$lease ||= $_->safe_psql('postgres', qq{SELECT lease FROM stacksaga.claim_steps('q', 'w', 10)
			WHERE saga_id = stacksaga.saga_id_of('service', '$name')}) for @workers;
		$sql{call} =~ s/LEASE/$lease/;
	}
	move($of_case) if $mode eq 'force_logical' && (shard_of($of_case))[1] == (lowest())[1];
	my $open = open_session($node);
	$open->query_safe($sql{ defined $sql{read} ? 'read' : 'call' });
	split_at(0, $mode);
	is(move($of_case), '', "$case->{what}, from " . $node->name . ": the move after a split ($mode) does not wait");
	$open->query_safe($sql{call}) if defined $sql{read};
	like(commit($open), qr/40001: could not serialize access: a shard was moved or split/, "$case->{what}: the commit fails");
	is($main->safe_psql('postgres', $sql{has}), 0, "$case->{what}: nothing of it is there");
	$main->safe_psql('postgres', $sql{call}); # it does not matter whether the node has a shard left
	is($main->safe_psql('postgres', $sql{has}), 1, "$case->{what}: the retry is kept");
	++$number;
}

my $accepted = sub { my ($name) = @_; return "SELECT stacksaga.accept_message('c', '$name')" };

# The shard is split itself.
my ($name, $there) = upper($scoped->('c'));
$session = open_session($workers[0]);
$session->query_safe('SAVEPOINT s');
$session->query_safe($accepted->($name));
$session->query_safe('RELEASE s');
split_at(0, 'block_writes');
my (undef, undef, $position) = shard_of($there);
split_at($position, 'block_writes');
like(commit($session), qr/40001/, 'a transaction whose own shard was split fails');

# What was not written there, or was only read, is not concerned. (A shard that comes to the position of a lock would wait.)
my ($other_name, $other);
do
{
	($name, $there) = upper($scoped->('c'));
	($other_name, $other) = upper($scoped->('c'));
} while (shard_of($other))[2] <= (shard_of($there))[2];
$session = open_session($main);
$session->query_safe($accepted->($name));
my $reader = open_session($main);
$reader->query_safe("SELECT stacksaga.read_value('v', '$other_name')");
split_at(0, 'block_writes');
is(move($other), '', 'another shard is moved');
is(commit($session), '', 'the transaction commits');
is(commit($reader), '', 'so does one that has only read');

# A move that has begun before the commit is waited for, and one that has not begun waits.
($name, $there) = upper($scoped->('c'));
$session = open_session($main);
$session->query_safe($accepted->($name));
isnt(move($there, '2s'), '', 'without a split a move waits for the transaction');
is(commit($session), '', 'which commits');
is($main->safe_psql('postgres', q{SELECT problem FROM stacksaga.citus_check() WHERE problem NOT IN ('local_table')}), '', 'the check finds nothing');
done_testing();
