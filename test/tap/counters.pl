# The counters of metrics(): one for all processes of a server, per database, over restarts.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('counters');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 2\nrestart_after_crash = on\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->create_extension('other');

sub value
{
	my ($name, $database) = @_;
	return $node->safe_psql($database // 'postgres',
		"SELECT sum(value) FROM stacksaga.metrics() WHERE name = '$name'");
}

define_answer($node, 'postgres');

# Many at once: nothing is lost between processes.
my @sessions = map { $node->background_psql('postgres') } 1 .. 4;
$_->query_safe('SELECT 1') for @sessions;
$_->{stdin} .= "SELECT count(*) FROM stacksaga.start_saga('answer');\n" x 250 for @sessions;
$_->quit for @sessions;
is(value('stacksaga_sagas_started_total'), 1000, 'sessions that count at the same time');
is(value('stacksaga_sagas_started_total', 'other'), 0, 'each database has its own');

# A worker counts in the same place.
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1000 FROM stacksaga.saga WHERE status = 'completed'});
is(value('stacksaga_sagas_finished_total'), 1000, 'what workers finish');
is(value('stacksaga_steps_completed_total'), 1000, 'and the steps that they do');
is(value('stacksaga_worker_items_total') <= 1000 && value('stacksaga_workers') == 1,
	1, 'and who they are');

# A restart, and a crash.
$node->restart;
is(value('stacksaga_sagas_started_total'), 1000, 'a restart forgets nothing');
$node->stop('immediate');
$node->start;
is(value('stacksaga_sagas_started_total'), 1000, 'nor does a crash');

# Sagas by status: absent until this server has counted, then exact.
sub wrong_statuses
{
	return $node->safe_psql('postgres', q{
		SELECT count(*) FROM stacksaga_internal.sagas_by_status()
		  FULL JOIN (SELECT status::text, count(*) AS n FROM stacksaga.saga GROUP BY status) t USING (status)
		 WHERE coalesce(sagas, -1) <> coalesce(n, 0)});
}
my $statuses = q{SELECT count(*) FROM stacksaga.metrics() WHERE name = 'stacksaga_sagas'};
is($node->safe_psql('postgres', $statuses), 0, 'after a crash nobody has counted sagas by status');
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
$node->poll_query_until('postgres', q{SELECT count(*) = 7 FROM stacksaga_internal.sagas_by_status()});
is(wrong_statuses(), 0, 'until a worker has it done');

# While sessions start sagas, a worker runs them and somebody counts again and again.
@sessions = map { $node->background_psql('postgres') } 1 .. 4;
$_->query_safe('SELECT 1') for @sessions;
my ($started, $counts, $changed) = (0, 0, 0);
sub completed { return $node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.saga WHERE status = 'completed'}) }
for (1 .. 20)
{
	$_->{stdin} .= "SELECT count(*) FROM stacksaga.start_saga('answer');\n" x 200 for @sessions;
	$started += 200 * @sessions;
	$_->{run}->pump_nb for @sessions;
	my $before = completed();
	$counts += $node->safe_psql('postgres', 'SELECT stacksaga_internal.count_sagas()') eq 't';
	$changed += completed() > $before;
}
cmp_ok($counts && $changed, '>', 0, 'sagas are counted while they change');
$_->quit for @sessions;
$node->poll_query_until('postgres',
	"SELECT count(*) = 1000 + $started FROM stacksaga.saga WHERE status = 'completed'") or die 'not all end';
is(wrong_statuses(), 0, 'no change is lost or added twice');

# A transaction that is open during a count is added when it commits.
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT count(*) FROM stacksaga.start_saga('answer', run_at => now() + '1 day')});
$node->safe_psql('postgres', 'SELECT stacksaga_internal.count_sagas()');
is(wrong_statuses(), 0, 'what is open is not counted');
$open->query_safe('COMMIT');
is(wrong_statuses(), 0, 'it is when it commits');
$open->quit;

