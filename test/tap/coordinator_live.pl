# The live run: two masters, three agents and sixteen workers, six of them background workers of the
# server and ten programs of their own, share the rings of two databases, and every second one joins, leaves,
# hangs or dies, while money moves between accounts by sagas. At the end every slot has an owner that lives,
# and the bank's proof holds.
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
my $own_workers = 3;        # of the server, in each database
my $outside_workers = 5;    # programs, for each database
my %agents = (bank_one => [ 'north', 'south' ], bank_two => ['east']);

my $node = StacksagaCluster->new('main');
$node->init(worker_databases => \@banks);
$node->append_conf('postgresql.conf', qq{
stacksaga.workers = $own_workers
stacksaga.coordination = 'coordinator'
stacksaga.poll_interval = '200ms'
deadlock_timeout = '100ms'
# What a client that was killed has left behind is found soon, and so is the end of a recovery.
client_connection_check_interval = '500ms'
recovery_init_sync_method = syncfs
restart_after_crash = on
});
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE coordinator LOGIN; CREATE ROLE worker LOGIN');
for my $bank (@banks)
{
	$node->safe_psql('postgres', "CREATE DATABASE $bank");
	$node->create_extension($bank);
	$node->safe_psql($bank, q{
		SELECT stacksaga.grant_usage('coordinator', 'coordinator');
		SELECT stacksaga.grant_usage('worker', k) FROM (VALUES ('operator'), ('coordinator')) AS v(k);
		SELECT stacksaga.alter_ring('default', 'default', setting, value)
		  FROM (VALUES ('publish_lead', '1 second'), ('window_length', '2 seconds'),
					   ('heartbeat_interval', '300 ms'), ('suspect_after', '1 second'),
					   ('dead_after', '2 seconds'), ('checkpoint_interval', '1 second'))
			   AS s(setting, value)});
	StacksagaBank::open_bank($node, $bank);
}

my $programs = StacksagaPrograms->new($PostgreSQL::Test::Utils::log_path);
sub connection
{
	my ($bank, $role) = @_;
	return ('-d', $node->connstr($bank) . " user=$role");
}
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
	for my $number (1 .. $outside_workers)
	{
		my $name = "worker_${bank}_$number";
		# Started again, it joins under its name, or as another node.
		$programs->add($name, sub {
			my ($starts) = @_;
			return ($program, 'worker', '--name', $starts % 3 == 2 ? "${name}_$starts" : $name,
				'--poll-interval', '0.2', '--http', '', connection($bank, 'worker'));
		});
	}
}

# One process of the server's own workers.
sub own_worker
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

sub signal_own_worker
{
	my ($signal) = @_;
	my $pid = own_worker();
	return defined $pid && kill $signal, $pid;
}

# What happens, how often in thirty seconds, and how. Longer than suspect_after, and often than dead_after.
my $workers = qr/^worker_/;
my $masters = qr/^master_/;
my $agents = qr/^agent_/;
my %faults = (
	'a worker dies' => [ 6, sub { $programs->kill_one(one_of($workers)) } ],
	'a worker leaves' => [ 5, sub { $programs->end_one(one_of($workers)) } ],
	'a worker hangs' => [ 5, sub { $programs->freeze_one(one_of($workers), 1 + rand 3) } ],
	'a worker of the server ends' => [ 2, sub { signal_own_worker('TERM') } ],
	'a worker of the server hangs' => [ 3, sub {
			my $pid = own_worker();
			defined $pid && $programs->freeze_process($pid, 1 + rand 2) } ],
	'a worker of the server dies, and all sessions with it' => [ 1, sub { signal_own_worker('KILL') } ],
	'a master dies' => [ 2, sub { $programs->kill_one(one_of($masters)) } ],
	'a master hangs' => [ 1, sub { $programs->freeze_one(one_of($masters), 1 + rand 3) } ],
	'an agent dies' => [ 2, sub { $programs->kill_one(one_of($agents)) } ],
	'an agent hangs' => [ 2, sub { $programs->freeze_one(one_of($agents), 1 + rand 3) } ],
	'an agent leaves' => [ 1, sub { $programs->end_one(one_of($agents)) } ]);

# All agents and workers of a ring live, and the workers own all of it, each its share.
sub wait_until_dealt
{
	my ($bank, $test) = @_;
	my $workers_here = $own_workers + $outside_workers;
	my $agents_here = @{ $agents{$bank} };
	return ok($node->poll_query_until($bank, qq{
		SELECT count(*) FILTER (WHERE kind = 'worker' AND state = 'active') = $workers_here
		   AND count(*) FILTER (WHERE kind = 'agent' AND state = 'active') = $agents_here
		   AND min(share * 256) FILTER (WHERE kind = 'worker' AND state = 'active') >= 30
		   AND max(share * 256) FILTER (WHERE kind = 'worker' AND state = 'active') <= 34
		   AND sum(share) FILTER (WHERE state = 'active') = 1
		   AND (SELECT count(node) = 256 FROM stacksaga.ring_slots('default', 'default'))
		  FROM stacksaga.nodes}), "$bank: $test");
}

$programs->keep_running;
wait_until_dealt($_, 'all are there, and each owns its share') for @banks;

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
for my $pair ([ 'master_a', 'master_b' ], [ 'master_b', 'master_a' ])
{
	my ($gone, $alone) = @$pair;
	$programs->keep_running;
	$programs->kill_one($gone);
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
	wait_until_dealt($bank, 'every slot has an owner that lives, each its share');
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
	is($own, $own_workers, "$bank: every worker of the server had its part in it");
	cmp_ok($outside, '>=', $seconds, "$bank: and those outside had ($outside attempts)");
}
is(join("\n", $programs->unexpected), '', 'no program ended unless it was made to');
$programs->stop_all;
is(join("\n", $programs->unexpected), '', 'and each ends when it is told to');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|signal 1?[146]:/, 'no process of the server crashed by itself');

$node->stop;
done_testing();
