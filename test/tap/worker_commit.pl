# What fails at the commit alone, when nobody knows whose it is: the batch shrinks until it is known, that item is
# charged by its policy, and everything else goes on. The same for an error of one subscription that no message
# can be charged with.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('commit');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', 'stacksaga.retry_budget = -1');
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
wait_until_works($node, 'postgres', 1);

$node->safe_psql('postgres', q{
	CREATE TABLE handled (subscription text, n integer);
	CREATE FUNCTION break_commit() RETURNS void LANGUAGE c AS 'stacksaga_testing', 'stacksaga_break_commit';
	CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO handled VALUES (m.topic, (m.payload -> 'n')::integer);
		IF m.payload ? 'breaks' THEN PERFORM break_commit(); END IF;
	END $$;
	CREATE FUNCTION handle(m stacksaga.message[]) RETURNS void LANGUAGE sql AS
		$$ SELECT handle(x) FROM unnest(m) AS x $$;
	CREATE FUNCTION break_commit(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM break_commit();
		RETURN NULL;
	END $$;
	CREATE FUNCTION undo(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
	SELECT stacksaga.create_subscription(t, t, 'handle(stacksaga.message' || a || ')',
			retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0', retry_on => '{0A000}'))
	  FROM (VALUES ('sound', ''), ('broken', ''), ('batches', '[]')) AS v(t, a);
	SELECT stacksaga.define_saga('breaks', ARRAY[
		stacksaga.sql_step('first', 'answer(stacksaga.step_call)', 'undo(stacksaga.step_call)'),
		stacksaga.sql_step('second', 'break_commit(stacksaga.step_call)',
			retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0', retry_on => '{0A000}'))])});

my $publish = q{
	SELECT count(stacksaga.publish(t, CASE WHEN n = 25 AND t <> 'sound' THEN '{"breaks": true}'::jsonb ELSE '{}' END
			|| jsonb_build_object('n', n)))
	  FROM unnest('{sound,broken,batches}'::text[]) AS t, generate_series(1, 50) AS n};
my $answers = q{SELECT count(*) FROM stacksaga.start_sagas('answer', array_fill('{}'::jsonb, '{50}'))};
my $offset = -s $node->logfile;
my @ids = split /\n/, $node->safe_psql('postgres', qq{
	BEGIN;
	$answers;
	$publish;
	SELECT saga_id FROM stacksaga.start_sagas('breaks', ARRAY['{}', '{}']::jsonb[]);
	$answers;
	COMMIT});
my @broken = grep { /-/ } @ids;
is(scalar @broken, 2, 'two sagas whose second step breaks the commit');
foreach my $id (@broken)
{
	is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '120 seconds')"),
		'failed', 'a step that breaks the commit has failed');
	is($node->safe_psql('postgres', qq{
		SELECT count(*) FROM stacksaga.effect WHERE saga_id = '$id' AND step_no = 1 AND direction = 'compensate'}),
		'1', 'its saga compensates');
	is($node->safe_psql('postgres', qq{
		SELECT count(*) || ' ' || min(sqlstate) || ' ' || min(error)
		  FROM stacksaga.failure WHERE saga_id = '$id'}),
		'2 0A000 the commit is broken',
		'after the attempts of its policy, with the reason');
}
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 100 AND bool_and(status = 'completed') FROM stacksaga.sagas WHERE saga = 'answer'}),
	'the other sagas complete');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 2 FROM stacksaga.dead_messages'),
	'a message whose handler breaks the commit is dead');
is($node->safe_psql('postgres', q{
	SELECT string_agg(subscription || ' ' || (payload ->> 'n') || ' ' || attempts, ', ' ORDER BY subscription)
	  FROM stacksaga.dead_messages WHERE last_error = 'the commit is broken'}),
	'batches 25 2, broken 25 2', 'after the attempts of its policy, with the reason');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 148 FROM handled'), 'every other one is handled');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT (subscription, n)) FROM handled'), '148', 'once');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.failure WHERE saga_id NOT IN (}
	. join(',', map { "'$_'" } @broken) . ')'), '0', 'and nobody else is charged');

# The position of one subscription cannot be moved: no message of its is to blame.
$node->safe_psql('postgres', q{
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.subscription_id = (SELECT subscription_id FROM stacksaga.subscription WHERE subscription = 'broken') THEN
			RAISE EXCEPTION 'no position for it';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON stacksaga.subscription_position
		FOR EACH ROW EXECUTE FUNCTION refuse();
	TRUNCATE handled});
$offset = -s $node->logfile;
$node->safe_psql('postgres', q{
	SELECT count(stacksaga.publish(t, jsonb_build_object('n', n)))
	  FROM unnest('{sound,broken}'::text[]) AS t, generate_series(1, 50) AS n});
$node->wait_for_log(qr/no position for it/, $offset);
foreach my $n (1 .. 20)
{
	is(run_saga($node, 'postgres', 'answer'), 'completed', "saga $n goes on beside a subscription that cannot");
}
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 50 FROM handled WHERE subscription = 'sound'}), 'and so do other subscriptions');
is($node->safe_psql('postgres', q{SELECT count(*) FROM handled WHERE subscription = 'broken'}),
	'0', 'nothing of its is committed');
my $number = $node->safe_psql('postgres', q{
	SELECT subscription_id FROM stacksaga.subscription WHERE subscription = 'broken'});
is(log_count($node, qr/CONTEXT:.*(?:\n\t.*)*messages of subscription $number/, $offset), 1, 'the log says so once, and of which one');
$node->safe_psql('postgres', 'DROP TRIGGER refuse ON stacksaga.subscription_position');
ok($node->poll_query_until('postgres', q{
	SELECT count(*) = 50 AND count(DISTINCT n) = 50 FROM handled WHERE subscription = 'broken'}),
	'when it can, its messages are handled, once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.message_retry'), '0', 'and none was charged');

$node->stop;
done_testing();
