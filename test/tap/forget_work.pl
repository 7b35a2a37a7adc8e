# A copy of a live database does nothing of what the original does, also with a worker of its own, once it has forgotten its
# work: no step, no message, no schedule, no compensation. The original goes on.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('original');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', 'stacksaga.workers = 1');
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 1);

# Whose workers run.
sub serve
{
	my ($databases) = @_;
	$node->safe_psql('template1', qq{ALTER SYSTEM SET stacksaga.databases = '$databases'});
	$node->reload;
}

$node->safe_psql('postgres', q{
	CREATE TABLE done (what text NOT NULL);
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO done VALUES (call.saga || ' ' || call.step || ' ' || call.direction) RETURNING NULL::jsonb
	$$;
	CREATE FUNCTION hear(m stacksaga.message) RETURNS void LANGUAGE sql AS $$ INSERT INTO done VALUES ('message') $$;
	SELECT stacksaga.define_saga('timed', ARRAY[stacksaga.timer_step('wait', '3 seconds'), stacksaga.sql_step('a', 'act(stacksaga.step_call)')]),
		stacksaga.define_saga('late', ARRAY[stacksaga.sql_step('a', 'act(stacksaga.step_call)', 'act(stacksaga.step_call)'),
			stacksaga.queue_step('b', 'nobody', compensable => false)], deadline => '3 seconds'),
		stacksaga.define_saga('charge', ARRAY[stacksaga.queue_step('c', 'charge', compensable => false), stacksaga.sql_step('a', 'act(stacksaga.step_call)')]),
		stacksaga.define_saga('each second', ARRAY[stacksaga.sql_step('a', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.create_subscription('hear', 'said', 'hear(stacksaga.message)');
	SELECT stacksaga.create_schedule('each second', 'each second', '* * * * * *')});
serve('');
$node->poll_query_until('template1', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'postgres'});
$node->safe_psql('postgres', q{
	SELECT stacksaga.start_saga('timed'), stacksaga.start_saga('late'), stacksaga.start_saga('charge');
	SELECT stacksaga.run_pending(); -- the first step of each
	SELECT count(*) FROM stacksaga.claim_steps('charge', 'a service', 1, '2 seconds');
	SELECT stacksaga.publish('said', '1', deliver_at => now() + interval '3 seconds')});
ok($node->poll_query_until('template1', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'postgres'}), 'nobody is in the original');
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
my $done = q{SELECT string_agg(what || ' ' || n, ', ' ORDER BY what) FROM (SELECT what, count(*) AS n FROM done GROUP BY 1) AS d};
my $before = $node->safe_psql('copy', $done);

is($node->safe_psql('copy', q{SELECT stacksaga.forget_work('a copy', 'copy')}), '3', 'three sagas were in flight');
serve('postgres,copy');
wait_until_works($node, 'copy', 1);

# What happens in the original is due in the copy as well.
ok($node->poll_query_until('postgres', q{
	SELECT (SELECT count(*) FROM stacksaga.sagas WHERE saga = 'timed' AND status = 'completed') = 1
	   AND (SELECT count(*) FROM stacksaga.sagas WHERE saga = 'late' AND status = 'failed') = 1
	   AND (SELECT count(*) FROM done WHERE what = 'message') = 1 AND (SELECT count(*) FROM stacksaga.sagas WHERE saga = 'each second') > 3}),
	'the original goes on');
ok($node->poll_query_until('copy', q{SELECT max(last_turn_ms) >= 0 AND sum(turns) > 1 FROM stacksaga.worker_stats}), 'the worker of the copy works');
is($node->safe_psql('copy', $done), $before, 'the copy has done nothing');
is($node->safe_psql('copy', q{
	SELECT string_agg(saga || ' ' || status, ', ' ORDER BY saga) FROM stacksaga.sagas WHERE saga <> 'each second'}),
	'charge suspended, late suspended, timed suspended', 'its sagas stand still');
is($node->safe_psql('copy', q{SELECT count(*) FROM stacksaga.claim_steps('charge', 'a service', 1)}), '0', 'no service gets a step');
is($node->safe_psql('copy', q{SELECT error_class FROM stacksaga.saga_history WHERE step = 'c'}), 'unknown', 'what a service had is in doubt');

# What begins in it afterwards runs.
is($node->safe_psql('copy', q{SELECT saga_id FROM stacksaga.start_saga('each second', key => 'new')}) ne '', 1, 'it is used');
ok($node->poll_query_until('copy', q{SELECT status = 'completed' FROM stacksaga.sagas WHERE key = 'new'}), 'and runs what is new');

$node->stop;
done_testing();
