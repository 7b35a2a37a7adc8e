# A failure makes its own batch run each item in a subtransaction. The other batches, before and after it, cost as much as
# without it: a subtransaction takes a transaction id, and another one or a multixact for the row that it changes.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('subs');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF call.input ? 'fails' THEN
			RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
		END IF;
		RETURN '1';
	END $$;
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.sql_step('only', 'act(stacksaga.step_call)')])});
wait_until_works($node, 'postgres', 1);

sub run
{
	my ($count, $input, $which) = (@_, 1);
	$node->safe_psql('postgres', qq{
		SELECT count(*) FROM generate_series(1, $count) AS n,
		       LATERAL stacksaga.start_saga('s', CASE WHEN n = $which THEN '$input' ELSE '{}' END::jsonb)});
	$node->poll_query_until('postgres',
		q{SELECT NOT EXISTS (SELECT FROM stacksaga.sagas WHERE status NOT IN ('completed', 'failed'))})
	  or die 'they do not end';
	return;
}

sub transaction_ids { return $node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())') }

sub multixacts
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	return $node->safe_psql('postgres', 'SELECT next_multixact_id FROM pg_control_checkpoint()');
}

run(200, '{"fails": true}');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.sagas WHERE status = 'failed'}), 1, 'one of them fails');
run(200, '{}') for 1 .. 2;
my ($ids, $multis) = (transaction_ids(), multixacts());
run(400, '{}');
cmp_ok(transaction_ids() - $ids, '<', 250, 'later sagas do not take a transaction id each');
cmp_ok(multixacts() - $multis, '<', 100, 'nor a multixact');

# A batch has at most 50 subtransactions, each with two ids; 135 ids and no multixact have been measured.
($ids, $multis) = (transaction_ids(), multixacts());
run(1000, '{"fails": true}', 500);
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.sagas WHERE status = 'failed'}), 2, 'one of 1,000 fails');
cmp_ok(transaction_ids() - $ids, '<', 400, 'the others do not take a transaction id each');
cmp_ok(multixacts() - $multis, '<', 100, 'nor a multixact');

$node->stop;
done_testing();
