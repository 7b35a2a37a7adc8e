# A service that waits for messages holds nothing that keeps vacuum or DDL waiting, and is woken by whatever gives
# receive_messages() something; one message wakes one of many.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StacksagaCluster;
use StacksagaWaiter;

my $node = StacksagaCluster->new('waits_for_messages');
$node->init;
# A session with synchronous_commit waits for a standby that there is not, until it is cancelled.
$node->append_conf('postgresql.conf', "wal_level = replica\nmax_wal_senders = 1\nmax_connections = 260\n"
	  . "max_prepared_transactions = 2\nsynchronous_standby_names = 'nobody'\nsynchronous_commit = local\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.create_subscription('here', 'here', retry => stacksaga.retry_policy(initial_interval => '1 second', jitter => 0));
	SELECT stacksaga.create_subscription('wild', 'wild.*');
	SELECT stacksaga.create_subscription('wide', 'wi*');
	SELECT stacksaga.create_subscription('too', 'here');
	SELECT stacksaga.create_subscription('crowd', 'crowd');
	CREATE FUNCTION take(subscription text, lease interval DEFAULT '30 s') RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM (SELECT stacksaga.ack_messages(batch_id)
			FROM (SELECT DISTINCT batch_id FROM stacksaga.receive_messages(subscription, 'taker', 1000, lease)) AS b) AS a $$;
	CREATE TABLE returned (pid integer DEFAULT pg_backend_pid(), got bigint);
	CREATE PROCEDURE serve(subscription text, acks boolean DEFAULT true) LANGUAGE plpgsql AS $$
	DECLARE
		batch bigint;
		n bigint;
	BEGIN
		LOOP
			CALL stacksaga.wait_for_messages(subscription, '1 minute');
			SELECT max(batch_id), count(*) INTO batch, n FROM stacksaga.receive_messages(subscription, pg_backend_pid()::text);
			INSERT INTO returned (got) VALUES (n);
			PERFORM stacksaga.ack_messages(batch) WHERE acks AND batch IS NOT NULL;
			COMMIT;
		END LOOP;
	END $$});

sub psql { return $node->safe_psql('postgres', @_) }

sub publish
{
	my ($topic, $key) = (@_, 'k');
	psql("SELECT stacksaga.publish('$topic', '1', '$key')");
}

my $service = StacksagaWaiter->new($node, 'here', 6, 'wait_for_messages');
my $pid = $service->{pid};

# It holds nothing, and what is not for it does not end its wait.
$service->woken_by(
	'a message wakes it',
	sub {
		is(psql("SELECT backend_xmin IS NULL, backend_xid IS NULL FROM pg_stat_activity WHERE pid = $pid"),
			't|t', 'it has no snapshot and no transaction id');
		is(psql("SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype NOT IN ('virtualxid', 'userlock')"),
			0, 'it holds no lock on a table or a row');
		publish('elsewhere');
		is(psql("SELECT state FROM pg_stat_activity WHERE pid = $pid"), 'active', 'another topic does not concern it');
		publish('here');
	});
is(psql("SELECT take('here')"), 1, 'and is received');
psql("SELECT take('too')");

# Whatever else gives it something.
$service->woken_by('a transaction block sees what it returned for', sub { publish('here') });
is(psql(q{BEGIN; SELECT count(*) FROM stacksaga.receive_messages('here', 'c'); ROLLBACK}), 1, 'without a tick of its own');
psql(q{CREATE TABLE held AS SELECT * FROM stacksaga.receive_messages('here', 'c', lease => '2 seconds')});
$service->woken_by('a lease that runs out wakes it', sub { });
psql(q{TRUNCATE held; INSERT INTO held SELECT * FROM stacksaga.receive_messages('here', 'c')});
$service->woken_by(
	'a retry wakes it when it falls due',
	sub {
		psql(q{SELECT stacksaga.fail_message(batch_id, message_id, 'no') FROM held});
		psql(q{SELECT stacksaga.ack_messages(batch_id) FROM held});
	});
psql(q{SELECT take('here')});
$service->woken_by(
	'a message that is delayed wakes it, which is copied out of the log',
	sub { psql(q{SELECT stacksaga.publish('here', '2', 'k', deliver_at => clock_timestamp() + interval '3 seconds')}) });
