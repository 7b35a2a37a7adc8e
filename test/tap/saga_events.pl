# Events of a saga's life: a model replays what a subscription has heard of each saga, and comes from its start by allowed
# changes to the status that its row has. Workers run sagas and deliver messages, an operator suspends, resumes, cancels and
# tries again at random, and the server crashes. A prepared change is heard of when it commits, and only then.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $sagas = $ENV{STACKSAGA_SAGAS} // 200;
my $node = StacksagaCluster->new('events');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
stacksaga.workers = 2
stacksaga.retry_budget = -1
max_prepared_transactions = 2});
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 2);

$node->safe_psql('postgres', q{
	CREATE TABLE heard (seq bigint GENERATED ALWAYS AS IDENTITY, saga_id uuid, type text, direction text);
	CREATE FUNCTION hear(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
		INSERT INTO heard (saga_id, type, direction) VALUES ((m.payload ->> 'saga_id')::uuid, m.type, m.payload ->> 'direction')
	$$;
	CREATE FUNCTION ok(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
	CREATE FUNCTION handle(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF random() < 0.2 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = 'SR503'; END IF;
		IF random() < 0.1 THEN RAISE EXCEPTION 'never' USING ERRCODE = 'SG424'; END IF;
		RETURN NULL;
	END $$;
	SELECT stacksaga.create_subscription('events', 'events', 'hear(stacksaga.message)');
	SELECT stacksaga.define_saga('at once', ARRAY[stacksaga.sql_step('a', 'ok(stacksaga.step_call)'),
			stacksaga.sql_step('b', 'ok(stacksaga.step_call)'), stacksaga.sql_step('c', 'ok(stacksaga.step_call)')], events_topic => 'events'),
		stacksaga.define_saga('mixed', ARRAY[stacksaga.sql_step('a', 'handle(stacksaga.step_call)', 'handle(stacksaga.step_call)'),
			stacksaga.timer_step('pause', '50 milliseconds'),
			stacksaga.sql_step('b', 'handle(stacksaga.step_call)', 'handle(stacksaga.step_call)'),
			stacksaga.queue_step('nobody', 'nobody', compensable => true, timeout => '100 milliseconds')],
			retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '10 ms', max_interval => '20 ms'), events_topic => 'events');
	SELECT stacksaga.define_saga('family', ARRAY[stacksaga.child_step('c', 'mixed')], events_topic => 'events');});

# Worker transactions say the end alone.
$node->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 20) AS n, LATERAL stacksaga.start_saga('at once', key => n::text)});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 20 FROM heard'), 'sagas that run in one transaction are heard of');
is($node->safe_psql('postgres', 'SELECT DISTINCT type, direction FROM heard'), 'saga.completed|act', 'once, at their end');

# An operator who does something to a third of all sagas, again and again, by single and by bulk calls.
$node->safe_psql('postgres', q{
	CREATE PROCEDURE operate() LANGUAGE plpgsql AS $$
	DECLARE
		id uuid;
	BEGIN
		FOR id IN SELECT saga_id FROM stacksaga.sagas WHERE random() < 0.3 AND status NOT IN ('completed', 'failed') LOOP
			BEGIN
				PERFORM CASE (random() * 5)::integer
					WHEN 0 THEN stacksaga.suspend_saga(id, 'a test')
					WHEN 1 THEN stacksaga.resume_saga(id, 'a test')
					WHEN 2 THEN CASE WHEN random() < 0.3 THEN stacksaga.cancel_saga(id, 'a test') END
					WHEN 3 THEN stacksaga.retry_saga(id, 'a test')
					ELSE (SELECT max(status_after) FROM stacksaga.resume_sagas(ARRAY[id], 'a test', dry_run => random() < 0.5)) END;
				-- What is rolled back is not heard of.
				IF random() < 0.2 THEN
					RAISE EXCEPTION 'rolled back' USING ERRCODE = 'SG409';
				END IF;
			EXCEPTION WHEN SQLSTATE 'SG409' THEN NULL;
			END;
			COMMIT;
		END LOOP;
	END $$});
