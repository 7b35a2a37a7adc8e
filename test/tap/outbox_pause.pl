# Workers that poll once a minute deliver nothing of a paused subscription, go on as soon as its pause ends, by
# resume_subscription() or at its instant, and do not interrupt a handler that runs.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('outbox_pause');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.poll_interval = '60s'\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE handled (key text, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO handled VALUES (m.key);
		PERFORM pg_advisory_xact_lock(1) WHERE m.key = 'slow';
	END $$;
	SELECT stacksaga.create_subscription('paused', 'paused', 'handle(stacksaga.message)');
	SELECT stacksaga.create_subscription('other', 'other', 'handle(stacksaga.message)')});
wait_until_works($node, 'postgres', 1);

sub publish
{
	my ($key, $topic) = (@_, 'paused');
	$node->safe_psql('postgres', "SELECT stacksaga.publish('$topic', '1', '$key')");
}

sub is_handled
{
	my ($key) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM handled WHERE key = '$key'") + 0;
}

sub within
{
	my ($seconds, $key) = @_;
	my $begun = time;
	return $node->poll_query_until('postgres', "SELECT count(*) > 0 FROM handled WHERE key = '$key'") && time - $begun < $seconds;
}

publish('before');
ok(within(30, 'before'), 'a message is handled');

# The handler of the message that is being handled goes on.
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
publish('slow');
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'advisory'});
$node->safe_psql('postgres', q{SELECT stacksaga.pause_subscription('paused', 'INC-1')});
publish('meanwhile');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
publish('of another one', 'other');
ok(within(30, 'slow'), 'a handler that runs when its subscription is paused ends, and its message is handled');
ok(within(30, 'of another one'), 'other subscriptions go on');
is(is_handled('meanwhile'), 0, 'the paused one does not');
$node->safe_psql('postgres', q{SELECT stacksaga.resume_subscription('paused', 'INC-1 is over')});
ok(within(20, 'meanwhile'), 'the worker goes on when the pause is ended');

# All subscriptions with a handler are paused, or but one.
foreach my $others ('other', undef)
{
	my $key = $others ? 'alone' : 'beside another one';
	$node->safe_psql('postgres', q{SELECT stacksaga.pause_subscription('other', 'INC-2')}) if $others;
	$node->safe_psql('postgres', q{SELECT stacksaga.pause_subscription('paused', 'lunch', clock_timestamp() + interval '3 s')});
	publish($key);
	ok(within(20, $key), "$key: the worker goes on at the instant at which the pause ends");
	is($node->safe_psql('postgres', qq{
			SELECT h.at >= s.paused_until, h.at < s.paused_until + interval '10 s'
			  FROM handled h, stacksaga.subscription s WHERE h.key = '$key' AND s.subscription = 'paused'}),
		't|t', "$key: not before it");
	$node->safe_psql('postgres', q{SELECT stacksaga.resume_subscription('other', 'INC-2 is over')}) if $others;
}

$node->stop;
done_testing();
