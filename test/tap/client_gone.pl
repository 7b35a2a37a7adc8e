# A client that is killed while its session waits for steps, for a key, or for the end of a saga: the session ends,
# and takes nothing for nobody.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('gone');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('waits', ARRAY[stacksaga.queue_step('a', 'elsewhere', compensable => true)])});
my $saga = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('waits')});
my $owner = $node->background_psql('postgres');
$owner->query_safe(q{BEGIN; SELECT outcome FROM stacksaga.idempotency_begin('scope', 'key')});

my %waits = (
	'for steps' => q{CALL stacksaga.wait_for_steps('nothing', '1 minute')},
	'for a key' => q{SELECT stacksaga.idempotency_begin('scope', 'key', on_locked => 'wait')},
	'for a saga' => qq{SELECT stacksaga.await_saga('$saga', '1 minute')});
for my $wait (sort keys %waits)
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->{stdin} .= "$waits{$wait};\n";
	$session->{run}->pump_nb;
	$node->poll_query_until('postgres', qq{
		SELECT wait_event IS NOT NULL AND state = 'active' FROM pg_stat_activity WHERE pid = $pid})
	  or die "it does not wait $wait";
	$session->{run}->signal('KILL');
	my $begun = time;
	ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)"),
		"a session that waits $wait ends when its client has gone");
	cmp_ok(time - $begun, '<', 30, '... soon');
}
$owner->query_safe('ROLLBACK');
is($node->safe_psql('postgres', q{SELECT outcome, attempt FROM stacksaga.idempotency_begin('scope', 'key')}), 'new|1',
	'nobody has taken the key');
$owner->quit;
$node->stop;
done_testing();
