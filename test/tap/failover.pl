# Streaming replication and promotion under load: workers, a service and the daemon go on with the promoted
# standby. Synchronously, nothing that was answered is lost and nothing is done twice. Asynchronously, the last
# answers may be lost, and what is there is whole: each effect has its marker, each marker its effect, and the
# bank's proof holds. Fencing tokens from after the promotion compare greater than all from before it.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use StacksagaBank;
use StacksagaCluster;
use StacksagaPrograms;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

# What the till does: effect, marker and the answer in one transaction. The ledger has no unique key.
my $pay = q{INSERT INTO ledger
	SELECT idempotency_key, stacksaga.fencing_token(lease)
	  FROM stacksaga.claim_steps('till', 'cashier', 20, '1 second') AS c,
	       LATERAL stacksaga.complete_step(c.saga_id, c.step, c.lease) AS done
	RETURNING idempotency_key, token};
my $order = q{INSERT INTO ordered SELECT saga_id FROM generate_series(1, 5), LATERAL stacksaga.start_saga('order')
	RETURNING saga_id};

# A client that repeats a statement on whichever server accepts writes, and records the rows that it was given:
# these were committed. Its own deadline ends a statement whose server is frozen.
sub client
{
	my ($connection, $file, $statement) = @_;
	return (
		'bash', '-c',
		'while :; do if rows=$(timeout 3 psql -XAtq -v ON_ERROR_STOP=1 -d "$1" -c "$3" 2>/dev/null); then '
		  . '[ -z "$rows" ] || printf "%s\n" "$rows" >>"$2"; fi; done',
		'client', $connection, $file, $statement);
}

sub rows
{
	my ($file) = @_;
	my @rows = -e $file ? grep { /./ } split /\n/, slurp_file($file) : ();
	return @rows;
}

sub wait_for_rows
{
	my ($file, $count, $test) = @_;
	my $end = time + 120;
	select undef, undef, undef, 0.05 while rows($file) < $count && time < $end;
	return cmp_ok(scalar(rows($file)), '>=', $count, $test);
}

# A frozen server does not end by itself, whatever ends the test.
my @stopped;
END { kill 'KILL', @stopped; }

sub family
{
	my ($node) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	return ($postmaster, split ' ', `ps -o pid= --ppid $postmaster`);
}

sub start_pair
{
	my ($mode) = @_;
	my $primary = StacksagaCluster->new("${mode}_one");
	$primary->init(worker_databases => ['postgres', 'shop'], allows_streaming => 1);
	$primary->append_conf('postgresql.conf', "stacksaga.coordination = 'coordinator'\nfsync = on\nrestart_after_crash = off");
	$primary->start;
	$primary->safe_psql('postgres', $_) for 'CREATE DATABASE shop', 'CREATE ROLE coordinator LOGIN';
	for my $database (qw(postgres shop))
	{
		$primary->create_extension($database);
		$primary->safe_psql($database, q{
			SELECT stacksaga.grant_usage('coordinator', 'coordinator');
			SELECT stacksaga.alter_ring('default', 'default', setting, value)
			  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'), ('heartbeat_interval', '300 ms'),
						   ('suspect_after', '2 seconds'), ('dead_after', '4 seconds')) AS s(setting, value)});
	}
	StacksagaBank::open_bank($primary, 'postgres');
	$primary->safe_psql('shop', q{
		CREATE TABLE ledger (idempotency_key text NOT NULL, token text NOT NULL);
		CREATE TABLE ordered (saga_id uuid NOT NULL);
		SELECT stacksaga.define_saga('order', ARRAY[stacksaga.queue_step('pay', 'till', compensable => true)],
			retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '50 milliseconds'))});
	$primary->backup('base');
	my $standby = StacksagaCluster->new("${mode}_two");
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	if ($mode eq 'sync')
	{
		$primary->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = '*'});
		$primary->reload;
		$primary->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'}) or die;
	}
	return ($primary, $standby);
}

# Nothing of the standby's comes from the primary any more.
sub cut_off
{
	my ($standby) = @_;
	$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
	$standby->reload;
	return $standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') || die;
}

