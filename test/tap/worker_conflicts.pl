# Steps and messages that meet each other's locks: everything is done once, nothing is charged for a lock, and
# what holds no lock does not wait.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('conflicts');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
stacksaga.workers = 2
stacksaga.retry_budget = -1});
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 2);

$node->safe_psql('postgres', q{
	CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL DEFAULT 0);
	INSERT INTO account SELECT generate_series(1, 40);
	CREATE FUNCTION move(input jsonb) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE account SET balance = balance - 1 WHERE id = (input ->> 'from')::integer;
		UPDATE account SET balance = balance + 1 WHERE id = (input ->> 'to')::integer;
	END $$;
	CREATE FUNCTION move(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM move(call.input);
		IF call.attempt <= (call.input ->> 'failing')::integer THEN
			RAISE EXCEPTION 'not yet' USING ERRCODE = 'SR503';
		END IF;
		RETURN to_jsonb(call.attempt);
	END $$;
	CREATE FUNCTION move(m stacksaga.message) RETURNS void LANGUAGE sql AS 'SELECT move(m.payload)';
	SELECT stacksaga.define_saga('move', ARRAY[stacksaga.sql_step('move', 'move(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '0'))]);
	SELECT stacksaga.create_subscription('move', 'move', 'move(stacksaga.message)')});

# What the lock manager says of the workers.
my $waiting = q{
	SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	 WHERE a.backend_type = 'stacksaga worker' AND NOT l.granted AND l.locktype IN ('transactionid', 'tuple')};

# Sagas and messages at the same time, in random order; one attempt in ten fails, twice in one of a hundred.
$node->safe_psql('postgres', q{
	CREATE TABLE drawn AS
		SELECT n, 1 + a AS "from", 1 + (a + 1 + b) % 40 AS "to", (n % 10 = 0)::integer + (n % 100 = 0)::integer AS failing
		  FROM (SELECT n, floor(random() * 40)::integer AS a, floor(random() * 39)::integer AS b
		          FROM generate_series(1, 600) AS n) AS d;
	SELECT count(stacksaga.publish('move', to_jsonb(d), "to"::text)) FROM drawn d WHERE n > 400;
	SELECT count(*) FROM stacksaga.start_sagas('move', ARRAY(SELECT to_jsonb(d) FROM drawn d WHERE n <= 400))});
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 400 AND bool_and(status = 'completed') FROM stacksaga.sagas}), 'every saga completes');
ok($node->poll_query_until('postgres', q{
	SELECT lag_messages = 0 FROM stacksaga.subscriptions}), 'every message is handled');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM account a
	 WHERE balance <> (SELECT count(*) FILTER (WHERE "to" = id) - count(*) FILTER (WHERE "from" = id) FROM drawn)}),
	'0', 'each of them once');
is($node->safe_psql('postgres', q{
	SELECT count(*) || ' ' || count(*) FILTER (WHERE sqlstate = 'SR503') FROM stacksaga.failure}),
	'44 44', 'attempts are charged for what the step raises, and for no lock');
is($node->safe_psql('postgres', q{
	SELECT bool_and(output = jsonb_build_object('move', (input ->> 'failing')::integer + 1)) FROM stacksaga.sagas}),
	't', 'and each saga had as many as it needed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.message_retry'), '0', 'no message failed');

