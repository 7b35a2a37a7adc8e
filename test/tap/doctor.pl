# doctor() on servers with a problem each, and the fix that it suggests.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('doctor');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nwal_level = replica\n"
	  . "fsync = on\nfull_page_writes = on\n");
$node->start;
$node->create_extension('postgres');

# The rows of a check as "severity|detail|fix" lines; the clock of the session is moved first.
sub found
{
	my ($check, $offset, $on) = @_;
	return ($on // $node)->safe_psql('postgres', sprintf(
		q{SET stacksaga.clock_offset = '%s';
		  SELECT severity, detail, fix FROM stacksaga.doctor() WHERE check_name = '%s'},
		$offset // '0', $check));
}

sub set_and_restart
{
	my ($settings) = @_;
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
}

# ------------------------------------------------------------------------ workers and preloading

like(found('preload'), qr/^warning\|stacksaga is not preloaded.*SET shared_preload_libraries = 'stacksaga';/,
	'a server that does not preload gets the statement that makes it');
my ($severity, $detail, $fix) = split /\|/, found('workers');
is("$severity $detail", 'error 0 of 1 workers run for this database', 'no worker is an error');
$node->safe_psql('postgres', $fix);
wait_until_works($node, 'postgres', 1);
is(found('workers'), '', 'its fix starts them');

# ------------------------------------------------------------------------ queues

# Who waits for steps of a queue that a definition names is none of its problems.
$node->safe_psql('postgres', q{SELECT stacksaga.define_saga('doctor', ARRAY[stacksaga.queue_step('q', 'payments', compensable => true,
	fallback => 'payments later')])});
my %waiter = map { $_ => $node->background_psql('postgres', on_error_stop => 0) } 'payments', 'payments later', 'paymetns';
foreach my $queue (sort keys %waiter)
{
	$waiter{$queue}->query_safe("SET application_name = 'waits for $queue'");
	$waiter{$queue}->{stdin} .= "CALL stacksaga.wait_for_steps('$queue', '1 minute');\n";
	$waiter{$queue}->{run}->pump_nb;
	$node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'userlock' AND a.application_name = 'waits for $queue'});
}
($severity, $detail, $fix) = split /\|/, found('queues');
like("$severity $detail", qr/^warning process \d+ \(waits for paymetns, role "\w+"\) waits for steps of a queue that no definition names$/,
	'who waits for steps of a misspelt queue, and nobody else, is told');
like($node->safe_psql('postgres', $fix), qr/CALL stacksaga\.wait_for_steps\('paymetns'/, 'its fix shows the statement');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'waits for %'});
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'waits for %'});
is(found('queues'), '', 'which ends with its session');
$_->{run}->finish for values %waiter;
my $claimer = $node->background_psql('postgres');
$claimer->query_safe(qq{SET application_name = 'claimer'; SELECT stacksaga.claim_steps(q, 'w') FROM
	unnest(ARRAY['payments', 'payments later', 'paymetns', 'paymetns']) AS q});
($severity, $detail, $fix) = split /\|/, found('queues');
like("$severity $detail", qr/^warning process \d+ \(claimer, role "\w+"\) asks for steps of a queue that no definition names$/,
	'who claims in vain from a misspelt queue is told, too');
$claimer->query_safe(q{SELECT stacksaga.define_saga('misspelt', ARRAY[stacksaga.queue_step('q', 'paymetns', compensable => true)])});
is(found('queues'), '', 'until a definition names it');
$claimer->quit;

# ------------------------------------------------------------------------ transactions

# Lines of other processes are left out: for a clock that is eleven minutes ahead each transaction that
# is open at that moment is long, also one of the worker or of autovacuum.
sub found_sleeper
{
	return join "\n", grep { /sleeper/ } split /\n/, found('long_transaction', @_);
}

my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; SET application_name = sleeper; SELECT pg_current_xact_id()');
is(found_sleeper(), '', 'a transaction may take a while');
like(found_sleeper('11 minutes'),
	qr/^warning\|process \d+ \(sleeper, role "\w+"\) has been in a transaction for 00:1\d.*pg_terminate_backend/,
	'but not ten minutes');
(undef, undef, $fix) = split /\|/, found_sleeper('11 minutes');
$node->safe_psql('postgres', $fix);
$node->poll_query_until('postgres',
	q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'sleeper'});
is(found_sleeper('11 minutes'), '', 'its fix ends it');
$session->{run}->finish;

$node->safe_psql('postgres', q{BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'it''s held'});
is(found('prepared_transaction'), '', 'a transaction may be prepared for a while');
like(found('prepared_transaction', '6 minutes'),
	qr/^warning\|transaction 'it''s held' has been prepared for 00:0[67]/, 'but not five minutes');
(undef, undef, $fix) = split /\|/, found('prepared_transaction', '6 minutes');
$node->safe_psql('postgres', $fix);
is(found('prepared_transaction', '6 minutes'), '', 'its fix commits it');

# ------------------------------------------------------------------------ databases

set_and_restart("shared_preload_libraries = 'auto_explain, stacksaga'\n"
	  . qq{stacksaga.databases = 'template1, "Not, ""There"'\n});
is(found('preload'), '', 'preloaded among others');
my $found = found('databases');
like($found, qr/names database "Not, "There", which does not exist\|CREATE DATABASE "Not, ""There"/,
	'a listed database that is absent');