is(psql(q{SELECT take('here')}), 0, 'and is not received');
$service->woken_by('it wakes it when it is due', sub { });
is(psql(q{SELECT take('here')}), 1, 'and is received');
psql(q{SELECT stacksaga.pause_subscription('here', 'a test', clock_timestamp() + interval '3 seconds')});
publish('here');
my $paused_until = psql(q{SELECT extract(epoch FROM paused_until) FROM stacksaga.subscriptions WHERE subscription = 'here'});
$service->woken_by('the end of a pause wakes it', sub { });
cmp_ok(time(), '>=', $paused_until, 'not before');
psql(q{SELECT take('here')});
psql(q{SELECT stacksaga.pause_subscription('here', 'a test')});
publish('here');
$service->woken_by('who ends a pause wakes it', sub { psql(q{SELECT stacksaga.resume_subscription('here', 'a test')}) });
psql(q{TRUNCATE held; INSERT INTO held SELECT * FROM stacksaga.receive_messages('here', 'c')});
psql(q{SELECT stacksaga.fail_message(batch_id, message_id, 'no', 'non_retryable') FROM held});
publish('here');
psql(q{SELECT stacksaga.ack_messages(batch_id) FROM held LIMIT 1; SELECT take('here')});
$service->woken_by('a dead message that is redriven wakes it',
	sub { psql(q{SELECT stacksaga.redrive_message('here', message_id) FROM held}) });
psql(q{TRUNCATE held; INSERT INTO held SELECT * FROM stacksaga.receive_messages('here', 'c')});
psql(q{SELECT stacksaga.fail_message(batch_id, message_id, 'no', 'non_retryable') FROM held ORDER BY published_at LIMIT 1});
psql(q{SELECT stacksaga.ack_messages(batch_id) FROM held LIMIT 1; SELECT take('here')});
$service->woken_by('a dead message that is discarded lets those behind it go',
	sub { psql(q{SELECT stacksaga.discard_message('here', message_id, 'a test') FROM stacksaga.dead_messages}) });
psql(q{SELECT take('here')});
publish('here', $_) for 1 .. 3;
psql(q{TRUNCATE held; INSERT INTO held SELECT * FROM stacksaga.receive_messages('here', 'c', 1)});
psql(q{SELECT take('here')}) for 1 .. 3;
publish('here', psql('SELECT key FROM held'));
$service->woken_by('who acknowledges a batch with messages behind it wakes it',
	sub { psql(q{SELECT stacksaga.ack_messages(batch_id) FROM held}) });
psql(q{SELECT take('here')});
publish('here');
for my $after ('0', '2 seconds')
{
	psql(q{CALL stacksaga.wait_for_messages('here'); TRUNCATE held; INSERT INTO held SELECT * FROM stacksaga.receive_messages('here', 'c')});
	$service->woken_by("a batch that is given back for $after wakes it",
		sub { psql("SELECT stacksaga.release_batch(batch_id, '$after') FROM held") });
}
psql(q{SELECT take('here')});
my $receiver = $node->background_psql('postgres');
publish('here');
psql(q{CALL stacksaga.wait_for_messages('here')});
is($receiver->query_safe(q{BEGIN; SELECT count(*) FROM stacksaga.receive_messages('here', 'c')}), 1, 'a batch is received');
$service->woken_by('a batch that is rolled back wakes it', sub { $receiver->query_safe('ROLLBACK') });
psql(q{SELECT take('here')});

# Prepared.
$service->woken_by(
	'a prepared transaction wakes it when it is committed',
	sub {
		psql(q{BEGIN; SELECT stacksaga.publish('here', '1'); PREPARE TRANSACTION 'p'});
		is(psql("SELECT state FROM pg_stat_activity WHERE pid = $pid"), 'active', 'not before');
		psql(q{COMMIT PREPARED 'p'});
	});
psql(q{SELECT take('here')});
psql(q{BEGIN; SELECT stacksaga.publish('here', '1'); PREPARE TRANSACTION 'p'});
my $begun = time;
$service->woken_by('one that was prepared before, too', sub { psql(q{COMMIT PREPARED 'p'}) });
psql(q{SELECT take('here')});

# A commit waits for a standby after it is recorded, and is not seen meanwhile: who begins to wait then is woken by it.
my $committer = $node->background_psql('postgres');
$committer->query_safe('SET synchronous_commit = on');
$committer->{stdin} .= "SELECT stacksaga.publish('here', '1');\n\\echo committed\n";
$committer->{run}->pump_nb;
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'})
  or die 'the commit does not wait for a standby';
$service->woken_by(
	'a commit wakes one that has begun to wait when it was under way',
	sub { psql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) });
$committer->query_until(qr/committed/, '');
$committer->quit;
psql(q{SELECT take('here')});

# Each subscription of a topic, and each wildcard.
my @others = map { StacksagaWaiter->new($node, $_, 6, 'wait_for_messages') } qw(too wild wide);
psql(q{SELECT take(s) FROM unnest('{here,too,wild,wide}'::text[]) AS s});
$service->woken_by('one message wakes the waiter of one subscription',
	sub { $others[0]->woken_by('and of another', sub { publish('here') }) });
