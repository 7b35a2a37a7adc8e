# While a transaction is held open the index entries of steps that are done stay. One session reads over them
# now and then, and tells all others where to begin.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWaiter;

my $steps = 20000;
my $node = StacksagaCluster->new('snapshot');
$node->init;
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
$node->start;
$node->create_extension('postgres');

sub psql { return $node->safe_psql('postgres', @_) }

# What a new session reads of the index of waiting steps for its first claim, and what it claims.
sub claim
{
	my ($read, $claimed) = split /\|/, psql(q{
		BEGIN;
		CREATE TEMPORARY TABLE claimed AS SELECT * FROM stacksaga.claim_steps('here', 'w');
		SELECT pg_stat_get_xact_tuples_returned('stacksaga.work_for_services'::regclass), (SELECT input->>'name' FROM claimed);
		COMMIT});
	return ($read, $claimed);
}

psql(q{SELECT stacksaga.define_saga('one', ARRAY[stacksaga.queue_step('a', 'here', compensable => true)])});
psql(q{BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'holder'});
psql(qq{
	SET stacksaga.clock_offset = '-1 minute';
	SELECT count(*) FROM generate_series(1, $steps) AS n, stacksaga.start_saga('one', jsonb_build_object('name', -n));
	SELECT count(stacksaga.complete_step(saga_id, step, lease))
	  FROM generate_series(1, $steps / 1000) AS n, stacksaga.claim_steps('here', 'w' || n, 1000);
	SELECT count(*) FROM generate_series(1, 60) AS n, stacksaga.start_saga('one', jsonb_build_object('name', n))});
is(psql('SELECT count(*) FROM stacksaga.work'), 60, 'all but the last ones are done');
cmp_ok((claim())[0], '>', $steps, 'a session that nobody has told anything reads over all of it');

# It does so three times before it believes that it is no accident.
# On a busy machine the next one may come when that is too long ago.
my ($read, $claimed, $tries);
do
{
	psql(q{SELECT count(*) FROM stacksaga.claim_steps('here', 'w');} x 4);
	($read, $claimed) = claim();
} until ++$tries == 10 || $read < 1000;
cmp_ok($read, '<', 1000, 'the next one begins where that session ended');
is($claimed, 1 + 5 * $tries, 'and claims the oldest step that is left');

# What others found at an instant that is still to come is not believed.
is( psql(q{
		SET stacksaga.clock_offset = '-2 hours';
		DO $$ BEGIN PERFORM stacksaga.start_saga('one', '{"name": "early"}'); END $$;
		SELECT input->>'name' FROM stacksaga.claim_steps('here', 'w')}),
	'early', 'a session whose clock was set back claims what is due by its clock');

# As if its transaction had lasted for an hour.
psql(q{
	SET stacksaga.clock_offset = '-1 hour';
	SELECT count(*) FROM stacksaga.start_saga('one', '{"name": "late"}')});
ok($node->poll_query_until('postgres',
		q{SELECT input->>'name' = 'late' FROM stacksaga.claim_steps('here', 'w')}),
	'what comes before the place where they begin is claimed, after some time');

# Woken by such a commit, a service looks where the others begin, and once more.
my $service = StacksagaWaiter->new($node, 'here', 6);
psql(q{SELECT count(*) FROM stacksaga.claim_steps('here', 'w', 1000)});
$service->woken_by('a service that waits finds it soon', sub {
	my $look = q{SELECT count(*) FROM stacksaga.claim_steps('here', 'w');};
	psql($look x 4 . q{
		SET stacksaga.clock_offset = '-1 hour';
		SELECT count(*) FROM stacksaga.start_saga('one', '{"name": "late again"}')}) });
$service->quit;

psql(q{ROLLBACK PREPARED 'holder'});
psql('VACUUM stacksaga.work');
psql(q{SELECT count(*) FROM stacksaga.start_saga('one')}) for 1 .. 3;
ok($node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM stacksaga.claim_steps('here', 'w', 1000)}), 'nothing is left');

# A snapshot that is held without a transaction id: what is due was done just now, and no commit may bring more of it.
my $holder = $node->background_psql('postgres');
psql(q{SELECT stacksaga.define_saga('two', ARRAY[stacksaga.queue_step('a', 'there', compensable => true)])});
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$steps = 5000;
psql(qq{
	SET stacksaga.clock_offset = '-1 second';
	SELECT count(*) FROM stacksaga.start_sagas('two', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, $steps)));
	SELECT count(stacksaga.complete_step(saga_id, step, lease))
	  FROM generate_series(1, $steps / 1000) AS n, stacksaga.claim_steps('there', 'w' || n, 1000, '4 seconds');
	RESET stacksaga.clock_offset;
	SELECT count(*) FROM stacksaga.start_sagas('two', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 20)))});
my $read_in_one_claim = q{
	SELECT pg_stat_get_xact_tuples_returned('stacksaga.work_for_services'::regclass) AS before \gset
	SELECT count(*) FROM stacksaga.claim_steps('there', 'w') \gset
	SELECT pg_stat_get_xact_tuples_returned('stacksaga.work_for_services'::regclass) - :before;};
my @read = split /\n/, psql("BEGIN;$read_in_one_claim COMMIT;" x 6);
cmp_ok($read[0], '>=', $steps, 'a session reads over it at first');
cmp_ok($read[5], '<', 1000, 'and then not again, though it was due within the last seconds');

# The leases of what is done have left entries that lie ahead. (After ten seconds a timer of PostgreSQL wakes any session.)
psql(q{
	SELECT count(stacksaga.complete_step(saga_id, 'a', lease)) FROM stacksaga.work WHERE queue = 'there' AND lease IS NOT NULL;
	CREATE TABLE looked (entries bigint)});
psql(q{
	DO $$
	BEGIN
		CALL stacksaga.wait_for_steps('there', '0');
		INSERT INTO looked SELECT pg_stat_get_xact_tuples_returned('stacksaga.work_leased'::regclass);
	END $$});
cmp_ok(psql('SELECT entries FROM looked'), '<', 200, 'who waits reads some of the leases ahead, not all');
psql(q{SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('there', 'w', 1000)});
psql(q{SELECT stacksaga.start_saga('two')});
$service = StacksagaWaiter->new($node, 'there', 9);
psql(q{SELECT count(*) FROM stacksaga.claim_steps('there', 'w', 1000, lease => '5 seconds')});
$service->woken_by('but sees a lease that runs out behind such entries', sub { });
$service->quit;
$holder->quit;

$node->stop;
done_testing();
