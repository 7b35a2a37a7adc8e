# A service that waits for steps holds nothing that keeps vacuum or DDL waiting, and is woken by whatever
# makes a step of its queue due.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

use StacksagaCluster;
use StacksagaWaiter;

my $node = StacksagaCluster->new('waits');
$node->init;
# A session with synchronous_commit waits for a standby that there is not, until it is cancelled.
$node->append_conf('postgresql.conf', "wal_level = replica\nmax_wal_senders = 1\n"
	  . "synchronous_standby_names = 'nobody'\nsynchronous_commit = local\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('one', ARRAY[stacksaga.queue_step('a', 'here', compensable => true,
		retry => stacksaga.retry_policy(initial_interval => '1 second', jitter => 0))]);
	SELECT stacksaga.define_saga('two', ARRAY[stacksaga.queue_step('a', 'first', compensable => true), stacksaga.queue_step('b', 'here', compensable => true)]);
	SELECT stacksaga.define_saga('other', ARRAY[stacksaga.queue_step('a', 'elsewhere', compensable => true)]);
	SELECT stacksaga.define_saga('crowd', ARRAY[stacksaga.queue_step('a', 'crowd', compensable => true)]);
	CREATE TABLE returned ();
	CREATE PROCEDURE serve() LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			CALL stacksaga.wait_for_steps('crowd', '1 minute');
			INSERT INTO returned DEFAULT VALUES;
			PERFORM stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('crowd', 'w');
			COMMIT;
		END LOOP;
	END $$;
	SELECT stacksaga.define_saga('bulk', ARRAY[stacksaga.queue_step('a', 'bulk', compensable => true)]);
	CREATE PROCEDURE serve_bulk() LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			CALL stacksaga.wait_for_steps('bulk', '1 minute');
			INSERT INTO returned DEFAULT VALUES;
			PERFORM stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('bulk', 'w', 100);
			COMMIT;
		END LOOP;
	END $$;
	CREATE PROCEDURE claim_one() LANGUAGE plpgsql AS $$
	BEGIN
		CALL stacksaga.wait_for_steps('bulk', '1 minute');
		PERFORM stacksaga.claim_steps('bulk', 'w');
	END $$});

my $service = StacksagaWaiter->new($node, 'here', 6);
my $pid = $service->{pid};

sub psql { return $node->safe_psql('postgres', @_) }

psql(q{SELECT stacksaga.create_ring('default', 'dead', slots => 64)});
psql(q{SET stacksaga.cluster = 'dead'; SELECT stacksaga.start_saga('one')});
$service->woken_by('the adoption of a ring wakes it',
	sub { psql(q{SELECT stacksaga.adopt_ring('default', 'dead', 'default', 'default', 'a test')}) });
psql(q{SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('here', 'w')});
$service->woken_by(
	'a new saga wakes it',
	sub {
		is(psql("SELECT backend_xmin IS NULL, backend_xid IS NULL FROM pg_stat_activity WHERE pid = $pid"),
			't|t', 'it has no snapshot and no transaction id');
		is(psql("SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype NOT IN ('virtualxid', 'userlock')"),
			0, 'it holds no lock on a table or a row');
		psql(q{SELECT stacksaga.start_saga('other')});
		is(psql("SELECT state FROM pg_stat_activity WHERE pid = $pid"), 'active', 'another queue does not concern it');
		psql(q{SELECT stacksaga.start_saga('one', key => 'k')});
	});
my ($id, $lease) = split /\|/, psql(q{SELECT saga_id, lease FROM stacksaga.claim_steps('here', 'w')});
$service->woken_by('a retry wakes it when it falls due',
	sub { psql("SELECT stacksaga.fail_step('$id', 'a', $lease, 'no', 'retryable')") });
psql(qq{SELECT stacksaga.suspend_saga('$id', 'a test')});
$service->woken_by('a saga that is resumed wakes it', sub { psql("SELECT stacksaga.resume_saga('$id', 'a test')") });
psql(qq{SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('here', 'w')});
($id, $lease) = split /\|/, psql(q{
	SELECT stacksaga.start_saga('two') IS NULL;
	SELECT saga_id, lease FROM stacksaga.claim_steps('first', 'w')}) =~ s/^f\n//r;
$service->woken_by('the step before wakes it',
	sub { psql("SELECT stacksaga.complete_step('$id', 'a', $lease)") });
psql(q{SELECT stacksaga.claim_steps('here', 'w', lease => '2 seconds')});
$service->woken_by('a lease that runs out wakes it', sub { });

# A commit finds waiters by their transactions, so a waiter keeps its own one from look to look.
sub transaction_of_service { return psql("SELECT virtualtransaction FROM pg_locks WHERE pid = $pid LIMIT 1") }
my $transaction;
$node->poll_query_until('postgres', q{
	SELECT count(stacksaga.complete_step(saga_id, step, lease)) = 1 FROM stacksaga.claim_steps('here', 'w')})
  or die 'the step whose lease ran out is not tried again';
