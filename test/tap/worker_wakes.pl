# Work that a worker can do wakes it at once; work among services does not. The worker polls once a minute
# here, so anything that it does sooner follows a wake.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('wakes');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.poll_interval = '1min'\n");
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 1);
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE handled (topic text, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE sql AS
		'INSERT INTO public.handled VALUES ((m).topic)';
	SELECT stacksaga.define_saga('queued', ARRAY[
		stacksaga.queue_step('a', 'q', compensable => true), stacksaga.queue_step('b', 'q', compensable => true)]);
	SELECT stacksaga.create_subscription('service', 'orders*');
	SELECT stacksaga.create_subscription('handler', 'handled', 'public.handle(stacksaga.message)');
});

# The turns that the worker has taken: it says so when it beats, which a reload makes it do.
sub turns
{
	my $now = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT bool_and(heartbeat_at > '$now') FROM stacksaga.node WHERE pid IS NOT NULL");
	return $node->safe_psql('postgres', 'SELECT sum(turns) FROM stacksaga.worker_stats');
}

# Runs statements, each in a transaction of its own, and returns how many turns the worker took.
sub turns_of
{
	my (@statements) = @_;
	my $before = turns();
	$node->safe_psql('postgres', join(";\n", @statements) . ";\n");
	return turns() - $before;
}

# Succeeds when the query is true long before the worker would poll.
sub happens_at_once
{
	my ($query, $what) = @_;
	my $begun = time;
	$node->poll_query_until('postgres', $query);
	return cmp_ok(time - $begun, '<', 30, $what);
}

# A reload and a beat are turns as well, and at first the worker takes over the ring slot by slot.
my $few = 5;
$node->poll_query_until('postgres',
	'SELECT count(*) > 0 AND bool_and(owner IS NOT NULL) FROM stacksaga.slot');
turns();
cmp_ok(turns_of((q{SELECT stacksaga.publish('orders.new', '1')}) x 300), '<=', $few,
	'messages that only services receive');
my $queued = q{
SELECT count(*) FROM stacksaga.start_saga('queued');
SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease)) FROM stacksaga.claim_steps('q', 'w') c;
SELECT count(stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'retryable', retry_after => '0'))
  FROM stacksaga.claim_steps('q', 'w') c;
SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease)) FROM stacksaga.claim_steps('q', 'w') c};
cmp_ok(turns_of(($queued) x 100), '<=', $few, 'sagas of queue steps');
cmp_ok(
	turns_of(
		(q{SELECT count(stacksaga.ack_messages(batch_id)) FROM
			(SELECT DISTINCT batch_id FROM stacksaga.receive_messages('service', 'c', 1)) b}) x 100),
	'<=', $few, 'services that receive messages');
is($node->safe_psql('postgres',
		"SELECT count(*) FROM stacksaga.receive_messages('service', 'c', 1000)"),
	200, 'who receives them gets all');

$node->safe_psql('postgres', q{SELECT stacksaga.publish('handled', '1')});
happens_at_once('SELECT count(*) = 1 FROM handled', 'a message for a handler');
my $begun = time;
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a step of SQL');
cmp_ok(time - $begun, '<', 30, 'at once');
$node->safe_psql('postgres',
	q{SELECT count(*) FROM stacksaga.start_saga('queued', key => 'timely', deadline => '1 second')});
happens_at_once(q{SELECT count(*) = 1 FROM stacksaga.sagas WHERE key = 'timely' AND status = 'failed'},
	'a deadline within the poll interval');

# A subscription that is committed while a message of its topic is not.
my $session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN});
$session->query_safe(q{SELECT stacksaga.publish('late', '1')});
$node->safe_psql('postgres',
	q{SELECT stacksaga.create_subscription('late', 'la*', 'public.handle(stacksaga.message)')});
turns();
$session->query_safe(q{COMMIT});
happens_at_once(q{SELECT count(*) = 1 FROM handled WHERE topic = 'late'},
	'a message older than the subscription that takes it');
$session->query_safe(q{SELECT stacksaga.publish('late', '2')});
happens_at_once(q{SELECT count(*) = 2 FROM handled WHERE topic = 'late'},
	'a session that published before learns of a subscription');
$node->safe_psql('postgres', q{SELECT stacksaga.drop_subscription('late', true)});
turns();
my $before = turns();
$session->query_safe(q{SELECT stacksaga.publish('late', '3')}) for 1 .. 50;
cmp_ok(turns() - $before, '<=', $few, 'and of its end');
$session->quit;

# Services that listen for ticks wait for the worker to make them.
$node->append_conf('postgresql.conf', "stacksaga.notify = on\n");
$node->reload;
$node->safe_psql('postgres', q{SELECT stacksaga.publish('orders.told', '1')});
happens_at_once(q{SELECT max(number_after) = (SELECT last_value FROM stacksaga.outbox_number_seq)
	FROM stacksaga.outbox_tick}, 'a tick for those who listen');

$node->stop;
done_testing();
