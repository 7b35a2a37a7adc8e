# A process that lives for months keeps nothing from one round to the next: a worker between two turns, a service
# between two waits, claims and answers, and a consumer between two batches use the memory that they used before.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $rounds = 5000;

my $node = StacksagaCluster->new('memory');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "autovacuum = off\nfsync = off\nstacksaga.poll_interval = '10ms'\n");
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION handle(stacksaga.message) RETURNS void LANGUAGE sql AS '';
	SELECT stacksaga.create_subscription('handled', 'handled', 'handle(stacksaga.message)');
	SELECT stacksaga.create_subscription('read', 'read');
	SELECT stacksaga.define_saga('served', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)])});
wait_until_works($node, 'postgres', 1);
my ($worker) = worker_pids($node, 'postgres');

# What the process uses of the contexts in which something of a round could stay, as it logs it between two
# transactions. PostgreSQL's own caches follow the catalogs, and plans the statements that have been used.
sub used_once
{
	while (1)
	{
		my $offset = -s $node->logfile;
		$node->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($worker)");
		$node->wait_for_log(qr/\[$worker\] LOG:  Grand total/, $offset);
		my $log = slurp_file($node->logfile, $offset);
		next if $log =~ /CurTransactionContext/;
		my %used;
		$used{$1} += $2 while $log =~ /\[$worker\] LOG:  level: \d; ([^:\n]+): .* (\d+) used$/mg;
		return join(', ', map { "$_ $used{$_}" } grep { /TopMemoryContext|stacksaga/ } sort keys %used);
	}
}

# The least of some: what a turn uses while it runs is gone when it is over.
sub used_by_worker
{
	my $sum = sub { my $total = 0; $total += $1 while $_[0] =~ / (\d+)(?:,|$)/g; return $total };
	return (sort { $sum->($a) <=> $sum->($b) } map { used_once() } 1 .. 5)[0];
}

# Each commit wakes the worker, which takes a turn at once; it takes others by itself.
sub work
{
	my ($times) = @_;
	$node->safe_psql('postgres', qq{
		DO \$\$ BEGIN
			FOR i IN 1 .. $times LOOP
				PERFORM stacksaga.publish('handled', '{}');
				IF i % 8 = 0 THEN
					PERFORM stacksaga.start_saga('answer');
				END IF;
				COMMIT;
			END LOOP;
		END \$\$});
	return $node->poll_query_until('postgres', q{
		SELECT NOT EXISTS (SELECT FROM stacksaga.sagas WHERE saga = 'answer' AND status <> 'completed')});
}

sub turns { return $node->safe_psql('postgres', 'SELECT coalesce(max(turns), 0) FROM stacksaga.worker_stats') }

work(200);
my ($before, $after) = (undef, used_by_worker());
# What a worker does now and then for the first time may stay once. What stays of each turn stays each time.
for (1 .. 3)
{
	$before = $after;
	my $until = turns() + $rounds;
	while (turns() < $until) { work(500) }
	$after = used_by_worker();
	last if $after eq $before;
}
is($after, $before, 'a worker uses no more memory after many turns');

# The same of one session, which asks itself.
my $used = q{SELECT string_agg(format('%s %s', name, used), ', ' ORDER BY name) FROM (
	SELECT name, sum(used_bytes) AS used FROM pg_backend_memory_contexts
	 WHERE name ~ 'TopMemoryContext|stacksaga' GROUP BY name) AS c};
my %calls = (
	'a service that waits, claims and answers' => q{
		SELECT FROM stacksaga.start_saga('served');
		CALL stacksaga.wait_for_steps('q', '1 millisecond');
		CALL stacksaga.wait_for_steps('other', '1 millisecond');
		SELECT FROM stacksaga.claim_steps('q', 'w') AS c, stacksaga.complete_step(c.saga_id, c.step, c.lease);
		SELECT FROM stacksaga.claim_steps('q', 'w');},
	'a consumer that receives and acknowledges' => q{
		SELECT FROM stacksaga.publish('read', '{}');
		SELECT stacksaga.ack_messages(min(batch_id)) FROM stacksaga.receive_messages('read', 'w');
		SELECT FROM stacksaga.receive_messages('read', 'w');});
for my $caller (sort keys %calls)
{
	my $script = "\\o /dev/null\n$used;\n" . $calls{$caller} x 100 . "\n\\o\n$used;\n\\o /dev/null\n" .
	  $calls{$caller} x $rounds . "\n\\o\n$used;\n";
	my ($first, $last) = split /\n/, $node->safe_psql('postgres', $script);
	is($last, $first, "$caller uses no more memory after many rounds");
}

$node->stop;
done_testing();