$service->woken_by(
	'a step that falls due later does not end the wait',
	sub {
		$transaction = transaction_of_service();
		psql(q{SELECT stacksaga.start_saga('one', run_at => clock_timestamp() + interval '3 seconds')});
		is(transaction_of_service(), $transaction, 'a waiter that looks again is seen meanwhile');
	});

# Whoever claimed it may roll back. Several times: a timer that PostgreSQL set while the session was idle
# may end a wait after some seconds.
my $claimer = $node->background_psql('postgres');
my $begun = Time::HiRes::time();
for (1 .. 5)
{
	$claimer->query_safe(q{BEGIN; SELECT stacksaga.claim_steps('here', 'w')});
	$service->woken_by('a claim that is rolled back wakes it', sub { $claimer->query_safe('ROLLBACK') });
}
cmp_ok(Time::HiRes::time() - $begun, '<', 30, 'each time within a second or so');
$claimer->quit;

# A commit waits for a standby after it is recorded, and is not seen meanwhile: who begins to wait then
# is woken by it.
psql(q{SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('here', 'w')});
my $committer = $node->background_psql('postgres');
$committer->query_safe('SET synchronous_commit = on');
$committer->{stdin} .= "SELECT stacksaga.start_saga('one');\n\\echo committed\n";
$committer->{run}->pump_nb;
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'})
  or die 'the commit does not wait for a standby';
$service->woken_by(
	'a commit wakes one that has begun to wait when it was under way',
	sub { psql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) });
$committer->query_until(qr/committed/, '');
$committer->quit;
psql(q{SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('here', 'w')});

# Several wait. Nobody claims the step: each of them hears of it in turn.
my @waiters = StacksagaWaiter::crowd($node, 4, q{CALL stacksaga.wait_for_steps('crowd', '1 minute')});
my $before = Time::HiRes::time();
psql(q{SELECT stacksaga.start_saga('crowd')});
$_->query_until(qr/over/, '') for @waiters;
cmp_ok(Time::HiRes::time() - $before, '<', 10, 'a step that nobody claims wakes one waiter after the other');
$_->quit for @waiters;
psql(q{SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('crowd', 'w')});

# They claim: a step wakes one of them, and another one that looks whether it was claimed.
@waiters = StacksagaWaiter::crowd($node, 8, 'CALL serve()');
my $steps = 30;
for my $number (1 .. $steps)
{
	psql(q{SELECT stacksaga.start_saga('crowd')});
	$node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM stacksaga.work WHERE queue = 'crowd')})
	  or die 'nobody does the step';
}
my $returned = psql('SELECT count(*) FROM returned');
cmp_ok($returned, '>=', $steps, "eight waiters do $steps steps");
cmp_ok($returned, '<', 2 * $steps, 'without all of them being woken for each');
sub stop_serving
{
	my ($call) = @_;
	psql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = '$call;'");
	$_->query_until(qr/over/, '') for @waiters;
	$_->quit for @waiters;
}
stop_serving('CALL serve()');

# A commit of many steps that one claim takes wakes one of them, and another one that looks whether it was claimed.
@waiters = StacksagaWaiter::crowd($node, 8, 'CALL serve_bulk()');
sub start_bulk
{
	my ($count) = @_;
	psql(qq{
		TRUNCATE returned;
		SELECT count(*) FROM stacksaga.start_sagas('bulk', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, $count)))});
	$node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM stacksaga.work WHERE queue = 'bulk')})
	  or die 'nobody does the steps';
	return psql('SELECT count(*) FROM returned');
}
start_bulk(1); # since then the queue is known for claims of a hundred
cmp_ok(start_bulk(80), '<', 4, 'a commit of many steps does not wake as many');
# Ten claims; all eight would be woken eighty times for them. A promise is forgotten after some milliseconds, so on a busy
# machine more look than claim.
cmp_ok(start_bulk(1000), '<', 60, 'nor one of more than a claim takes');
stop_serving('CALL serve_bulk()');

# But as many as there are to be claimed, where each claims one of them.
@waiters = StacksagaWaiter::crowd($node, 8, 'CALL claim_one()');
psql(q{SELECT count(*) FROM stacksaga.start_sagas('bulk', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 8)))});
$_->query_until(qr/over/, '') for @waiters;
is(psql(q{SELECT count(*) FROM stacksaga.work WHERE queue = 'bulk' AND lease IS NOT NULL}), 8, 'eight waiters claim one step each');
$_->quit for @waiters;

# Cancelled, terminated: nothing of the wait stays.
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
my $other = $waiter->query_safe('SELECT pg_backend_pid()');
$waiter->{stdin} .= "CALL stacksaga.wait_for_steps('nothing', '1 minute');\n\\echo over\n";
$waiter->{run}->pump_nb;
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_locks WHERE pid = $other AND locktype = 'userlock'");
psql("SELECT pg_cancel_backend($other)");
$waiter->query_until(qr/over/, '');
like($waiter->{stderr}, qr/canceling statement due to user request/, 'it can be cancelled');
is(psql("SELECT count(*) FROM pg_locks WHERE pid = $other"), 0, 'and holds nothing after that');
$waiter->quit;
$service->quit;

$node->stop;
done_testing();
