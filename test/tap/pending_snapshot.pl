# run_pending() while a transaction is held open, so that the index entries of what is done stay: one session reads
# over all of them now and then, and the others begin behind them. It never says that nothing is due unless it is so.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $sagas = 30000;
my $node = StacksagaCluster->new('pending');
$node->init;
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
$node->start;
$node->create_extension('postgres');

sub psql { return $node->safe_psql('postgres', @_) }

# What a new session reads of the workers' index to do one step, and the name that this wrote.
sub run_one
{
	my ($read, $done) = split /\|/, psql(q{
		BEGIN;
		TRUNCATE done;
		SELECT stacksaga.run_pending(1) \gset
		SELECT pg_stat_get_xact_tuples_returned('stacksaga.work_for_workers'::regclass), (SELECT name FROM done);
		COMMIT});
	return ($read, $done);
}

psql(q{
	CREATE TABLE done (name text);
	CREATE FUNCTION note(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql BEGIN ATOMIC
		INSERT INTO done VALUES (call.input->>'name');
		SELECT '{}'::jsonb;
	END;
	SELECT stacksaga.define_saga('one', ARRAY[stacksaga.sql_step('a', action => 'note(stacksaga.step_call)')]);
	BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'holder'});
psql(qq{
	SET stacksaga.clock_offset = '-1 minute';
	SELECT count(*) FROM generate_series(1, $sagas) AS n, stacksaga.start_saga('one', jsonb_build_object('name', -n));
	SELECT stacksaga.run_pending($sagas);
	SELECT count(*) FROM generate_series(1, 20) AS n, stacksaga.start_saga('one', jsonb_build_object('name', n))});
is(psql('SELECT count(*) FROM stacksaga.work'), 20, 'all but the last ones are done');
cmp_ok((run_one())[0], '>', $sagas, 'a session that nobody has told anything reads over all of it');

# It does so three times before it believes that it is no accident.
psql(q{SELECT stacksaga.run_pending(1);} x 4);
my ($read, $done) = run_one();
cmp_ok($read, '<', 1000, 'the next one begins where that session ended');
is($done, 6, 'and does the oldest step that is left');

# What others found at an instant that is still to come is not believed.
is( psql(q{
		SET stacksaga.clock_offset = '-2 hours';
		TRUNCATE done;
		DO $$ BEGIN PERFORM stacksaga.start_saga('one', '{"name": "early"}'); END $$;
		DO $$ BEGIN PERFORM stacksaga.run_pending(1); END $$;
		SELECT name FROM done}),
	'early', 'a session whose clock was set back does what is due by its clock');

# As if its transaction had lasted for an hour.
sub start_late { psql(q{SET stacksaga.clock_offset = '-1 hour'; SELECT count(*) FROM stacksaga.start_saga('one', '{"name": "late"}')}) }
start_late();
is(psql('SELECT stacksaga.run_pending(100)'), 15, 'what comes before the place where they begin is done as well');
start_late();
is(psql('SELECT stacksaga.run_pending(1)'), 1, 'and at once, if nothing else is due');
is(psql('SELECT stacksaga.run_pending(1) FROM generate_series(1, 3)'), "0\n0\n0", 'then nothing is left');
start_late();
psql(q{SELECT count(*) FROM generate_series(1, 1000) AS n, stacksaga.start_saga('one', jsonb_build_object('name', n))});
psql('TRUNCATE done');
ok( $node->poll_query_until('postgres', q{
		SELECT stacksaga.run_pending(1) >= 0 AND EXISTS (SELECT FROM done WHERE name = 'late')}),
	'after some time also where more is due');
cmp_ok(psql('SELECT count(*) FROM stacksaga.work'), '>', 0, 'before all of that is done');

psql(q{ROLLBACK PREPARED 'holder'});
$node->stop;
done_testing();
