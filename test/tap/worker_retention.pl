# Workers remove finished sagas whose retention is over, in steps, and go on with their work.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('retention');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.workers = 2\nstacksaga.saga_retention = -1");
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION fail(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'never' USING ERRCODE = 'SG424';
	END $$;
	SELECT stacksaga.define_saga('fail', ARRAY[
		stacksaga.sql_step('only', 'fail(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('short', ARRAY[stacksaga.sql_step('only', 'fail(stacksaga.step_call)')], keep => '1 hour');
	SELECT stacksaga.define_saga('long', ARRAY[stacksaga.sql_step('only', 'fail(stacksaga.step_call)')], keep => '-1 hour');
	SELECT stacksaga.accept_message('consumer', 'message')});
wait_until_works($node, 'postgres', 2);
is(run_saga($node, 'postgres', 'fail'), 'failed', 'one saga has failed');
is(run_saga($node, 'postgres', 'short'), 'failed', 'and one that its definition keeps for an hour');
is(run_saga($node, 'postgres', 'long'), 'failed', 'and one that it keeps for ever');
my $kept = q{SELECT string_agg(saga, ' ' ORDER BY saga) FROM stacksaga.sagas WHERE status = 'failed'};
# More than a worker removes in one step.
$node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT stacksaga.start_saga('answer') FROM generate_series(1, 1500)) AS s});
my $completed = q{SELECT count(*) = %d FROM stacksaga.saga WHERE status = 'completed'};
$node->poll_query_until('postgres', sprintf($completed, 1500));

# Time passes. What is kept for ever stays, what was kept for a month goes.
sub set_clock
{
	my ($offset) = @_;
	$node->append_conf('postgresql.conf', "stacksaga.clock_offset = '$offset'");
	return $node->reload;
}
set_clock('2 hours');
ok($node->poll_query_until('postgres', $kept, 'fail long'), 'a failed saga is removed after the hour that its definition says');
set_clock('31 days');
ok($node->poll_query_until('postgres', $kept, 'long'), 'the other one after 30 days, but not the one that is to stay');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM stacksaga.accepted_message'),
	'and so is an accepted message');
is($node->safe_psql('postgres', sprintf($completed, 1500)),
	't', 'those that are to be kept for ever are not');

# A table of a user that refers to sagas keeps them from being removed: they are passed over, and work goes on.
$node->safe_psql('postgres', q{
	CREATE TABLE mine (saga_id uuid, token stacksaga.ring_token,
		FOREIGN KEY (saga_id, token) REFERENCES stacksaga.saga);
	INSERT INTO mine SELECT saga_id, token FROM stacksaga.saga});
$node->append_conf('postgresql.conf', 'stacksaga.saga_retention = 7d');
my $offset = -s $node->logfile;
$node->reload;
$node->wait_for_log(qr/LOG:  the retention cannot remove a row of stacksaga\.saga\n.*violates foreign key constraint "mine_/, $offset);
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a worker that cannot remove works');
is(log_count($node, qr/FATAL|postponed/, $offset), 0, 'and is none the worse for it');
$node->safe_psql('postgres', 'DROP TABLE mine');
set_clock('39 days');
ok($node->poll_query_until('postgres', sprintf($completed, 0)),
	'completed sagas are removed after 7 days, in several steps');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.effect'),
	0, 'with everything that belongs to them');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'the workers work');

$node->stop;
done_testing();
