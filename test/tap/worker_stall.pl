# A worker whose process is stopped in the middle of a transaction keeps its slots: it is ended after
# stacksaga.worker_stall_timeout, and no attempt is charged. One that is in a slow handler is not ended.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('stall');
$node->init(worker_databases => [ 'postgres' ]);
$node->append_conf('postgresql.conf', "stacksaga.worker_stall_timeout = '3 s'");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE gate ();
	CREATE FUNCTION slow(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM FROM gate;
		RETURN '1';
	END $$;
	SELECT stacksaga.define_saga('slow', ARRAY[stacksaga.sql_step('wait', 'slow(stacksaga.step_call)', timeout => '10 minutes')])});
wait_until_works($node, 'postgres', 1);
my ($pid) = worker_pids($node, 'postgres');
my $gate = $node->background_psql('postgres');
$gate->query_safe('BEGIN; LOCK TABLE gate');
my $saga = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('slow')});
my $is_in_handler = q{SELECT count(*) = 1 FROM stacksaga_internal.handlers_at_work() WHERE since < clock_timestamp() - interval '%s'};
ok($node->poll_query_until('postgres', sprintf($is_in_handler, '6 s')), 'a handler is slow for twice the timeout');
is_deeply([ worker_pids($node, 'postgres') ], [$pid], 'and goes on');

my $start = -s $node->logfile;
kill 'STOP', $pid;
$node->wait_for_log(qr/worker-1 \(process $pid\) is ended: it has not run for \d+ s in the middle of a transaction/, $start);
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'stacksaga worker' AND pid <> $pid"),
	'another process takes its number');
$gate->query_safe('COMMIT');
$gate->quit;
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$saga', '60 s')"), 'completed', 'its slots are taken over');
is($node->safe_psql('postgres', "SELECT string_agg(status || ' ' || attempt, ', ') FROM stacksaga.saga_history WHERE saga_id = '$saga'"),
	'completed 1', 'and no attempt is charged');
$node->stop;
done_testing();