for my $crash (1 .. 3)
{
	$node->safe_psql('postgres', qq{
		SELECT count(*) FROM generate_series(1, $sagas / 3) AS n, LATERAL stacksaga.start_saga(CASE n % 4 WHEN 0 THEN 'family' ELSE 'mixed' END, key => '$crash ' || n)});
	$node->safe_psql('postgres', 'CALL operate()') for 1 .. 3;
	$node->stop('immediate');
	$node->start;
	$node->safe_psql('postgres', 'CALL operate()') for 1 .. 3;
}
# Nobody claims the queue; cancelled, its sagas compensate. Children are cancelled by their parents.
ok($node->poll_query_until('postgres', q{
	WITH done AS MATERIALIZED (
		SELECT FROM stacksaga.resume_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE status = 'suspended'), 'the end', dry_run => false)
		UNION ALL SELECT FROM stacksaga.retry_sagas(ARRAY(SELECT saga_id FROM stacksaga.parked_sagas), 'the end', dry_run => false)
		UNION ALL SELECT FROM stacksaga.cancel_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE status IN ('pending', 'running')
			AND parent_id IS NULL), 'the end', dry_run => false))
	SELECT count(*) = 0 FROM stacksaga.sagas WHERE status NOT IN ('completed', 'failed') AND (SELECT count(*) FROM done) >= 0}), 'all sagas end');

# The model.
my $last = q{SELECT DISTINCT ON (saga_id) saga_id, type FROM heard ORDER BY saga_id, seq DESC};
ok($node->poll_query_until('postgres', qq{
	SELECT count(*) = 0 FROM stacksaga.sagas LEFT JOIN ($last) AS l USING (saga_id) WHERE l.type IS DISTINCT FROM 'saga.' || status}),
	'the last that is heard of each saga is its status');
is($node->safe_psql('postgres', q{
	WITH change AS (
		SELECT *, lag(type, 1, 'saga.pending') OVER (PARTITION BY saga_id ORDER BY seq) AS before FROM heard)
	SELECT saga_id, before, type, direction FROM change AS c
	 WHERE NOT EXISTS (SELECT FROM stacksaga.saga_transitions() AS t
	                    WHERE ('saga.' || t.from_status, 'saga.' || t.to_status, t.direction) = (c.before, c.type, c.direction))
	 LIMIT 3}), '', 'each change follows from the one before');
is($node->safe_psql('postgres', q{
	SELECT saga_id, acted, told FROM (
	    SELECT saga_id, count(*) FILTER (WHERE status_after = 'suspended' AND status_before <> 'suspended') AS acted
	      FROM stacksaga.saga_actions GROUP BY 1) AS a
	  JOIN (SELECT saga_id, count(*) FILTER (WHERE type = 'saga.suspended' AND before <> type) AS told FROM (
	            SELECT *, lag(type, 1, 'saga.pending') OVER (PARTITION BY saga_id ORDER BY seq) AS before FROM heard) AS h GROUP BY 1) AS h
	 USING (saga_id) WHERE told < acted LIMIT 3}), '', 'each suspension by an operator is heard of');
my ($suspended, $parked, $failed, $turned) = split /\|/, $node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE type = 'saga.suspended'), count(*) FILTER (WHERE type = 'saga.parked'),
	       count(*) FILTER (WHERE type = 'saga.failed'), count(*) FILTER (WHERE type = 'saga.suspended' AND direction = 'compensate') FROM heard});
cmp_ok($suspended, '>', 0, "$suspended suspensions");
cmp_ok($failed, '>', 0, "$failed failed");
note("$parked parked, $turned suspended while they compensate");

# A prepared transaction.
my $id = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('mixed', run_at => now() + interval '1 hour')});
my $heard = "SELECT string_agg(type, ' ' ORDER BY seq) FROM heard WHERE saga_id = '$id'";
for my $end ('ROLLBACK', 'COMMIT')
{
	$node->safe_psql('postgres', "BEGIN; SELECT stacksaga.suspend_saga('$id', 'a test'); PREPARE TRANSACTION 'suspends'");
	$node->stop('immediate');
	$node->start;
	$node->safe_psql('postgres', q{SELECT stacksaga.start_saga('at once')});
	ok($node->poll_query_until('postgres', qq{SELECT count(*) = 0 FROM stacksaga.sagas WHERE saga = 'at once' AND status <> 'completed'}),
		'others go on');
	is($node->safe_psql('postgres', $heard), '', 'a prepared change is not heard of');
	$node->safe_psql('postgres', "$end PREPARED 'suspends'");
}
ok($node->poll_query_until('postgres', "SELECT ($heard) = 'saga.suspended'"), 'until it commits');

$node->stop;
done_testing();
