# A backend is killed (SIGKILL) between every two statements of begin, effect and finish: afterwards
# marker and effect are both there or neither is, and the same key does the effect once.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "restart_after_crash = on\nmax_prepared_transactions = 2\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE effect (key text);
	CREATE TABLE outside (key text, step text);
});

# Runs statements in one session, which kills its own backend at "KILL", and waits until the server
# has recovered.
sub run_and_kill
{
	my (@statements) = @_;
	my $kill = '\! kill -9 $BACKEND';
	my $script = join "\n", 'SELECT pg_backend_pid() AS pid \gset', '\setenv BACKEND :pid',
	  map { $_ eq 'KILL' ? $kill : "$_;" } @statements;
	my $offset = -s $node->logfile;
	# The statement behind the kill finds the connection gone.
	my (undef, undef, $errors) = $node->psql('postgres', "$script\nSELECT 'survived';\n");
	like($errors, qr/server closed the connection|connection to server was lost|terminating connection/,
		'the backend was killed');
	$node->wait_for_log(qr/reinitializing.*ready to accept connections/s, $offset);
	return;
}

sub state_of
{
	my ($key) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT (SELECT count(*) FROM effect WHERE key = '$key'),
		       (SELECT count(*) FROM stacksaga.idempotency_key WHERE key = '$key' AND completed_at IS NOT NULL),
		       (SELECT count(*) FROM stacksaga.idempotency_key WHERE key = '$key' AND completed_at IS NULL)});
}

sub begin_key
{
	my ($key) = @_;
	return "SELECT lease FROM stacksaga.idempotency_begin('crash', '$key', '{\"n\": 1}') \\gset";
}

sub transaction
{
	my ($key) = @_;
	return ('BEGIN', begin_key($key) . "\nSELECT 1", "INSERT INTO effect VALUES ('$key')",
		"SELECT stacksaga.idempotency_finish('crash', '$key', :lease, '\"done\"')", 'COMMIT');
}

# One transaction, killed behind its first statement, its second, ...
my $statements = scalar(my @all = transaction('any'));
for my $before (1 .. $statements)
{
	my $key = "after $before";
	my @script = transaction($key);
	splice @script, $before, 0, 'KILL';
	run_and_kill(@script);
	my $committed = $before == $statements ? 1 : 0;
	is(state_of($key), "$committed|$committed|0", "killed after $script[$before - 1]: both or neither");
	# The client repeats itself, as it would.
	my $outcome = $node->safe_psql('postgres',
		"SELECT outcome FROM stacksaga.idempotency_begin('crash', '$key', '{\"n\": 1}')");
	is($outcome, $committed ? 'replay' : 'new', 'the key says which');
	next if $committed;
	$node->safe_psql('postgres', "DELETE FROM stacksaga.idempotency_key WHERE key = '$key'");
	$node->safe_psql('postgres', join(";\n", transaction($key)) . ';');
	is(state_of($key), '1|1|0', 'a retry succeeds');
	is( $node->safe_psql('postgres',
			"SELECT outcome, response FROM stacksaga.idempotency_begin('crash', '$key', '{\"n\": 1}')"),
		'replay|"done"', 'once');
}

# Work outside: each of these commits. The lease is kept in the key's row, as the process has it.
sub outside
{
	my ($key) = @_;
	my $lease = "(SELECT lease FROM stacksaga.idempotency_key WHERE key = '$key')";
	my $checkpoint = "SELECT stacksaga.idempotency_checkpoint('crash', '$key', $lease";
	return (begin_key($key) . "\nSELECT 1", "INSERT INTO outside VALUES ('$key', 'reserve')",
		"$checkpoint, 'reserved')", "INSERT INTO outside VALUES ('$key', 'charge')",
		"$checkpoint, 'charged')",
		"SELECT stacksaga.idempotency_finish('crash', '$key', $lease, '\"done\"')");
}

my @recovery_points = ('', '', 'reserved', 'reserved', 'charged');
my $steps = scalar(@all = outside('any'));
for my $before (1 .. $steps)
{
	my $key = "outside $before";
	my @script = outside($key);
	splice @script, $before, 0, 'KILL';
	run_and_kill(@script);
	my $again = qq{SELECT outcome, recovery_point, attempt
		FROM stacksaga.idempotency_begin('crash', '$key', '{"n": 1}')};
	if ($before == $steps)
	{
		is($node->safe_psql('postgres', $again), 'replay|charged|1', 'killed when it was done');
		next;
	}
	$node->raises_sqlstate('postgres', $again, 'SR409');
	my $lease =
	  $node->safe_psql('postgres', "SELECT lease FROM stacksaga.idempotency_key WHERE key = '$key'");
	is($node->safe_psql('postgres', "SET stacksaga.clock_offset = '61 seconds'; $again"),
		"resume|$recovery_points[$before - 1]|2", "killed after step $before: resumes behind it");
	$node->raises_sqlstate('postgres',
		"SELECT stacksaga.idempotency_finish('crash', '$key', $lease, '\"old\"')", 'SG412');
}

# A prepared transaction holds its key over a restart, and gives it up when it ends.
for my $end ('COMMIT', 'ROLLBACK')
{
	my @script = transaction("prepared $end");
	$script[-1] = "PREPARE TRANSACTION 'p'";
	$node->safe_psql('postgres', join(";\n", @script) . ';');
	my $again = qq{SELECT outcome FROM stacksaga.idempotency_begin('crash', 'prepared $end', '{"n": 1}')};
	$node->raises_sqlstate('postgres', $again, 'SR409');
	$node->stop('immediate');
	$node->start;
	$node->raises_sqlstate('postgres', $again, 'SR409');
	$node->raises_sqlstate('postgres',
		"SET lock_timeout = '10ms'; SELECT stacksaga.idempotency_begin('crash', 'prepared $end', '{\"n\": 1}', on_locked => 'wait')",
		'55P03');
	$node->safe_psql('postgres', "$end PREPARED 'p'");
	is($node->safe_psql('postgres', $again), $end eq 'COMMIT' ? 'replay' : 'new', "after $end PREPARED");
}

$node->stop;
done_testing();
