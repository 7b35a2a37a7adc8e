# A handler that catches the cancel of its timeout: what it does late is rolled back, and one that goes
# on ends its process, which is charged to it. Until then doctor() names its worker.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('timeout');
$node->init;
$node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'stacksaga'
stacksaga.databases = 'postgres'
stacksaga.message_timeout = '200 ms'});
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE effect (what text);
	CREATE FUNCTION late(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES ('late');
		BEGIN LOOP END LOOP; EXCEPTION WHEN query_canceled THEN RETURN '1'; END;
	END $$;
	CREATE FUNCTION go_on() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN LOOP END LOOP; EXCEPTION WHEN query_canceled OR OTHERS THEN NULL; END;
		END LOOP;
	END $$;
	CREATE FUNCTION stubborn(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT to_jsonb(go_on()::text)';
	CREATE FUNCTION stubborn(m stacksaga.message) RETURNS void LANGUAGE sql AS 'SELECT go_on()';
	SELECT stacksaga.define_saga(f, ARRAY[stacksaga.sql_step('only', f || '(stacksaga.step_call)',
		timeout => '200 ms', retry => stacksaga.retry_policy(max_attempts => 1))])
	  FROM unnest(ARRAY['late', 'stubborn']) AS f;
	SELECT stacksaga.create_subscription('stubborn', 'stubborn', 'stubborn(stacksaga.message)',
		retry => stacksaga.retry_policy(max_attempts => 1))});
wait_until_works($node, 'postgres', 1);

sub errors
{
	my ($saga) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT h.attempt, h.error FROM stacksaga.saga_history AS h JOIN stacksaga.sagas AS s USING (saga_id)
		 WHERE s.saga = '$saga' AND h.status = 'failed'});
}

# The process that doctor() names, once it names one that is not this one.
sub named_worker
{
	my ($what, $not) = @_;
	my $named = q{SELECT substring(detail FROM 'process (\d+)') FROM stacksaga.doctor()
		 WHERE check_name = 'running_handlers' AND severity = 'error' AND detail ~ 'in } . $what . q{'};
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($named) AS d(pid) WHERE pid <> '$not'");
	return $node->safe_psql('postgres', $named);
}

is(run_saga($node, 'postgres', 'late'), 'failed', 'an attempt that ends late has not completed');
is(errors('late'), '1|the attempt took longer than the step\'s timeout', 'and says why');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), 0, 'and has left nothing behind');

# A cancel does nothing to such a handler; an order to quit and a shutdown end it, and are not charged.
my $offset = -s $node->logfile;
my $id = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('stubborn')});
my $worker = named_worker("step \"only\" of saga $id", 0);
ok($worker, 'doctor() names the worker and the step');
is($node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)"), 't', 'it is cancelled');
is(named_worker('step', 0), $worker, 'in vain');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
$worker = named_worker('step', $worker);
ok($worker, 'the next worker takes it up');
$node->stop('fast');
$node->start;
is(log_count($node, 'did not end within', $offset), 0, 'none of this was its own end');
is(errors('stubborn'), '', 'nor charged');
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '120 seconds')"), 'failed',
	'left alone it fails');
is(errors('stubborn'), '1|the handler did not end within ten seconds after its timeout',
	'for what it did, once');
is(log_count($node, 'a handler did not end within 10 seconds after its timeout', $offset), 1,
	'the log says why the worker ended');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'and the worker is there for others');

# The same for messages.
$node->safe_psql('postgres', q{SELECT stacksaga.publish('stubborn', '{}')});
ok(named_worker('a handler of subscription "stubborn"', 0), 'doctor() names the subscription');
$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM stacksaga.dead_messages');
is($node->safe_psql('postgres', 'SELECT attempts, last_error FROM stacksaga.dead_messages'),
	'1|the handler did not end within ten seconds after its timeout', 'such a message is dead');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'running_handlers'}), 0,
	'nothing is named when it is over');

# A session that calls run_pending() ends as well; nothing that it did counts.
$node->append_conf('postgresql.conf', 'stacksaga.workers = 0');
$node->restart;
$id = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('stubborn')});
my ($status, $output, $error) = $node->psql('postgres', 'SELECT stacksaga.run_pending()');
like($error, qr/terminating connection due to administrator command/, 'run_pending() ends its session');
is($node->safe_psql('postgres', "SELECT status, attempt FROM stacksaga.sagas WHERE saga_id = '$id'"),
	'pending|0', 'and leaves nothing behind');

$node->stop;
done_testing();
