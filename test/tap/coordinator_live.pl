# The live run: two masters, three agents and twelve workers of the server share the rings of two databases.
# Four sessions of pgbench call run_pending() beside them. Every second one of them joins, leaves, hangs or dies,
# while money moves between accounts by sagas. At the end every slot has an owner that lives, and the bank's
# proof holds.
#
# STACKSAGA_LIVE_SECONDS says how long it goes on (30), STACKSAGA_LIVE_SEED repeats the order of the faults.
use strict;
use warnings;

use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use StacksagaBank;
use StacksagaCluster;
use StacksagaPrograms;
use Test::More;
use Time::HiRes qw(time);

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $seconds = $ENV{STACKSAGA_LIVE_SECONDS} // 30;
my $seed = $ENV{STACKSAGA_LIVE_SEED} // int(rand(1 << 30));
srand $seed;
note "STACKSAGA_LIVE_SEED=$seed, $seconds seconds";

my @banks = qw(bank_one bank_two);
my $workers_here = 6;     # in each database
my $sessions_here = 2;    # that call run_pending(), in each database
my %agents = (bank_one => [ 'north', 'south' ], bank_two => ['east']);

my $node = StacksagaCluster->new('main');
$node->init(worker_databases => \@banks);
$node->append_conf('postgresql.conf', qq{
max_worker_processes = 20
stacksaga.workers = $workers_here
stacksaga.coordination = 'coordinator'
stacksaga.poll_interval = '200ms'
deadlock_timeout = '100ms'
# What a client that was killed has left behind is found soon, and so is the end of a recovery.
client_connection_check_interval = '500ms'
recovery_init_sync_method = syncfs
restart_after_crash = on
});
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE coordinator LOGIN; CREATE ROLE operator LOGIN');
for my $bank (@banks)
{
	$node->safe_psql('postgres', "CREATE DATABASE $bank");
	$node->create_extension($bank);
	$node->safe_psql($bank, q{
		SELECT stacksaga.grant_usage('coordinator', 'coordinator');
		SELECT stacksaga.grant_usage('operator', 'operator');
		SELECT stacksaga.alter_ring('default', 'default', setting, value)
		  FROM (VALUES ('publish_lead', '1 second'), ('window_length', '2 seconds'),
					   ('heartbeat_interval', '300 ms'), ('suspect_after', '1 second'),
					   ('dead_after', '2 seconds'), ('checkpoint_interval', '1 second'))
			   AS s(setting, value)});
	StacksagaBank::open_bank($node, $bank);
}

my $programs = StacksagaPrograms->new;
sub connection
{
	my ($bank, $role) = @_;
	return ('-d', $node->connstr($bank) . " user=$role");
}
# A session that is frozen between its statements keeps the sagas of its transaction locked.
my $run_pending = "$PostgreSQL::Test::Utils::tmp_check/run_pending.sql";
append_to_file($run_pending, "BEGIN;\nSELECT stacksaga.run_pending(20);\nCOMMIT;\n");
for my $master (qw(master_a master_b))
{
	$programs->add($master, sub {
		return ($program, 'master', '--name', $master, '--http', '', map { connection($_, 'coordinator') } @banks);
	});
}
for my $bank (@banks)
{
	for my $agent (@{ $agents{$bank} })
	{
		$programs->add("agent_$agent", sub {
			return ($program, 'agent', '--name', $agent, '--http', '', connection($bank, 'coordinator'));
		});
	}
	for my $number (1 .. $sessions_here)
	{
		# It ends with its connection when the server crashes, and is started again.
		$programs->add("session_${bank}_$number", sub {
			return ('pgbench', '-n', '-R', 20, '-T', 3600, '-f', $run_pending, $node->connstr($bank) . ' user=operator');
		}, may_end => 1);
	}
}

# The process of one worker.
sub one_worker
{
	my (undef, $pids) = $node->psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'");
	my @pids = split /\n/, $pids // '';
	return @pids ? $pids[ rand @pids ] : undef;
}

sub one_of
{
	my ($pattern) = @_;
	my @names = $programs->names($pattern);
	return $names[ rand @names ];
}

sub signal_worker
{
	my ($signal) = @_;
	my $pid = one_worker();
	return defined $pid && kill $signal, $pid;
}

# Workers join, or leave for good: false while the server is away.
sub set_workers
{
	my ($count) = @_;
	my ($failed) = $node->psql('postgres', "ALTER SYSTEM SET stacksaga.workers = $count");
	return !$failed && !$node->psql('postgres', 'SELECT pg_reload_conf()');
}