# A server process is killed: the postmaster survives, the memory of the server does not.
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
kill 'KILL', $node->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'});
$node->wait_for_log(qr/all server processes terminated; reinitializing/);
$node->poll_query_until('postgres', 'SELECT true');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $postmaster, 'it is the same postmaster');
$node->poll_query_until('postgres', q{SELECT count(*) = 7 FROM stacksaga_internal.sagas_by_status()});
is(wrong_statuses(), 0, 'sagas are counted again after a process was killed');

# The extension made anew has a table of its own.
$node->safe_psql('other', 'SELECT stacksaga_internal.count_sagas()');
is($node->safe_psql('other', 'SELECT count(*) FROM stacksaga_internal.sagas_by_status()'), 7, 'counted by hand');
$node->safe_psql('other', 'DROP EXTENSION stacksaga CASCADE');
$node->create_extension('other');
is($node->safe_psql('other', 'SELECT count(*) FROM stacksaga_internal.sagas_by_status()'),
	0, 'what was counted in a table that was dropped is not shown');
my $before = value('stacksaga_sagas_started_total');

# A prepared transaction counts when it is prepared.
$node->safe_psql('postgres', q{
	BEGIN; SELECT count(*) FROM stacksaga.start_saga('answer'); PREPARE TRANSACTION 'started'});
is(value('stacksaga_sagas_started_total'), $before + 1, 'a prepared transaction counts');
$node->safe_psql('postgres', q{COMMIT PREPARED 'started'});
is(value('stacksaga_sagas_started_total'), $before + 1, 'once');

# Files that somebody truncates end no process: what they held is lost, and all goes on.
wait_until_works($node, 'postgres', 1);
my $counting = $node->background_psql('postgres');
$counting->query_safe(q{SELECT count(*) FROM stacksaga.start_saga('answer', key => 'before')});
my $completed = q{SELECT status = 'completed' FROM stacksaga.sagas WHERE key = };
$node->poll_query_until('postgres', "$completed 'before'") or die 'the worker does not work';
my @mapped = glob $node->data_dir . '/pg_stat_tmp/stacksaga.*';
cmp_ok(scalar(@mapped), '>=', 2, 'a worker and its database have files');
truncate $_, 0 or die "$_: $!" for @mapped;
is($counting->query_safe(q{SELECT count(*) FROM stacksaga.start_saga('answer', key => 'after')}), '1', 'a session whose file is truncated counts into memory of its own');
ok($node->poll_query_until('postgres', "$completed 'after'"), 'and a worker goes on');
unlike(slurp_file($node->logfile), qr/terminated by signal 7b/, 'no process ends');
$counting->quit;

# Where the file cannot be had nothing is counted, everything else works, and the log says so.
my $file = $node->data_dir . '/pg_stat_tmp/stacksaga.'
  . $node->safe_psql('other', 'SELECT oid FROM pg_database WHERE datname = current_database()') . '.0';
unlink $file;
mkdir $file or die "$file: $!";
define_answer($node, 'other');
is($node->safe_psql('other', q{
	SELECT count(*) FROM stacksaga.start_saga('answer');
	SELECT stacksaga.run_pending();
	SELECT count(*) FROM stacksaga.metrics() WHERE name = 'stacksaga_sagas_started_total'}),
	"1\n1\n0", 'without its file a database works and counts nothing');
$node->wait_for_log(qr/could not open file "pg_stat_tmp\/stacksaga\.\d+\.0": Is a directory/);
pass('and the log says so');

# A database that is dropped leaves no file behind once a worker starts.
rmdir $file;
$node->safe_psql('other', q{SELECT count(*) FROM stacksaga.start_saga('answer')});
ok(-e $file, 'the file is back');
$node->safe_psql('postgres', 'DROP DATABASE other');
$node->restart;
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
wait_until_works($node, 'postgres', 1);
ok(!-e $file, 'and goes when its database is gone');

$node->stop;
done_testing();