# From here on one worker: what is in its batch is known.
$node->append_conf('postgresql.conf', 'stacksaga.workers = 1');
$node->reload;
wait_for_workers($node, 'postgres', 1);
$node->safe_psql('postgres', q{
	UPDATE account SET balance = 0;
	CREATE FUNCTION patient(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE account SET balance = balance + 1 WHERE id = (call.input ->> 'id')::integer;
		RETURN '"done"';
	EXCEPTION WHEN lock_not_available THEN
		RETURN '"gave up"';
	END $$;
	CREATE FUNCTION hasty(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM FROM account WHERE id = (call.input ->> 'id')::integer FOR UPDATE NOWAIT;
		RETURN '"done"';
	END $$;
	SELECT stacksaga.define_saga(f, ARRAY[stacksaga.sql_step('only', f || '(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '0'))])
	  FROM unnest('{patient,hasty}'::text[]) AS f});

# All of them are due at once: the slots of the worker are read in a changing order, so that the one that meets
# the lock is the first one of its batch, or the last, or in between.
foreach my $round (1 .. 3)
{
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('BEGIN; UPDATE account SET balance = balance WHERE id = 1');
	my @ids = split /\n/, $node->safe_psql('postgres', q{
		SELECT saga_id FROM stacksaga.start_sagas('patient', ARRAY(
			SELECT jsonb_build_object('id', n) FROM generate_series(1, 12) AS n))});
	ok($node->poll_query_until('postgres', $waiting), 'a step waits for a row');
	# In one statement: the wait that was seen may be the short one, after which the batch goes on.
	is($node->safe_psql('postgres', qq{
		SELECT (SELECT count(*) FROM account WHERE balance = $round AND id BETWEEN 2 AND 12)
		     - (SELECT count(*) FROM stacksaga.sagas WHERE saga = 'patient' AND status = 'completed')}), -12 * ($round - 1),
		'and what was done before it in its batch is committed with its markers');
	$holder->query_safe('COMMIT');
	$holder->quit;
	ok($node->poll_query_until('postgres', qq{
		SELECT count(*) = 12 * $round FROM stacksaga.sagas WHERE saga = 'patient' AND status = 'completed'}),
		'then all of them are done');
}
is($node->safe_psql('postgres', q{
	SELECT DISTINCT output ->> 'only' FROM stacksaga.sagas WHERE saga = 'patient'}),
	'done', 'a step that catches lock_not_available never hears of the limit');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.failure f JOIN stacksaga.sagas s USING (saga_id) WHERE s.saga = 'patient'}),
	'0', 'and none is charged');

# A lock that the step itself does not wait for is its own failure.
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; UPDATE account SET balance = balance WHERE id = 1');
$node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.start_sagas('hasty', ARRAY(
		SELECT jsonb_build_object('id', n) FROM generate_series(1, 12) AS n))});
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 12 FROM stacksaga.sagas WHERE saga = 'hasty' AND status IN ('completed', 'failed')}),
	'steps that do not wait for locks come to an end');
is($node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE status = 'completed') || ' '
	    || (SELECT string_agg(f.sqlstate, ' ') FROM stacksaga.failure f JOIN stacksaga.sagas s USING (saga_id)
	         WHERE s.saga = 'hasty')
	  FROM stacksaga.sagas WHERE saga = 'hasty'}),
	'11 55P03 55P03 55P03', 'and the one that met a lock has spent its attempts');
$holder->query_safe('COMMIT');

# A real deadlock, with a session that takes the rows in the other order: the worker gives way, and tries again.
$node->safe_psql('postgres', q{
	CREATE FUNCTION gated(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE account SET balance = 1 WHERE id = 20;
		PERFORM pg_advisory_xact_lock(1);
		UPDATE account SET balance = 2 WHERE id = 21;
		RETURN NULL;
	END $$;
	SELECT stacksaga.define_saga('gated', ARRAY[stacksaga.sql_step('only', 'gated(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 1))])});
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
$holder->query_safe(q{SET deadlock_timeout = '1h'; BEGIN; UPDATE account SET balance = 3 WHERE id = 21});
my $id = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('gated')});
# For longer than a batch waits for a lock: the step runs alone, and keeps its row while it waits.
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 1 FROM pg_locks
	 WHERE locktype = 'advisory' AND NOT granted AND waitstart < clock_timestamp() - interval '300 ms'}),
	'a step waits alone');
$holder->query_until(qr/asked/, "\\echo asked\nUPDATE account SET balance = 4 WHERE id = 20; COMMIT;\n");
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}),
	'a session waits for it');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '120 seconds')"),
	'completed', 'a step that was in a deadlock is tried again');
is($node->safe_psql('postgres', "SELECT count(*) FROM stacksaga.failure WHERE saga_id = '$id'"),
	'0', 'and not charged');
ok($node->poll_query_until('postgres', q{SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = 'postgres'}),
	'there was one');
$gate->quit;
$holder->quit;

$node->stop;
done_testing();