# What happens, how often in thirty seconds, and how. Longer than suspect_after, and often than dead_after.
my $sessions = qr/^session_/;
my $masters = qr/^master_/;
my $agents = qr/^agent_/;
my %faults = (
	'a session dies' => [ 3, sub { $programs->kill_one(one_of($sessions)) } ],
	'a session hangs' => [ 3, sub { $programs->freeze_one(one_of($sessions), 1 + rand 3) } ],
	'a worker ends' => [ 5, sub { signal_worker('TERM') } ],
	'a worker hangs' => [ 6, sub {
			my $pid = one_worker();
			defined $pid && $programs->freeze_process($pid, 1 + rand 2) } ],
	'a worker dies, and all sessions with it' => [ 1, sub { signal_worker('KILL') } ],
	'workers join' => [ 2, sub { set_workers($workers_here + 1) } ],
	'workers leave' => [ 2, sub { set_workers($workers_here - 1) } ],
	'a master dies' => [ 2, sub { $programs->kill_one(one_of($masters)) } ],
	'a master hangs' => [ 1, sub { $programs->freeze_one(one_of($masters), 1 + rand 3) } ],
	'an agent dies' => [ 2, sub { $programs->kill_one(one_of($agents)) } ],
	'an agent hangs' => [ 2, sub { $programs->freeze_one(one_of($agents), 1 + rand 3) } ],
	'an agent leaves' => [ 1, sub { $programs->end_one(one_of($agents)) } ]);

# All agents and workers of a ring live, and the workers own all of it, each its share.
sub wait_until_assigned
{
	my ($bank, $test) = @_;
	my $agents_here = @{ $agents{$bank} };
	return ok($node->poll_query_until($bank, qq{
		SELECT count(*) FILTER (WHERE kind = 'worker' AND state = 'active') = $workers_here
		   AND count(*) FILTER (WHERE kind = 'agent' AND state = 'active') = $agents_here
		   AND min(share * 256) FILTER (WHERE kind = 'worker' AND state = 'active') >= 41
		   AND max(share * 256) FILTER (WHERE kind = 'worker' AND state = 'active') <= 44
		   AND sum(share) FILTER (WHERE state = 'active') = 1
		   AND (SELECT count(node) = 256 FROM stacksaga.ring_slots('default', 'default'))
		  FROM stacksaga.nodes}), "$bank: $test");
}

$programs->keep_running;
wait_until_assigned($_, 'all are there, and each owns its share') for @banks;

my %done;
my @plan;
my $begun = time;
for (my $second = 0; $second < $seconds; $second = int(time - $begun))
{
	$programs->keep_running;
	StacksagaBank::ask($node, $_, 100, 400) for @banks;
	@plan = shuffle(map { ($_) x $faults{$_}[0] } sort keys %faults) unless @plan;
	my $fault = shift @plan;
	$done{$fault}++ if $faults{$fault}[1]->();
	StacksagaPrograms::pause($begun + $second + 1 - time);
}
note "$done{$_} times: $_" for sort keys %done;
cmp_ok(scalar(keys %done), '>=', $seconds >= 30 ? 9 : 1, 'what should happen did');

# Each of the masters goes on alone, and nothing that hung was lost.
$programs->wait_for_thaw;
set_workers($workers_here);
for my $pair ([ 'master_a', 'master_b' ], [ 'master_b', 'master_a' ])
{
	my ($killed, $alone) = @$pair;
	$programs->keep_running;
	$programs->kill_one($killed);
	my $of_alone = "SELECT count(*) FROM stacksaga.token_window WHERE publisher = '$alone' AND agent = ''";
	for my $bank (@banks)
	{
		my $before = $node->safe_psql($bank, $of_alone);
		ok($node->poll_query_until($bank, "SELECT ($of_alone) > $before"), "$bank: $alone publishes alone");
	}
}
$programs->keep_running;

for my $bank (@banks)
{
	ok(StacksagaBank::wait_until_settled($node, $bank), "$bank: every transfer ends");
	wait_until_assigned($bank, 'every slot has an owner that lives, each its share');
}
for my $bank (@banks)
{
	StacksagaBank::prove($node, $bank);
	is($node->safe_psql($bank, q{
			SELECT count(*) FROM stacksaga.token_window a JOIN stacksaga.token_window b
				ON b.ring_id = a.ring_id AND b.window_start > a.window_start AND b.epoch <= a.epoch
			 WHERE a.agent = '' AND b.agent = ''}), 0, "$bank: epochs rise from window to window");
	my ($transfers, $own, $outside) = split /\|/, $node->safe_psql($bank, q{
		SELECT (SELECT count(*) FROM bank.request),
			   count(DISTINCT worker) FILTER (WHERE worker <> 'run_pending'),
			   count(*) FILTER (WHERE worker = 'run_pending') FROM stacksaga.saga_history});
	cmp_ok($transfers, '>=', 5 * $seconds, "$bank: there was load ($transfers transfers)");
	cmp_ok($own, '>=', $workers_here, "$bank: every worker had its part in it");
	cmp_ok($outside, '>=', $seconds, "$bank: and the sessions had ($outside attempts)");
}
is(join("\n", $programs->unexpected), '', 'no program ended unless it was made to');
$programs->stop_all;
is(join("\n", $programs->unexpected), '', 'and each ends on its signal');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|signal 1?[146]:/, 'no process of the server crashed by itself');

$node->stop;
done_testing();
