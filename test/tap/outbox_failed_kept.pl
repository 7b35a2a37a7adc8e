# A message whose handler fails in a worker is kept for its retry when the position moves over it.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('failed_kept');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE SEQUENCE calls; -- which no rollback takes back
	CREATE FUNCTION fails(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('calls');
		RAISE 'the bank is closed' USING ERRCODE = 'SR503';
	END $$;
	SELECT stacksaga.create_subscription('kept', 'kept', 'fails(stacksaga.message)',
		retry => stacksaga.retry_policy(initial_interval => '1 hour', max_interval => '1 hour'))});
wait_until_works($node, 'postgres', 1);

$node->safe_psql('postgres', q{
	CREATE TABLE before AS SELECT partition, max(version) AS version FROM stacksaga.subscription_position GROUP BY 1;
	SELECT stacksaga.publish('kept', '1', 'key')});
ok($node->poll_query_until('postgres', q{
		SELECT is_called AND EXISTS (
		       SELECT FROM stacksaga.outbox_message m JOIN before b ON b.partition = m.stripe
		         JOIN stacksaga.subscription_position p USING (partition) WHERE p.version > b.version)
		  FROM calls}),
	'the handler fails, and the position moves');
is($node->safe_psql('postgres', q{SELECT state, attempt, payload FROM stacksaga.message_retry}),
	'waiting|1|1', 'the failed message waits');
is($node->safe_psql('postgres', q{SELECT lag_messages FROM stacksaga.subscriptions WHERE subscription = 'kept'}),
	'1', 'it is still to be delivered');

$node->stop;
done_testing();
