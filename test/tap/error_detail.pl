# DETAIL and CONTEXT of the errors that a worker's handlers raise: kept apart from the errors, in no line of the server's log that the
# worker writes of them, and not stored with stacksaga.error_detail = off.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('details');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');
# The value of the row is in no statement.
$node->safe_psql('postgres', q{
	CREATE TABLE person (email text UNIQUE);
	INSERT INTO person VALUES (concat('ann', 6 * 7, '@example.com'));
	CREATE FUNCTION insert_again(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO person SELECT email FROM person;
		RETURN '{}';
	END $$;
	CREATE FUNCTION insert_again(stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO person SELECT email FROM person;
	END $$;
	SELECT stacksaga.define_saga('twice', ARRAY[stacksaga.sql_step('only', 'insert_again(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0', retry_on => '{23505}'))]);
	SELECT stacksaga.create_subscription('twice', 'twice', 'insert_again(stacksaga.message)',
		retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0', retry_on => '{23505}'))});
wait_until_works($node, 'postgres', 1);

# A saga and a message that have failed for good: what is stored of their errors.
sub fail_both
{
	my ($saga) = split /\|/, $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('twice')});
	my $message = $node->safe_psql('postgres', q{SELECT stacksaga.publish('twice', '{}')});
	$node->poll_query_until('postgres', qq{
		SELECT (SELECT status = 'failed' FROM stacksaga.sagas WHERE saga_id = '$saga')
		   AND EXISTS (SELECT FROM stacksaga.dead_messages WHERE message_id = '$message')});
	is($node->safe_psql('postgres', qq{
		SELECT string_agg(error, '|') FROM stacksaga.saga_history WHERE saga_id = '$saga' AND status = 'failed'
		UNION ALL SELECT last_error FROM stacksaga.dead_messages WHERE message_id = '$message'}),
		join("\n", join('|', ('duplicate key value violates unique constraint "person_email_key"') x 2),
			'duplicate key value violates unique constraint "person_email_key"'),
		'errors are messages alone');
	return $node->safe_psql('postgres', qq{
		SELECT attempt, detail, regexp_replace(context, '\n.*', '') FROM stacksaga.saga_error_detail('$saga')
		UNION ALL
		SELECT attempt, detail, regexp_replace(context, '\n.*', '') FROM stacksaga.message_error_detail('twice', '$message')});
}

my $key = 'Key (email)=(ann42@example.com) already exists.';
my $statement = 'SQL statement "INSERT INTO person SELECT email FROM person"';
is(fail_both(), join("\n", map { "$_|$key|$statement" } 1, 2, 1, 2), 'DETAIL and CONTEXT of each attempt are stored');

$node->append_conf('postgresql.conf', 'stacksaga.error_detail = off');
$node->restart;
wait_until_works($node, 'postgres', 1);
is(fail_both(), '', 'or not');
unlike(slurp_file($node->logfile), qr/ann42/, 'the log of the server has no value of a row');

$node->stop;
done_testing();
