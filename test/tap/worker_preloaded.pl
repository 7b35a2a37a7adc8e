# Preloaded, the launcher keeps the workers of the listed databases running, whatever ends them.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('preloaded');
$node->init(worker_databases => [ 'postgres', 'later' ]);
# The module of the tests turns it off.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->start;

# Before the extension is there, and before the database is.
wait_for_workers($node, 'postgres', 1);
$node->wait_for_log(qr/lists "later", which does not exist/);
$node->wait_for_log(qr/database "postgres" has no extension "stacksaga"/);
$node->create_extension('postgres');
define_answer($node, 'postgres');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a worker takes up its work');

$node->safe_psql('postgres', 'CREATE DATABASE later');
$node->create_extension('later');
define_answer($node, 'later');
is(run_saga($node, 'later', 'answer'), 'completed', 'a listed database is served once it is there');
is(log_count($node, qr/lists "later", which does not exist/),
	1, 'that it was missing was logged once');

# Ended from outside.
my @pids = worker_pids($node, 'postgres');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[0])");
wait_for_other_workers($node, 'postgres', @pids);
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a terminated worker comes back');

my $launcher =
  $node->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'stacksaga launcher'});
@pids = worker_pids($node, 'postgres');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
$node->poll_query_until('postgres', qq{
	SELECT count(*) = 1 AND bool_and(pid <> $launcher) FROM pg_stat_activity
	 WHERE backend_type = 'stacksaga launcher'});
is_deeply([ worker_pids($node, 'postgres') ],
	\@pids, 'the workers do not depend on the launcher, nor does a new one start them twice');

# A worker that is cancelled goes on.
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pids[0])");
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a cancelled worker goes on');
is_deeply([ worker_pids($node, 'postgres') ], \@pids, 'as the same process');

# The settings, by a reload.
$node->append_conf('postgresql.conf', 'stacksaga.workers = 3');
$node->reload;
wait_until_works($node, 'postgres', 3);
wait_until_works($node, 'later', 3);
$node->poll_query_until('postgres', q{
	SELECT count(*) = 256 AND count(DISTINCT owner) = 3 AND max(share) - min(share) <= 1
	  FROM (SELECT owner, count(*) OVER (PARTITION BY owner) AS share
	          FROM stacksaga.slot
	         WHERE owner IN (SELECT n.incarnation FROM stacksaga.node n
	                           JOIN stacksaga.worker_stats w USING (pid))) AS s});
pass('three workers share the ring');

# More than the server has room for.
$node->append_conf('postgresql.conf', 'stacksaga.workers = 60');
$node->reload;
$node->wait_for_log(qr/no background worker slot is free for a worker in database "later"/);
is(run_saga($node, 'postgres', 'answer'), 'completed', 'as many workers as there is room for work');

$node->append_conf('postgresql.conf',
	"stacksaga.workers = 1\nstacksaga.databases = 'postgres'");
$node->reload;
wait_for_workers($node, 'postgres', 1);
wait_for_workers($node, 'later', 0);
pass('workers too many, and those of a database that is not listed any more, end');
$node->poll_query_until('postgres', q{
	SELECT count(*) = 256 FROM stacksaga.slot
	 WHERE owner = (SELECT n.incarnation FROM stacksaga.node n
	                  JOIN stacksaga.worker_stats w USING (pid))});
pass('the one that stays takes over what they owned');

is(log_count($node, qr/no background worker slot is free for a worker in database "later"/),
	1, 'that there was no room was logged once');

# A crash of the server: of all its children, then of all of it.
@pids = worker_pids($node, 'postgres');
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
kill 'KILL', $pids[0];
$node->wait_for_log(qr/all server processes terminated; reinitializing/);
$node->poll_query_until('postgres', 'SELECT true');
wait_for_other_workers($node, 'postgres', @pids);
is(run_saga($node, 'postgres', 'answer'), 'completed', 'a killed worker comes back with the server');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'),
	$postmaster, 'which is the same server');

my $id = $node->safe_psql('postgres',
	q{SELECT saga_id FROM stacksaga.start_saga('answer', run_at => stacksaga.clock_now() + '1 hour')});
$node->stop('immediate');
$node->append_conf('postgresql.conf', "stacksaga.clock_offset = '2 hours'");
$node->start;
is($node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '120 seconds')"),
	'completed', 'after a crash and a restart the work that fell due is done');

$node->stop;
done_testing();