for my $mode (qw(sync async))
{
	my ($primary, $standby) = start_pair($mode);
	my $both = sprintf 'host=%s,%s port=%d,%d connect_timeout=2', $primary->host, $standby->host, $primary->port,
	  $standby->port;
	my $logs = $PostgreSQL::Test::Utils::log_path;
	my ($starts, $payments) = map { "$PostgreSQL::Test::Utils::tmp_check/$mode.$_" } qw(starts payments);
	my $programs = StacksagaPrograms->new($logs);
	# target_session_attrs is the daemon's default.
	$programs->add("${mode}_master", sub { ($program, 'master', '--name', 'master', '--http', '',
		map { ('-d', "$both dbname=$_ user=coordinator") } qw(postgres shop)) });
	for my $client ([ 'starter', $starts, $order ], [ 'till', $payments, $pay ])
	{
		my ($name, $file, $statement) = @$client;
		$programs->add("${mode}_$name",
			sub { client("$both dbname=shop target_session_attrs=read-write", $file, $statement) }, may_end => 1);
	}
	$programs->keep_running;

	StacksagaBank::ask($primary, 'postgres', 200, 1000);
	wait_for_rows($payments, 100, "$mode: the service works");
	ok($primary->poll_query_until('postgres', q{SELECT count(*) >= 2 FROM stacksaga.token_window}), "$mode: windows are published");
	ok($primary->poll_query_until('postgres', q{SELECT count(*) >= 50 FROM bank.journal}), "$mode: workers work");

	# A step that is claimed twice before, and in the asynchronous case once more when the standby is cut off.
	my $claim = q{SELECT stacksaga.fencing_token(lease) FROM stacksaga.claim_steps('slow', 'one', 1, '1 millisecond')};
	$primary->safe_psql('shop', q{
		SELECT stacksaga.define_saga('slow', ARRAY[stacksaga.queue_step('only', 'slow', compensable => true)],
			retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '1 millisecond'));
		SELECT stacksaga.start_saga('slow')});
	my @tokens;
	my $claim_again = sub {
		my ($node) = @_;
		my $end = time + 120;
		my $token = '';
		while ($token eq '' && time < $end) { $token = $node->safe_psql('shop', $claim) }
		push @tokens, $token;
	};
	$claim_again->($primary);
	my $lost_from = rows($starts);
	if ($mode eq 'async')
	{
		$primary->wait_for_catchup($standby);
		cut_off($standby);
		$claim_again->($primary) for 1 .. 3;
		StacksagaBank::ask($primary, 'postgres', 100, 5000);
		wait_for_rows($starts, rows($starts) + 50, 'async: sagas are started that the standby lacks');
	}

	# The synchronous one's primary is killed; the asynchronous one's is frozen: it accepts connections and never
	# answers.
	@stopped = family($primary);
	kill $mode eq 'sync' ? 'KILL' : 'STOP', @stopped;
	my $before = rows($payments);
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->promote;
	my $promoted = $standby->safe_psql('postgres', 'SELECT stacksaga.clock_now()');

	for my $database (qw(postgres shop))
	{
		ok($standby->poll_query_until($database, qq{
				SELECT count(*) >= 3 FROM stacksaga.token_window WHERE published_at > '$promoted' AND publisher = 'master'}),
			"$mode: the daemon follows and publishes windows of $database");
		my $delay = $standby->safe_psql($database, qq{
			SELECT extract(epoch FROM min(published_at) - '$promoted') FROM stacksaga.token_window WHERE published_at > '$promoted'});
		# The deadline of a statement is 5 s, connect_timeout 2 s, the pause before it at most 5 s, a window a second.
		cmp_ok($delay, '<', 20, "$mode: within its bounded time ($delay s)");
	}
	wait_for_rows($payments, $before + 50, "$mode: the service goes on");
	StacksagaBank::ask($standby, 'postgres', 100, 5000);
	$claim_again->($standby);

	$programs->kill_one("${mode}_starter");
	ok($standby->poll_query_until('shop', q{SELECT NOT EXISTS (SELECT FROM stacksaga.sagas
			WHERE saga = 'order' AND status NOT IN ('completed', 'failed'))}), "$mode: all orders end");
	ok(StacksagaBank::wait_until_settled($standby, 'postgres'), "$mode: all transfers end");
	$programs->kill_one("${mode}_till");

	# Tokens, of one step and of all.
	my @sorted = sort @tokens;
	is($sorted[-1], $tokens[-1], "$mode: the step's token from after the promotion is the greatest: @tokens");
	cmp_ok(substr($tokens[-1], 9), 'lt', substr($tokens[-2], 9), 'async: though its attempt is not') if $mode eq 'async';
	my @paid = map { [ split /\|/ ] } rows($payments);
	my @old = sort map { $_->[1] } @paid[ 0 .. $before - 1 ];
	my @new = sort map { $_->[1] } grep { $_->[1] =~ /^00000002-/ } @paid;
	cmp_ok(scalar(@new), '>=', 50, "$mode: tokens of the new timeline");
	cmp_ok((grep { $_ !~ /^00000002-/ } @old)[-1], 'lt', $new[0], "$mode: all are greater than those of the old one");

	# Effects and markers.
	is( $standby->safe_psql('shop', q{
			SELECT count(*) FROM ledger l FULL JOIN (SELECT format('%s:%s:%s', e.saga_id, e.step_no, e.direction) AS key
				FROM stacksaga.effect e JOIN stacksaga.sagas s USING (saga_id) WHERE s.saga = 'order') AS m
				ON m.key = l.idempotency_key WHERE m.key IS NULL OR l.idempotency_key IS NULL}),
		0, "$mode: no effect without its marker, no marker without its effect");
	is($standby->safe_psql('shop', 'SELECT count(*) - count(DISTINCT idempotency_key) FROM ledger'),
		0, "$mode: no step was done twice");
	is($standby->safe_psql('shop', q{SELECT count(*) FROM ordered o FULL JOIN
			(SELECT saga_id FROM stacksaga.sagas WHERE saga = 'order') s USING (saga_id) WHERE o.saga_id IS NULL OR s.saga_id IS NULL}),
		0, "$mode: an order has its saga");
	my %known = map { $_ => 1 } split /\n/, $standby->safe_psql('shop', 'SELECT saga_id FROM ordered');
	my %booked = map { $_ => 1 } split /\n/, $standby->safe_psql('shop', 'SELECT idempotency_key FROM ledger');
	my $lost = grep { !$known{$_} } rows($starts);
	my $unpaid = grep { !$booked{ $_->[0] } } @paid;
	if ($mode eq 'sync')
	{
		is($lost, 0, 'sync: no saga whose start was answered is lost');
		is($unpaid, 0, 'sync: no effect that was answered is lost');
	}
	else
	{
		cmp_ok($lost, '>', 0, 'async: the last starts were answered and are lost');
		is((grep { !$known{$_} } (rows($starts))[ 0 .. $lost_from - 1 ]), 0, 'async: none from before the cut');
	}
	StacksagaBank::prove($standby, 'postgres');
	$programs->stop_all;
	is_deeply([ $programs->unexpected ], [], "$mode: the daemon ran all the time");
	kill 'KILL', splice @stopped;
	$primary->{_pid} = undef;
	$standby->stop;
}
done_testing();
