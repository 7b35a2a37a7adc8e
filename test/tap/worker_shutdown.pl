# A fast shutdown ends the workers within a second, also in the middle of a step, and the step is done
# after the next start.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::Local;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('shutdown');
$node->init(worker_databases => [ 'postgres' ]);
$node->append_conf('postgresql.conf', "log_line_prefix = '%m [%p] '\nlog_timezone = 'UTC'");
$node->start;
$node->create_extension('postgres');

# Seconds of a log line's instant.
sub instant
{
	my ($line) = @_;
	my ($y, $mo, $d, $h, $mi, $s) = $line =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+):([\d.]+) UTC/
	  or die "no time in: $line";
	return timegm(0, $mi, $h, $d, $mo - 1, $y) + $s;
}

# Seconds from the request of the last shutdown to the end of our last process.
sub seconds_to_end
{
	my ($asked, $ended);
	foreach my $line (split /\n/, slurp_file($node->logfile))
	{
		$asked = instant($line) if $line =~ /received fast shutdown request/;
		$ended = instant($line) if $line =~ /background worker "stacksaga .* exited/;
	}
	return $ended - $asked;
}

wait_until_works($node, 'postgres', 1);
$node->stop('fast');
cmp_ok(seconds_to_end(), '<', 1, 'an idle worker ends within a second');

# One step that computes without end, and one that waits for a lock.
$node->start;
$node->safe_psql('postgres', q{
	CREATE TABLE switch (is_on boolean NOT NULL);
	INSERT INTO switch VALUES (true);
	CREATE FUNCTION compute(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE (SELECT is_on FROM switch) LOOP END LOOP;
		RETURN '1';
	END $$;
	CREATE FUNCTION wait(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(1);
		RETURN '2';
	END $$;
	SELECT stacksaga.define_saga('compute',
		ARRAY[stacksaga.sql_step('only', 'compute(stacksaga.step_call)', timeout => '1 hour')]);
	SELECT stacksaga.define_saga('wait',
		ARRAY[stacksaga.sql_step('only', 'wait(stacksaga.step_call)', timeout => '1 hour')]);
});
my $computing = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('compute')});
$node->poll_query_until('postgres', q{
	SELECT count(*) = 1 FROM pg_stat_activity a
	 WHERE backend_type = 'stacksaga worker' AND state = 'active'
	   AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.relation = 'switch'::regclass)});
$node->stop('fast');
cmp_ok(seconds_to_end(), '<', 1, 'a worker in a step that computes ends within a second');

$node->start;
$node->safe_psql('postgres', 'UPDATE switch SET is_on = false');
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$computing', '120 seconds')"),
	'completed', 'the step is done after the next start');

my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $waiting = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('wait')});
$node->poll_query_until('postgres', q{
	SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	 WHERE a.backend_type = 'stacksaga worker' AND NOT l.granted});
$node->stop('fast');
cmp_ok(seconds_to_end(), '<', 1, 'a worker in a step that waits for a lock ends within a second');
$holder->{run}->finish;

$node->start;
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$waiting', '120 seconds')"),
	'completed', 'its step is done after the next start');
is( $node->safe_psql('postgres',
		q{SELECT count(*) FROM stacksaga.saga_history WHERE status = 'failed'}),
	0, 'a shutdown is no failure of a step');

$node->stop;
done_testing();
