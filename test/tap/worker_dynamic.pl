# Without preloading, worker_ensure() starts the workers, and they come back by themselves.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('dynamic');
$node->init;
$node->append_conf('postgresql.conf', 'stacksaga.workers = 3');
# The module of the tests turns it off.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->start;

# Nothing runs by itself.
$node->create_extension('postgres');
is(scalar(worker_pids($node, 'postgres')), 0, 'nothing is started without being asked for');
define_answer($node, 'postgres');

# Two at once: both wait at a gate.
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
foreach my $session (@sessions)
{
	$session->{stdin} .= "SELECT pg_advisory_lock_shared(1);\n"
	  . "SELECT 'workers: ' || stacksaga.worker_ensure();\n\\echo done\n";
	$session->{run}->pump_nb;
}
$node->poll_query_until('postgres',
	q{SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$gate->quit;
foreach my $session (@sessions)
{
	$session->{run}->pump until $session->{stdout} =~ /done\n/ or $session->{timeout}->is_expired;
	like($session->{stdout}, qr/^workers: 3$/m, 'each of two callers at once is told of three');
}
my @pids = worker_pids($node, 'postgres');
is(scalar(@pids), 3, 'and three run');
$_->quit foreach @sessions;
is($node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'), 3, 'a third call starts none');
is_deeply([ worker_pids($node, 'postgres') ], \@pids, 'the workers are the same');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'they work');
my $superfluous = qr/ends: another process has its number/;
is(log_count($node, $superfluous), 0, 'not one process was started too many');

# Ended from outside.
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[1])");
$node->poll_query_until('postgres', qq{
	SELECT count(*) = 3 AND bool_and(pid <> $pids[1]) FROM pg_stat_activity
	 WHERE backend_type = 'stacksaga worker'});
pass('a terminated worker comes back');

# While the postmaster is about to start it again.
$node->safe_psql('postgres', qq{
	SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
	 WHERE application_name = 'stacksaga worker-2'});
is($node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'),
	3, 'one that is about to come back is started');
$node->wait_for_log($superfluous);
is(scalar(worker_pids($node, 'postgres')), 3, 'and when it comes back as well, it ends');

@pids = worker_pids($node, 'postgres');
kill 'KILL', $pids[0];
$node->wait_for_log(qr/all server processes terminated; reinitializing/);
$node->poll_query_until('postgres', 'SELECT true');
wait_for_other_workers($node, 'postgres', @pids);
is(run_saga($node, 'postgres', 'answer'), 'completed', 'all come back after a crash');

# A restart of the server ends them.
$node->restart;
is(scalar(worker_pids($node, 'postgres')), 0, 'a restart ends them');
is($node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'), 3, 'and they are started anew');

# In the transaction that creates the extension, however long it takes.
$node->safe_psql('postgres', 'CREATE DATABASE young');
my $creator = $node->background_psql('young');
$creator->query_safe('BEGIN');
$creator->query_safe('CREATE EXTENSION stacksaga');
is($creator->query_safe('SELECT stacksaga.worker_ensure()'),
	3, 'workers are started for an extension that is not committed yet');
$node->wait_for_log(qr/database "young" has no extension "stacksaga"/);
# Others give up: those of an extension that was dropped after they were.
$node->safe_psql('postgres', 'CREATE DATABASE old');
$node->create_extension('old');
is($node->safe_psql('old', 'SELECT stacksaga.worker_ensure()'), 3, 'elsewhere workers run');
wait_until_works($node, 'old', 3);
$node->safe_psql('old', 'DROP EXTENSION stacksaga');
wait_for_workers($node, 'old', 0);
pass('workers give up when their extension is gone');
is(scalar(worker_pids($node, 'young')), 3, 'but not when it is only not there yet');
$creator->query_safe('COMMIT');
$creator->quit;
wait_until_works($node, 'young', 3);
pass('they work when it is');

# No slot is free.
$node->append_conf('postgresql.conf', 'stacksaga.workers = 60');
$node->reload;
my ($status, undef, $errors) = $node->psql('postgres', 'SELECT stacksaga.worker_ensure()',
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($errors, qr/ERROR:  53000: no background worker slot is free/, 'a full server is an error');
like($errors, qr/HINT:  Raise max_worker_processes/, 'that says what to do');
like($errors, qr/DETAIL:  \d+ of 60 workers run/, 'and how far it came');

$node->append_conf('postgresql.conf', 'stacksaga.workers = 0');
$node->reload;
wait_for_workers($node, 'postgres', 0);
wait_for_workers($node, 'young', 0);
is($node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'),
	0, 'none is started where none is wanted');

$node->stop;
done_testing();
