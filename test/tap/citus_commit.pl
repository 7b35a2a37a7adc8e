# On Citus: what a transaction writes on this node and on one other commits as one, also what a worker's step
# writes, and also when the commit here fails after Citus has decided how to commit. Runs where Citus is installed.
use strict;
use warnings;

use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(2);
my $main = $cluster->coordinator;
$main->safe_psql('postgres', q{
	SELECT stacksaga.citus_enable(shard_count => 8);
	CREATE TABLE account (id text PRIMARY KEY, amount bigint NOT NULL);
	SELECT create_distributed_table('account', 'id');
	CREATE TABLE book (id bigint, what text);
	CREATE FUNCTION credit(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO account VALUES (step.input ->> 'id', 1);
		IF (step.input ->> 'fails')::boolean THEN
			RAISE 'after the write' USING ERRCODE = 'SG424';
		END IF;
		RETURN '{}';
	END $$});
like($main->safe_psql('postgres', 'SELECT severity, problem, detail FROM stacksaga.citus_check()'),
	qr/^warning\|local_table\|public.book is a table of this node/, 'the check names a table that Citus does not know');

# Trap: a serialization failure at the commit of the second one. Citus has committed the other node by then, unless
# it has prepared it.
sub skewed
{
	my ($uses_saga) = @_;
	my @sessions = map { $main->background_psql('postgres', on_error_stop => 0) } 0, 1;
	$_->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE') for @sessions;
	$_->query_safe('SELECT sum(id) FROM book') for @sessions;
	for my $i (0, 1)
	{
		$sessions[$i]->query_safe("INSERT INTO book VALUES ($i, 'skew')");
		$sessions[$i]->query_safe("SELECT stacksaga.accept_message('skew', '$i')");
	}
	$_->query('COMMIT') for @sessions;
	$_->quit for @sessions;
	$main->poll_query_until('postgres', q{SELECT recover_prepared_transactions() IS NOT NULL});
	my $rows = $main->safe_psql('postgres', q{SELECT string_agg(id::text, ',' ORDER BY id) FROM book WHERE what = 'skew'});
	my $markers = $main->safe_psql('postgres', q{
		SELECT string_agg(message_id, ',' ORDER BY message_id) FROM stacksaga.accepted_message WHERE consumer = 'skew'});
	$main->safe_psql('postgres', q{DELETE FROM book; DELETE FROM stacksaga.accepted_message});
	return "$rows|$markers";
}
is(skewed(), '0|0', 'the transaction that fails at its commit leaves nothing on the other node');

# The same without the guard is how the trap was: the test can see it.
$main->safe_psql('postgres', 'ALTER TABLE stacksaga.citus_guard RENAME TO citus_guard_away');
is(skewed(), '0|0,1', 'without the guard the other node keeps the marker');
$main->safe_psql('postgres', 'ALTER TABLE stacksaga.citus_guard_away RENAME TO citus_guard');

# A worker's step writes a distributed table: with its marker, or not at all.
$main->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('credit', ARRAY[stacksaga.sql_step('credit', 'credit(stacksaga.step_call)')]);
	SELECT stacksaga.start_saga('credit', jsonb_build_object('id', i, 'fails', i % 5 = 0), key => i::text)
	  FROM generate_series(1, 100) AS i});
$main->poll_query_until('postgres', q{SELECT count(*) = 100 FROM stacksaga.sagas WHERE status IN ('completed', 'compensated', 'failed', 'parked')})
  or diag($main->safe_psql('postgres', 'SELECT status, count(*) FROM stacksaga.sagas GROUP BY 1'));
is($main->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE id::int % 5 = 0), sum(amount) FROM account}),
	'80|0|80', 'each step that completed has its effect once, each that failed has none');
is($main->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.effect}), 80, 'and its marker');

# A worker of Citus that writes tables of its own uses one of its shards.
my $other = $cluster->worker(0);
$other->safe_psql('postgres', 'CREATE TABLE notes (n int)');
$other->safe_psql('postgres', q{
	BEGIN;
	INSERT INTO notes VALUES (1);
	SELECT stacksaga.accept_message('notes', i::text) FROM generate_series(1, 20) AS i;
	COMMIT});
is($other->safe_psql('postgres', 'SELECT count(*) FROM notes'), 1, 'a worker of Citus commits both');
done_testing();
