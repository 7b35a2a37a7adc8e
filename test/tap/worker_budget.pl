# The retries of a definition's SQL steps, and those of a subscription's handler, are a share of its
# first attempts, and ten a second.
use strict;
use warnings;

use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('budget');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE switch (is_down boolean NOT NULL);
	INSERT INTO switch VALUES (true);
	CREATE FUNCTION call(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT is_down FROM switch) THEN
			RAISE EXCEPTION 'it is down' USING ERRCODE = 'SR503';
		END IF;
		RETURN '1';
	END $$;
	SELECT stacksaga.define_saga('call', ARRAY[stacksaga.sql_step('only', 'call(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0'))])});
wait_until_works($node, 'postgres', 1);

# All of them fail, and each would be tried again at once.
my $begun = time;
my $sagas = 100;
$node->safe_psql('postgres', qq{
	SELECT count(*) FROM (SELECT stacksaga.start_saga('call') FROM generate_series(1, $sagas)) AS s});
ok($node->poll_query_until('postgres', "SELECT deferred > $sagas FROM stacksaga.worker_stats"),
	'retries are deferred, and counted');
my $retries = $node->safe_psql('postgres',
	q{SELECT count(*) FROM stacksaga.saga_history WHERE attempt > 1});
cmp_ok($retries, '<=', 0.2 * $sagas + 10 * (time - $begun + 1),
	'no more are let through than the budget allows');
cmp_ok($retries, '>=', 10, 'but some are');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'another definition has a budget of its own');
is($node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE paused_until > stacksaga.clock_now()) > 0
	  FROM stacksaga.sagas WHERE pause_reason = 'SR429'}), 't', 'the reason of such a pause is shown');

# When it is up again all are done.
$node->safe_psql('postgres', 'UPDATE switch SET is_down = false');
ok($node->poll_query_until('postgres', q{
	SELECT bool_and(status = 'completed') FROM stacksaga.saga}), 'deferred retries are not lost');

# Messages.
$node->safe_psql('postgres', q{
	UPDATE switch SET is_down = true;
	CREATE TABLE handled (attempt integer);
	CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT is_down FROM switch) THEN
			RAISE EXCEPTION 'it is down' USING ERRCODE = 'SR503';
		END IF;
		INSERT INTO handled VALUES (m.attempt);
	END $$;
	SELECT stacksaga.create_subscription('s', 't', 'handle(stacksaga.message)',
		retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0'))});
my $deferred = $node->safe_psql('postgres', 'SELECT deferred FROM stacksaga.worker_stats');
$begun = time;
my $messages = 100;
$node->safe_psql('postgres', qq{
	SELECT count(stacksaga.publish('t', '{}')) FROM generate_series(1, $messages)});
ok($node->poll_query_until('postgres',
	"SELECT deferred > $deferred + $messages FROM stacksaga.worker_stats"),
	'retries of messages are deferred, and counted');
my $attempts = $node->safe_psql('postgres',
	'SELECT sum(attempt) FROM stacksaga.message_retry');
cmp_ok($attempts - $messages, '<=', 0.2 * $messages + 10 * (time - $begun + 1),
	'no more are let through than the budget allows');
cmp_ok($attempts - $messages, '>=', 10, 'but some are');
$node->safe_psql('postgres', 'UPDATE switch SET is_down = false');
ok($node->poll_query_until('postgres', "SELECT count(*) = $messages FROM handled"),
	'deferred messages are not lost');

$node->stop;
done_testing();
