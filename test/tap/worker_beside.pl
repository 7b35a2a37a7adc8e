# The only worker is in a slow step: what is due by time goes on beside it, its node stays active, and
# doctor() and status() name the handler. A worker whose process is stopped is not spoken for.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('beside');
$node->init;
$node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'stacksaga'
stacksaga.databases = 'postgres'});
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('heartbeat_interval', '1 second'), ('suspect_after', '3 seconds'), ('dead_after', '4 seconds')) AS s(setting, value);
	CREATE TABLE gate ();
	CREATE FUNCTION slow(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM FROM gate;
		RETURN '1';
	END $$;
	CREATE FUNCTION quick(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
	SELECT stacksaga.define_saga('slow', ARRAY[stacksaga.sql_step('wait', 'slow(stacksaga.step_call)', timeout => '10 minutes')]);
	SELECT stacksaga.define_saga('quick', ARRAY[stacksaga.sql_step('only', 'quick(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('timer', ARRAY[stacksaga.timer_step('pause', '1 second'), stacksaga.queue_step('call', 'calls',
		compensable => false)]);
	SELECT stacksaga.define_saga('late', ARRAY[stacksaga.signal_step('signal', 'never')], deadline => '1 second');
	SELECT stacksaga.define_saga('lease', ARRAY[stacksaga.queue_step('lease', 'leases', compensable => false)])});
wait_until_works($node, 'postgres', 1);
is($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'stacksaga timekeeper'}), 1,
	'one process runs beside the workers');

my $gate = $node->background_psql('postgres');
$gate->query_safe('BEGIN; LOCK TABLE gate');
my $slow = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('slow')});
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM stacksaga_internal.handlers_at_work()}) or die;
# More steps that wait for the worker than one search returns.
$node->safe_psql('postgres', q{
	SELECT count(*) FROM generate_series(1, 600) AS n, LATERAL stacksaga.start_saga('quick', key => 'q' || n);
	SELECT stacksaga.start_saga(s) FROM unnest(ARRAY['timer', 'late', 'lease']) AS s;
	SELECT stacksaga.create_schedule('hourly', 'quick', '0 * * * *');
	UPDATE stacksaga.schedule SET next_run = date_trunc('hour', now()), due_at = date_trunc('hour', now())});
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.claim_steps('leases', 'service', lease => '1 second')}), 1, 'a service claims');

my %goes_on = (
	'a timer' => q{SELECT count(*) = 1 FROM stacksaga.work WHERE queue = 'calls'},
	'a deadline' => q{SELECT status = 'failed' FROM stacksaga.sagas WHERE saga = 'late'},
	'a lease that ran out' => q{SELECT lease_until IS NULL FROM stacksaga.work WHERE queue = 'leases'},
	'a schedule' => q{SELECT count(*) = 601 FROM stacksaga.sagas WHERE saga = 'quick'});
for my $what (sort keys %goes_on)
{
	ok($node->poll_query_until('postgres', $goes_on{$what}), "$what goes on beside a handler");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.sagas WHERE saga = 'quick' AND status = 'completed'}), 0,
	'and no step is called beside it');

# What the retention has passed for is removed, which is looked at once a minute.
$node->safe_psql('postgres', q{SET stacksaga.dedupe_retention = '1s'; SELECT stacksaga.accept_message('consumer', 'message')});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM stacksaga.accepted_message'), 'retention goes on beside a handler');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga_internal.handlers_at_work()'), 1, 'which has not returned');

# Longer than dead_after.
my $busy = q{FROM stacksaga_internal.handlers_at_work() WHERE};
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $busy since < clock_timestamp() - interval '8 seconds'"), 'the handler goes on');
is($node->safe_psql('postgres', q{SELECT state FROM stacksaga.nodes WHERE node = 'worker-1'}), 'active', 'its worker is active');
my ($pid) = worker_pids($node, 'postgres');
like($node->safe_psql('postgres', q{SELECT severity, detail FROM stacksaga.doctor() WHERE check_name = 'running_handlers'}),
	qr/^warning\|worker-1 \(process $pid\) has been in step "wait" of saga $slow since \d/, 'doctor() names the handler');
is($node->safe_psql('postgres', q{SELECT h ->> 'pid', h ->> 'saga_id' FROM jsonb_array_elements(stacksaga.status() -> 'handlers') AS h}),
	"$pid|$slow", 'so does status()');

# A process that is stopped is no process in a handler.
kill 'STOP', $pid;
ok($node->poll_query_until('postgres', q{SELECT state = 'dead' FROM stacksaga.nodes WHERE node = 'worker-1'}), 'a stopped worker is dead');
kill 'CONT', $pid;
ok($node->poll_query_until('postgres', q{SELECT state = 'active' FROM stacksaga.nodes WHERE node = 'worker-1'}), 'until it goes on');

$gate->query_safe('COMMIT');
$gate->quit;
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$slow', '60 s')"), 'completed', 'the handler returns');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 601 FROM stacksaga.sagas WHERE saga = 'quick' AND status = 'completed'}), 'and the rest runs');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'running_handlers'}), 0, 'and doctor() names none');

# The process ends with the workers.
$node->append_conf('postgresql.conf', 'stacksaga.workers = 0');
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'stacksaga%' AND datname = 'postgres'}),
	'without workers it ends');
$node->stop;
done_testing();