$others[1]->woken_by('the waiter of a wildcard', sub { $others[2]->woken_by('and of another', sub { publish('wild.1') }) });
psql(q{SELECT take(s) FROM unnest('{here,too,wild,wide}'::text[]) AS s});
$others[1]->woken_by(
	'a wildcard that matches wakes it',
	sub {
		publish('wide');
		is(psql("SELECT state FROM pg_stat_activity WHERE pid = $others[1]{pid}"), 'active', 'another one does not');
		publish('wild.2');
	});
$_->quit for @others;

sub stop_waiting
{
	my ($call, @waiters) = @_;
	psql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = \$\$$call;\$\$");
	$_->query_until(qr/over/, '') for @waiters;
	$_->quit for @waiters;
}

# Two hundred wait, and one message wakes one of them; nothing is executed while they wait.
my @waiters = StacksagaWaiter::crowd($node, 200, q{CALL serve('crowd')});
my $transactions = q{SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'};

# It looks at the clock some thirty times.
sub transactions_in_three_seconds
{
	my ($before, $end) = split /\|/, psql("SELECT ($transactions), clock_timestamp() + interval '3 s'");
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$end'") or die 'the clock stands still';
	return psql($transactions) - $before;
}
transactions_in_three_seconds(); # what they did before is counted meanwhile
cmp_ok(transactions_in_three_seconds(), '<', 200, 'two hundred that wait execute nothing');
my $messages = 20;
for my $number (1 .. $messages)
{
	publish('crowd', $number);
	$node->poll_query_until('postgres', "SELECT sum(got) = $number FROM returned") or die 'nobody receives it';
}
my $returned = psql('SELECT count(*) FROM returned');
cmp_ok($returned, '>=', $messages, "two hundred waiters receive $messages messages");
cmp_ok($returned, '<', 2 * $messages, "one message wakes one of them ($returned returned)");
stop_waiting(q{CALL serve('crowd')}, @waiters);

# Nobody receives: each of them hears of it in turn.
@waiters = StacksagaWaiter::crowd($node, 4, q{CALL stacksaga.wait_for_messages('crowd', '1 minute')});
$begun = time;
publish('crowd');
$_->query_until(qr/over/, '') for @waiters;
cmp_ok(time - $begun, '<', 10, 'a message that nobody receives wakes one waiter after the other');
$_->quit for @waiters;

# One that has its share hands the wake on.
psql(q{SELECT stacksaga.create_subscription('shared', 'shared')});
sub publish_keys { return "SELECT count(stacksaga.publish('shared', '1', n::text)) FROM generate_series($_[0], $_[1]) AS n" }
psql(publish_keys(1, 14));
psql(q{SELECT count(*) FROM stacksaga.receive_messages('shared', 'full', 1000)});
cmp_ok(psql(q{SELECT count(*) FROM stacksaga.subscription_position WHERE consumer = 'full'}), '>=', 8, 'a consumer has half of the partitions');
@waiters = StacksagaWaiter::crowd($node, 3, q{CALL stacksaga.wait_for_messages('shared', '1 minute', 'full')});
my $other = StacksagaWaiter->new($node, 'shared', 6, 'wait_for_messages');
# As another consumer asks, that is its share.
$other->woken_by('a waiter that has its share hands the wake on',
	sub { psql(q{SELECT count(*) FROM stacksaga.receive_messages('shared', 'asks'); } . publish_keys(15, 60)) });
stop_waiting(q{CALL stacksaga.wait_for_messages('shared', '1 minute', 'full')}, ());
$_->quit for @waiters;
$other->quit;

# Cancelled: nothing of the wait stays. Dropped: it is told.
psql(q{SELECT stacksaga.create_subscription('nothing', 'nothing')});
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
my $backend = $waiter->query_safe('SELECT pg_backend_pid()');
for my $ends ("SELECT pg_cancel_backend($backend)", q{SELECT stacksaga.drop_subscription('nothing')})
{
	$waiter->{stdin} .= "CALL stacksaga.wait_for_messages('nothing', '1 minute');\n\\echo over\n";
	$waiter->{run}->pump_nb;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_locks WHERE pid = $backend AND locktype = 'userlock'");
	psql($ends);
	$waiter->query_until(qr/over/, '');
	is(psql("SELECT count(*) FROM pg_locks WHERE pid = $backend"), 0, 'one that is over holds nothing');
}
like($waiter->{stderr}, qr/canceling statement due to user request/, 'it can be cancelled');
like($waiter->{stderr}, qr/subscription "nothing" does not exist/, 'and is told when its subscription is dropped');
$waiter->quit;
$service->quit;
$receiver->quit;

$node->stop;
done_testing();