like($found, qr/does not name database "postgres"/, 'a database that is not listed');
($fix) = $found =~ /does not name database "postgres".*\|(.*)$/m;
$node->safe_psql('postgres', $_) for split(/\n/, $fix), 'CREATE DATABASE "Not, ""There"';
$node->reload;
$node->poll_query_until('postgres', q{SELECT NOT EXISTS (
	SELECT FROM stacksaga.doctor() WHERE check_name = 'databases')});
pass('the fixes work for both');
set_and_restart("stacksaga.workers = 6\n");
like(found('databases'), qr/has 16 background worker slots, and stacksaga alone wants 22\|.*max_worker_processes = 30/,
	'more workers than the server has room for');
$node->poll_query_until('postgres', q{
	SELECT count(*) > 0 FROM pg_stat_activity
	 WHERE backend_type = 'stacksaga worker' AND datname = current_database()});
like(found('workers'), qr/^warning\|\d of 6 workers run/, 'fewer than there should be');

# ------------------------------------------------------------------------ settings

set_and_restart("fsync = off\nfull_page_writes = off\nautovacuum = off\nwal_level = minimal\n"
	  . "max_wal_senders = 0\nstacksaga.clock_offset = '1 hour'\nstacksaga.workers = 0\n"
	  . "stacksaga.coordination = coordinator\n");
like(found($_), qr/^error\|$_ is off: .*\|ALTER SYSTEM SET $_ = 'on'; -- and reload the server$/, "$_ is off")
  for qw(fsync full_page_writes autovacuum);
like(found('wal_level'), qr/^warning\|wal_level is minimal.*'replica'; -- and restart the server$/,
	'wal_level is minimal');
like($node->safe_psql('postgres',
		q{SELECT detail, fix FROM stacksaga.doctor() WHERE check_name = 'clock_offset'}),
	qr/^stacksaga.clock_offset is 1 hour.*\|ALTER SYSTEM RESET/, 'a clock that is off for all');
like(found('workers'), qr/^warning\|stacksaga.workers is 0/, 'no workers are wanted');
$node->safe_psql('postgres', 'DELETE FROM stacksaga.node');
like(found('windows'), qr/^warning\|no window of ring \(default, default\) is open.*worker_ensure.*without nodes/,
	'no coordinator can assign a ring without nodes');
my $service = $node->safe_psql('postgres',
	q{SET stacksaga.clock_offset = 0; SELECT stacksaga.register_node('service')});
like(found('windows'), qr/Start stacksaga-coordinator/, 'none assigns the ring');
like(found('coverage'), qr/^warning\|.*for 256 of its 256 slots.*Start stacksaga-coordinator master; or, without one, set/, 'so nobody owns a slot');
$node->safe_psql('postgres', q{
	SET stacksaga.clock_offset = 0;
	INSERT INTO stacksaga.token_window
	SELECT ring_id, stacksaga.clock_now() + '1 minute', '', stacksaga.clock_now() + '2 minutes', 1, now(), 'c'
	  FROM stacksaga.ring});
is(found('windows'), '', 'a coordinator that has published the next window runs');
like(found('coverage'), qr/Wait for the next window/, 'and assigns the slots');
$node->safe_psql('postgres',
	qq{SELECT stacksaga.leave_ring('service', $service); DELETE FROM stacksaga.token_window});
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET stacksaga.clock_offset = 60');
like($node->safe_psql('postgres',
		q{SELECT fix FROM stacksaga.doctor() WHERE check_name = 'clock_offset'}),
	qr/^ALTER DATABASE postgres RESET/, 'a clock that is off in one database');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET stacksaga.clock_offset');

# ------------------------------------------------------------------------ standby

set_and_restart("wal_level = replica\nmax_wal_senders = 5\nstacksaga.clock_offset = 0\n"
	  . "autovacuum = on\nstacksaga.coordination = standalone\nstacksaga.workers = 1\n");
$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('standby')});
$node->backup('backup');
my $standby = StacksagaCluster->new('doctor_standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf',
	"primary_slot_name = 'standby'\nhot_standby_feedback = on\nwal_receiver_status_interval = 1\n");
$standby->start;
like(found('standby', undef, $standby), qr/^info\|this server is a standby/, 'a standby says so');
is(found('workers', undef, $standby), '', 'and is not asked for workers');
ok($standby->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.metrics()') > 0,
	'it has metrics as well');
is($standby->safe_psql('postgres', q{SELECT stacksaga.status() ->> 'is_standby'}),
	'true', 'and a status');
$node->poll_query_until('postgres', 'SELECT xmin IS NOT NULL FROM pg_replication_slots');
$standby->stop;
$node->poll_query_until('postgres', 'SELECT NOT active FROM pg_replication_slots');
is(found('replication_slot'), '', 'a standby may be away for a while');
$node->safe_psql('postgres', q{
	CREATE TEMPORARY TABLE burnt ();
	DO $$
	BEGIN
	    FOR i IN 1..100001 LOOP
	        BEGIN
	            INSERT INTO burnt DEFAULT VALUES;
	        EXCEPTION WHEN division_by_zero THEN NULL;
	        END;
	    END LOOP;
	END
	$$});
like(found('replication_slot'), qr/^warning\|replication slot 'standby' is not in use and holds vacuum back by \d+ transactions\|SELECT pg_drop_replication_slot\('standby'\)/,
	'but not for a hundred thousand transactions');
(undef, undef, $fix) = split /\|/, found('replication_slot');
$node->safe_psql('postgres', $fix);
is(found('replication_slot'), '', 'its fix drops it');

$node->stop;
done_testing();
