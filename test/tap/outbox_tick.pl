# A tick holds the last number that was given out before its snapshot. A message that takes a number while the
# tick is made, in a transaction that the snapshot does not know, is left to the next tick.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my $node = StacksagaCluster->new('tick');
$node->init;
# So that LOCK TABLE gives no id to its transaction.
$node->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\nautovacuum = off\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.create_subscription('audit', 'order');
	CREATE FUNCTION put(n int) RETURNS boolean LANGUAGE sql AS
		$$ SELECT stacksaga.publish('order', to_jsonb(n)) IS NOT NULL $$;
	CREATE FUNCTION take() RETURNS int[] LANGUAGE plpgsql AS $$
	DECLARE
		taken int[];
		batch bigint;
	BEGIN
		SELECT array_agg(payload::int ORDER BY payload), max(batch_id) INTO taken, batch
		  FROM stacksaga.receive_messages('audit', 'till');
		PERFORM stacksaga.ack_messages(batch) WHERE batch IS NOT NULL;
		RETURN taken;
	END $$;
});

# The first tick knows of a number that an open transaction has taken.
my $early = $node->background_psql('postgres');
$early->query_safe('BEGIN');
$early->query_safe('SELECT put(1)');
$node->safe_psql('postgres', 'SELECT put(2)');
is($node->safe_psql('postgres', 'SELECT take()'), '{2}', 'what is committed is taken');
$early->query_safe('COMMIT');

# The second one has to look into the log for it, and waits there after it took its snapshot.
my $late = $node->background_psql('postgres');
$late->query_safe('BEGIN');
$late->query_safe('LOCK TABLE stacksaga.outbox_message IN ACCESS EXCLUSIVE MODE');
is($late->query_safe('SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'the lock has given no id');
my $taker = $node->background_psql('postgres');
$taker->query_until(qr/begun/, "\\echo begun\nSELECT take();\n");
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT take()%' AND wait_event_type = 'Lock'}),
	'a tick is being made');
$late->query_safe('SELECT put(3)');
$late->query_safe('COMMIT');
is($taker->query_safe('SELECT take()'), "{1}\n{3}", 'the message of that time is taken by the next tick');
is($node->safe_psql('postgres', 'SELECT lag_messages FROM stacksaga.subscriptions'), '0', 'and no other is left');

$_->quit foreach $early, $late, $taker;
$node->stop;
done_testing();
