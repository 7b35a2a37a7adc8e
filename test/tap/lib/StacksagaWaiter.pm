# A session that waits for steps of a queue, or for messages of a subscription, as services do, and how fast something wakes it.
#
#   my $service = StacksagaWaiter->new($node, 'payments', 6);   # seconds in which it must wake
#   my $consumer = StacksagaWaiter->new($node, 'billing', 6, 'wait_for_messages');
#   $service->woken_by('a new saga wakes it', sub { ... });     # a test
#   $service->{pid}, $service->quit
#   my @waiters = StacksagaWaiter::crowd($node, 4, q{CALL stacksaga.wait_for_steps('payments')});
package StacksagaWaiter;

use strict;
use warnings;

use Test::More;
use Time::HiRes;

sub new
{
	my ($class, $node, $queue, $seconds, $call) = (@_, 'wait_for_steps');
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	return bless { node => $node, queue => $queue, call => $call, seconds => $seconds, session => $session, pid => $pid }, $class;
}

# The service waits for a minute, until $wakes does what should wake it. (After ten seconds without a
# command a timer of PostgreSQL's statistics sets its latch as well.)
sub woken_by
{
	my ($self, $test, $wakes) = @_;
	my $before = Time::HiRes::time();
	$self->{session}{stdin} .= "CALL stacksaga.$self->{call}('$self->{queue}', '1 minute'); \\echo woken $test\n";
	$self->{session}{run}->pump_nb;
	$self->{node}->poll_query_until('postgres', qq{
		SELECT wait_event = 'Extension' AND query LIKE 'CALL%' FROM pg_stat_activity WHERE pid = $self->{pid}})
	  or die 'the service does not wait';
	$wakes->();
	$self->{session}->query_until(qr/woken $test/, '');
	return cmp_ok(Time::HiRes::time() - $before, '<', $self->{seconds}, $test);
}

# Sessions that run a call, once all of them wait; each prints "over" when it returns.
sub crowd
{
	my ($node, $count, $call) = @_;
	my @waiters = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. $count;
	for my $waiter (@waiters)
	{
		$waiter->{stdin} .= "$call;\n\\echo over\n";
		$waiter->{run}->pump_nb;
	}
	$node->poll_query_until('postgres', qq{
		SELECT count(*) = $count FROM pg_stat_activity WHERE wait_event = 'Extension' AND query LIKE 'CALL%'})
	  or die 'they do not wait';
	return @waiters;
}

sub quit { return $_[0]->{session}->quit }

1;
