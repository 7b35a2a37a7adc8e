# The steps of a saga that follow each other at once run in one transaction, each behind the marker of the one before.
# A failure is that of the step that failed; what was done before it stands. Other sagas wait a turn at most.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('run_ahead');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
stacksaga.retry_budget = -1
stacksaga.batch_size = 20});
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 1);

# Each handler notes how many markers of its saga it finds, and what results it is given.
$node->safe_psql('postgres', q{
	CREATE TABLE seen (saga_id uuid, step text, direction text, markers integer, results jsonb, n serial,
		transaction text DEFAULT pg_current_xact_id()::text);
	CREATE FUNCTION note(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO seen (saga_id, step, direction, markers, results)
		SELECT call.saga_id, call.step, call.direction, count(*), call.results
		  FROM stacksaga.effect WHERE saga_id = call.saga_id;
		RETURN to_jsonb(call.step);
	END $$;
	CREATE SEQUENCE calls; -- which no failure undoes
	CREATE FUNCTION fail_once(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('calls');
		IF call.attempt = 1 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = 'SR503'; END IF;
		RETURN note(call);
	END $$;
	CREATE FUNCTION fail(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('calls');
		RAISE EXCEPTION 'never' USING ERRCODE = 'SG424';
	END $$;
	CREATE FUNCTION signal(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM stacksaga.signal_saga(call.saga_id, 'go', '"gone"');
		RETURN note(call);
	END $$;
	CREATE FUNCTION signal_in_vain(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM stacksaga.signal_saga(call.saga_id, 'go');
		RETURN '"signalled"';
	EXCEPTION WHEN SQLSTATE 'SG404' THEN
		RETURN note(call);
	END $$;
	CREATE FUNCTION step_of(name text, function text) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
		SELECT stacksaga.sql_step(name, function || '(stacksaga.step_call)', 'note(stacksaga.step_call)',
			retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0')) $$;
	SELECT stacksaga.define_saga('three', ARRAY[
		step_of('a', 'note'), step_of('b', 'note'), step_of('c', 'note')]);
	SELECT stacksaga.define_saga('again', ARRAY[
		step_of('a', 'note'), step_of('b', 'fail_once'), step_of('c', 'note')]);
	SELECT stacksaga.define_saga('back', ARRAY[
		step_of('a', 'note'), step_of('b', 'note'), step_of('c', 'fail')]);
	SELECT stacksaga.define_saga('signals', ARRAY[
		step_of('a', 'note'), step_of('b', 'signal'), stacksaga.signal_step('go', 'go', timeout => '1 hour'), step_of('c', 'note')]);
	SELECT stacksaga.define_saga('no signals', ARRAY[step_of('a', 'note'), step_of('b', 'signal_in_vain'), step_of('c', 'note')]);
	SELECT stacksaga.define_saga('child', ARRAY[stacksaga.queue_step('q', 'child', compensable => true)]);
	SELECT stacksaga.define_saga('all kinds', ARRAY[step_of('a', 'note'), stacksaga.timer_step('t', '0'), step_of('b', 'note'),
		stacksaga.signal_step('go', 'go'), step_of('c', 'note'), stacksaga.child_step('child', 'child'), step_of('d', 'note')]);
	SELECT stacksaga.define_saga('short', ARRAY[step_of('a', 'note')]);
	SELECT stacksaga.define_saga('long', array_agg(step_of('s' || n, 'note'))) FROM generate_series(1, 60) AS n;});

# Starts a saga of each name, in one transaction and this order.
sub start_sagas
{
	my $list = join(',', map { "'$_'" } @_);
	return split /\n/, $node->safe_psql('postgres', qq{
		SELECT (stacksaga.start_saga(s)).saga_id FROM unnest(ARRAY[$list]) WITH ORDINALITY AS u(s, n)
		 ORDER BY n});
}

sub await_status
{
	my ($status, @ids) = @_;
	my $list = join(',', map { "'$_'" } @ids);
	return $node->poll_query_until('postgres', qq{
		SELECT count(*) = @{[ scalar @ids ]} FROM stacksaga.sagas WHERE saga_id IN ($list) AND status = '$status'});
}

# Step, direction, the markers that it found and the results that it got, in the order of the calls.
sub seen
{
	my ($id) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT string_agg(format('%s %s %s %s', step, direction, markers, results), E'\n' ORDER BY n)
		  FROM seen WHERE saga_id = '$id'});
}

# The steps in the order of their calls, those of one transaction joined by "+".
sub transactions
{
	my ($id) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT string_agg(steps, ' | ' ORDER BY first)
		  FROM (SELECT string_agg(step, '+' ORDER BY n) AS steps, min(n) AS first
		          FROM seen WHERE saga_id = '$id' GROUP BY transaction) AS t});
}

my @ids = start_sagas(('three') x 5);
await_status('completed', @ids);
is_deeply([ map { transactions($_) } @ids ], [ ('a+b+c') x 5 ], 'all steps of a saga run in one transaction');
is(seen($ids[0]), "a act 0 {}\nb act 1 {\"a\": \"a\"}\nc act 2 {\"a\": \"a\", \"b\": \"b\"}",
	'each handler finds the markers and results of the steps before it');
is($node->safe_psql('postgres', "SELECT count(*) FROM stacksaga.work"), 0, 'no work is left');

# Before the first failure: after one, what follows is written before it runs.
@ids = start_sagas('no signals');
await_status('completed', @ids);
is(transactions($ids[0]), 'a+b+c', 'a handler whose signal to its own saga is refused');
is($node->safe_psql('postgres', "SELECT count(*) FROM stacksaga.failure WHERE saga_id = '$ids[0]'"), 0,
	'has no step run again');

# A timer without delay, a signal that has arrived and the start of a child are no reason to end it. A service does the
# child's step, so the child's row is as it was inserted.
($ids[0]) = split /\n/, $node->safe_psql('postgres', q{
	BEGIN;
	SELECT saga_id AS id FROM stacksaga.start_saga('all kinds') \gset
	SELECT :'id';
	SELECT stacksaga.signal_saga(:'id', 'go', '"gone"');
	COMMIT});
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM stacksaga.work WHERE queue = 'child'") or die 'no child';
is(transactions($ids[0]), 'a+b+c', 'timers and signals that are due at once go along');
is($node->safe_psql('postgres', qq{
	SELECT count(*) FROM stacksaga.saga s WHERE parent_id = '$ids[0]'
	   AND s.xmin::text = (SELECT transaction FROM seen WHERE saga_id = '$ids[0]' AND step = 'c')}), 1,
	'and so does the start of a child');
$node->safe_psql('postgres', q{
	SELECT stacksaga.complete_step(saga_id, step, lease, '"done"') FROM stacksaga.claim_steps('child', 'service')});
await_status('completed', @ids);
is(transactions($ids[0]), 'a+b+c | d', 'whose end the saga waits for');

@ids = start_sagas('again');
await_status('completed', @ids);
is(transactions($ids[0]), 'a | b+c', 'what was done before a failure stands');
is(seen($ids[0]), "a act 0 {}\nb act 1 {\"a\": \"a\"}\nc act 2 {\"a\": \"a\", \"b\": \"b\"}",
	'and is not done again');
is($node->safe_psql('postgres', qq{
	SELECT string_agg(step || ' ' || attempt || ' ' || status, ', ' ORDER BY step, attempt)
	  FROM stacksaga.saga_history WHERE saga_id = '$ids[0]'}),
	'a 1 completed, b 1 failed, b 2 completed, c 1 completed', 'the failed attempt is that of the step that failed');
is($node->safe_psql('postgres', 'SELECT last_value FROM calls'), 2, 'its function was called once for each attempt');

@ids = start_sagas('back');
await_status('failed', @ids);
is(transactions($ids[0]), 'a+b | b+a', 'compensations run ahead as well, in reverse order');
is($node->safe_psql('postgres', qq{
	SELECT step FROM stacksaga.saga_history WHERE saga_id = '$ids[0]' AND status = 'failed'}), 'c',
	'the saga failed at the step that failed');
is($node->safe_psql('postgres', 'SELECT last_value FROM calls'), 3, 'whose function was called once');

@ids = start_sagas('signals');
await_status('completed', @ids);
is(seen($ids[0]), "a act 0 {}\nb act 1 {\"a\": \"a\"}\n"
	  . "c act 3 {\"a\": \"a\", \"b\": \"b\", \"go\": \"gone\"}", 'a handler that signals its own saga');

# Two in one slot, so that the long one is found first.
@ids = split /\n/, $node->safe_psql('postgres', q{
	WITH i AS (SELECT array_agg(id) AS ids
	             FROM (SELECT id FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 10000)) AS r
	                    WHERE stacksaga.slot(stacksaga.token_uuid(id)) = 7 LIMIT 2) AS two)
	SELECT (stacksaga.start_saga(s, saga_id => ids[n])).saga_id
	  FROM i, unnest(ARRAY['long', 'short']) WITH ORDINALITY AS u(s, n) ORDER BY n});
