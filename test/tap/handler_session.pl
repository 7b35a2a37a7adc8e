# A worker runs what run_pending() leaves to it, and gives every handler a session without the open cursors
# and locks of the others.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('session');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION leaves(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE call.input ->> 0;
		RETURN '1';
	END $$;
	SELECT stacksaga.define_saga('leaves', ARRAY[stacksaga.sql_step('only', 'leaves(stacksaga.step_call)')]);
	SELECT stacksaga.start_sagas('leaves', array_agg(to_jsonb(ARRAY[s]))) FROM generate_series(1, 5), unnest(ARRAY[
		'DECLARE left_behind CURSOR FOR SELECT 1',
		'DO ''DECLARE c CURSOR FOR SELECT 1; BEGIN OPEN c; END''',
		'SELECT pg_advisory_lock(1)']) AS s});

my ($status, $output, $error) = $node->psql('postgres', 'SELECT stacksaga.run_pending()');
is($output, '0', 'run_pending() runs no handler that leaves something');
is(scalar(() = $error =~ /is left to a worker/g), 15, 'and names each');
is($node->safe_psql('postgres', q{SELECT DISTINCT status || attempt FROM stacksaga.sagas}), 'pending0',
	'none of them is charged');
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
$node->poll_query_until('postgres', q{SELECT count(*) = 15 FROM stacksaga.sagas WHERE status = 'completed'});
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.failure'), 0,
	'a worker runs them, also several in one transaction');
$node->poll_query_until('postgres', q{
	SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND objsubid = 1)});
pass('and gives back the locks of the session');

$node->stop;
done_testing();
