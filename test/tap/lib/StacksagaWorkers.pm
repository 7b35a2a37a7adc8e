# What the tests of the background workers' life share: who runs, who works, and until when to wait.
package StacksagaWorkers;

use strict;
use warnings;

use Exporter 'import';
use Test::More;

our @EXPORT = qw(worker_pids wait_for_workers wait_until_works wait_for_other_workers
  define_answer run_saga log_count);

my $running = q{
	SELECT pid FROM pg_stat_activity
	 WHERE backend_type = 'stacksaga worker' AND datname = '%s' ORDER BY application_name};

# The pids of the workers of a database, by number. Asks in the database postgres.
sub worker_pids
{
	my ($node, $database) = @_;
	return split /\n/, $node->safe_psql('postgres', sprintf($running, $database));
}

# Until so many processes are sessions of the database.
sub wait_for_workers
{
	my ($node, $database, $count) = @_;
	my $query = sprintf("SELECT count(*) = $count FROM ($running) AS r", $database);
	return $node->poll_query_until('postgres', $query);
}

# Until so many workers have said what they do: they are registered, and have beaten once.
sub wait_until_works
{
	my ($node, $database, $count) = @_;
	return $node->poll_query_until($database,
		"SELECT count(*) = $count FROM stacksaga.worker_stats");
}

# Until as many workers run as before, and none of them is one of these.
sub wait_for_other_workers
{
	my ($node, $database, @pids) = @_;
	my $list = join(',', @pids);
	my $query = sprintf(
		"SELECT count(*) = %d AND bool_and(pid NOT IN ($list)) FROM ($running) AS r",
		scalar(@pids), $database);
	return $node->poll_query_until('postgres', $query);
}

# A saga "answer" of one step, which answers at once.
sub define_answer
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, q{
		CREATE FUNCTION public.answer(stacksaga.step_call) RETURNS jsonb
			LANGUAGE sql AS $$ SELECT '42'::jsonb $$;
		SELECT stacksaga.define_saga('answer',
			ARRAY[stacksaga.sql_step('only', 'public.answer(stacksaga.step_call)')])});
}

# Starts a saga, waits until it ends, and returns its status.
sub run_saga
{
	my ($node, $database, $saga) = @_;
	my $id = $node->safe_psql($database, "SELECT saga_id FROM stacksaga.start_saga('$saga')");
	return $node->safe_psql($database, "SELECT stacksaga.await_saga('$id', '120 seconds')");
}

# How often the server's log matches, from an offset on.
sub log_count
{
	my ($node, $pattern, $offset) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $offset // 0);
	return scalar(() = $log =~ /$pattern/g);
}

1;
