# The outbox in a dump that is restored into another cluster, where transaction ids mean nothing; and
# the log as logical decoding shows it.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my $before = StacksagaCluster->new('before');
$before->init;
$before->append_conf('postgresql.conf', "wal_level = logical\nstacksaga.notify = on\n");
$before->start;
$before->create_extension('postgres');

sub query
{
	my ($node, $sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub put
{
	my ($node, $n, $key) = @_;
	return query($node,
		qq{SELECT stacksaga.publish('t', '{"n": $n}', '$key', 'made', '{"traceparent": "00"}')});
}

# Receives the messages of a subscription, and acknowledges them.
sub take
{
	my ($node, $subscription) = @_;
	my $rows = query($node, qq{
		SELECT payload -> 'n', batch_id
		  FROM stacksaga.receive_messages('$subscription', 'c')});
	my ($batch) = $rows =~ /\|(\d+)/;
	query($node, "SELECT stacksaga.ack_messages($batch)") if defined $batch;
	return join(' ', map { (split /\|/)[0] } split /\n/, $rows);
}

# A publication as Debezium reads it: inserts only, under the name of the whole log.
query($before, q{
	CREATE PUBLICATION outbox FOR TABLE stacksaga.outbox_message
		WITH (publish = 'insert', publish_via_partition_root = true);
	SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')});
query($before, q{SELECT stacksaga.create_subscription('ahead', 't');
	SELECT stacksaga.create_subscription('behind', 't')});
put($before, $_, 'k') foreach 1 .. 3;
is(take($before, 'ahead'), '1 2 3', 'one subscription has read');
query($before, 'SELECT stacksaga.maintain_outbox(true)');
put($before, 4, 'k');
is(take($before, 'behind'), '1 2 3 4', 'and so has the other');
query($before, 'SELECT stacksaga.maintain_outbox(true)');
my $changes = q{FROM pg_logical_slot_get_binary_changes('debezium', NULL, NULL,
	'proto_version', '1', 'publication_names', 'outbox')};
my ($inserts, $by_root, $truncates) = split /\|/, query($before, qq{
	SELECT count(*) FILTER (WHERE substr(data, 1, 1) = 'I'),
	       count(*) FILTER (WHERE substr(data, 1, 1) = 'I' AND substr(data, 2, 4) = int4send(
		'stacksaga.outbox_message'::regclass::oid::int)),
	       count(*) FILTER (WHERE substr(data, 1, 1) = 'T') $changes});
is($inserts, 4, 'decoding shows each message as one insert');
is($by_root, 4, 'into the log under its one name');
is($truncates, 0, 'and not the truncation of a generation');
query($before, q{SELECT pg_drop_replication_slot('debezium')});

# One notification a tick, however many were published.
my $heard = query($before, q{
	LISTEN stacksaga_outbox;
	SELECT stacksaga.create_subscription('heard', 'heard');
	SELECT count(*) FROM stacksaga.publish_batch('heard', array_fill('{}'::jsonb, '{10}'));
	SELECT stacksaga.publish('heard', '{}') IS NOT NULL;
	SELECT count(*) FROM stacksaga.receive_messages('heard', 'c');
	SELECT count(*) FROM stacksaga.receive_messages('heard', 'c')});
is(scalar(() = $heard =~ /notification "stacksaga_outbox"/g), 1, 'a tick notifies once');
like($heard, qr/^11$/m, 'of all that it covers');

# Some messages are read, some are not, one is a retry, and one comes too late for the dump.
put($before, $_, 'k') foreach 5 .. 6;
is(take($before, 'ahead'), '4 5 6', 'one subscription is ahead');
put($before, 7, 'k');
my ($batch, $id) = split /\|/, query($before, q{
	SELECT batch_id, message_id FROM stacksaga.receive_messages('behind', 'c') ORDER BY
		payload -> 'n' LIMIT 1});
query($before, "SELECT stacksaga.fail_message($batch, '$id', 'no', retry_after => '1 hour')");

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$before->prepare_dump('postgres');
command_ok([ 'pg_dump', '-f', $dump, '-d', $before->connstr('postgres') ], 'the dump');
put($before, 8, 'k');

# In another cluster, whose transaction ids have nothing to do with those of the dump.
my $after = StacksagaCluster->new('after');
$after->init;
$after->start;
command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $after->connstr('postgres'),
		'-f', $dump ], 'the restore');
# The dump may have read the sequence of the numbers before the last tick was made.
query($after, q{SELECT setval('stacksaga.outbox_number_seq', number_after - 2) FROM stacksaga.outbox_tick
	ORDER BY tick DESC LIMIT 1});
put($after, 9, 'k');
is(take($after, 'ahead'), '7 9', 'continues at its position, and with the new message');
is(query($after, "SET stacksaga.clock_offset = '1 minute';
	SELECT payload -> 'n' FROM stacksaga.receive_messages('behind', 'c')"),
	'', 'later messages of a failed one wait');
is(query($after, 'SELECT waiting, last_error FROM stacksaga.blocked_keys'), '3|no',
	'the failure is kept');
is(query($after, "SET stacksaga.clock_offset = '2 hours';
	SELECT payload -> 'n', attempt FROM stacksaga.receive_messages('behind', 'c')"),
	'5|2', 'and tried again');
put($after, 10, 'k');
is(take($after, 'ahead'), '10', 'and so on');

$after->stop;
$before->stop;
done_testing();