await_status('completed', @ids);
my ($is_first, $before) = split /\|/, $node->safe_psql('postgres', qq{
	SELECT min(n) FILTER (WHERE saga_id = '$ids[0]') < max(n) FILTER (WHERE saga_id = '$ids[1]'),
	       count(*) FILTER (WHERE n < (SELECT n FROM seen WHERE saga_id = '$ids[1]')) FROM seen
	 WHERE saga_id IN ('$ids[0]', '$ids[1]')});
is($is_first, 't', 'of a long saga and a short one the long one comes first');
cmp_ok($before, '<=', 20, 'and goes behind the short one after a batch');
is($node->safe_psql('postgres', "SELECT count(*) FROM stacksaga.effect WHERE saga_id = '$ids[0]'"), 60,
	'and its steps are done once each');

# A step that meets a lock in the middle of a run-ahead: what was done before is committed, and the step waits alone.
$node->safe_psql('postgres', q{
	CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL);
	INSERT INTO account VALUES (1, 0);
	CREATE FUNCTION pay(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE account SET balance = balance + 1;
		RETURN NULL;
	END $$;
	SELECT stacksaga.define_saga('pays', ARRAY[step_of('a', 'note'), step_of('pay', 'pay'), step_of('c', 'note')])});
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; UPDATE account SET balance = balance');
@ids = start_sagas('pays');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM stacksaga.effect WHERE saga_id = '$ids[0]'"),
	'the step before the one that meets a lock is committed');
$session->query_safe('COMMIT');
$session->quit;
await_status('completed', @ids);
is($node->safe_psql('postgres', qq{
	SELECT (SELECT balance FROM account), count(*) FROM stacksaga.failure WHERE saga_id = '$ids[0]'}), '1|0',
	'the lock costs no attempt, and the step is done once');

$node->stop;
done_testing();
