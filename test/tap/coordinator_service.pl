# The daemon as a service, in each role: notifications to a supervisor, every signal, reloading; a dry run.
use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Socket;
use StacksagaCluster;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.register_node('a'), stacksaga.register_node('b')});

my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $file = "$folder/settings.ini";
sub settings
{
	my ($text) = @_;
	unlink $file;
	append_to_file($file, $text);
}

# All notifications so far.
my $received = '';
my $supervisor;
sub receives
{
	my ($pattern, $test) = @_;
	my $select = IO::Select->new($supervisor);
	while ($received !~ $pattern && $select->can_read(60))
	{
		$supervisor->recv(my $message, 4096);
		$received .= "$message\n";
	}
	like($received, $pattern, $test);
	$received = '';
	return;
}

sub wait_for_log
{
	my ($log, $pattern, $test) = @_;
	my $end = time + 60;
	select undef, undef, undef, 0.05 while slurp_file($log) !~ $pattern && time < $end;
	like(slurp_file($log), $pattern, $test);
	return;
}

# Starts a daemon; returns it and the file that its log goes to.
my $started = 0;
sub start_daemon
{
	my ($role, @options) = @_;
	my $log = "$PostgreSQL::Test::Utils::log_path/service_$role" . ++$started . '.log';
	append_to_file($log, '');
	my $daemon = IPC::Run::start(
		[ $program, $role, '--http', '', '-d', $node->connstr('postgres'), @options ],
		'<', '/dev/null', '>', '/dev/null', '2>>', $log);
	return ($daemon, $log);
}

# The status and the state that each role reports.
my @roles = (
	{
		role => 'master', address => "$folder/notify",
		status => qr/^STATUS=serving 1 ring\(s\) of database postgres$/m,
		state => qr{msg=state role=master .*connected=yes(?s:.*)msg="state of ring" ring=default/default}
	},
	{
		role => 'agent', address => "\0stacksaga-$$",
		status => qr{^STATUS=agent one of ring default/default, assigned: nothing$}m,
		state => qr{msg=state role=agent agent=one ring=default/default connected=yes incarnation=[1-9].* draining=no assigned=nothing}
	});
for my $case (@roles)
{
	my ($role, $address) = @$case{qw(role address)};
	socket($supervisor, AF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
	# The length of an abstract name counts, and perl pads it.
	bind($supervisor,
		$address =~ /^\0/ ? pack('S a*', AF_UNIX, $address) : pack_sockaddr_un($address))
	  or die "bind: $!";
	bless $supervisor, 'IO::Socket::UNIX';
	settings("[$role]\nlog-level = \"warn\"\nname = \"one\"\n");
	local $ENV{NOTIFY_SOCKET} = $address =~ s/^\0/@/r;
	local $ENV{WATCHDOG_USEC} = 200000;
	my ($daemon, $log) = start_daemon($role, '-c', $file);
	receives(qr/^READY=1$/m, "$role: it is ready");
	receives($case->{status}, "$role: says what it does");
	receives(qr/^WATCHDOG=1\n(.*\n)*WATCHDOG=1$/m, "$role: and that it lives, again and again");

	unlike(slurp_file($log), qr/level=debug|msg=reloaded/, "$role: its log is quiet");
	settings("[$role]\nlog-level = \"debug\"\nname = \"other\"\n");
	$daemon->signal('HUP');
	receives(qr/^RELOADING=1\nMONOTONIC_USEC=\d+\n(.*\n)*READY=1$/m, "$role: SIGHUP reloads");
	wait_for_log($log, qr/msg=reloaded log_level=debug/, "$role: the level of the log is taken over");
	like(slurp_file($log), qr/msg="changed settings need a restart" settings=name/, "$role: a name is not");

	settings("[$role]\nlog-level = \"loud\"\n");
	$daemon->signal('HUP');
	wait_for_log($log, qr/level=error msg="reload failed.*settings\.ini:2/, "$role: a bad file changes nothing");

	$daemon->signal('USR1');
	wait_for_log($log, $case->{state}, "$role: SIGUSR1 logs the state");

	$daemon->signal('TERM');
	receives(qr/^STOPPING=1$/m, "$role: on SIGTERM it notifies that it stops");
	$daemon->finish;
	is(($daemon->results)[0], 0, "$role: and does");
	like(slurp_file($log), qr/msg=stopped signal=SIGTERM\n\z/, "$role: its log says why");
	close $supervisor;
	unlink $address;

	($daemon, $log) = start_daemon($role, '--name', 'two');
	wait_for_log($log, qr/msg=coordinating/, "$role: started again, without a supervisor");
	$daemon->signal('HUP');
	wait_for_log($log, qr/msg=reloaded/, "$role: SIGHUP without a file does no harm");
	$daemon->signal('INT');
	$daemon->finish;
	is(($daemon->results)[0], 0, "$role: SIGINT ends it");
	like(slurp_file($log), qr/msg=stopped signal=SIGINT\n\z/, "$role: and its log says so");
}

# The first signal lets an agent leave the ring; a second one ends it at once, even if the server does not
# respond.
my ($agent, $agent_log) = start_daemon('agent', '--name', 'one', '--log-level', 'debug');
wait_for_log($agent_log, qr/msg=registered/, 'an agent has registered');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'STOP', $postmaster;
$agent->signal('TERM');
my $end = time + 60;
while (!defined $agent->{KIDS}[0]{RESULT} && time < $end)
{
	select undef, undef, undef, 0.1;
	$agent->signal('TERM');
	$agent->reap_nb;
}
kill 'CONT', $postmaster;
$agent->finish;
is(($agent->results)[0], 0, 'a second signal ends an agent, though the server does not respond');
unlike(slurp_file($agent_log), qr/left the ring|could not leave/, 'and does not wait for an answer');

# A command with --watch goes on until a signal.
for my $signal (qw(TERM INT))
{
	my $out = '';
	my $watch = IPC::Run::start([ $program, 'status', '--watch', '-d', $node->connstr('postgres') ],
		'<', '/dev/null', '>', \$out);
	$watch->pump while $out !~ /Checks/;
	$watch->signal($signal);
	$watch->finish;
	is(($watch->results)[0], 0, "status --watch ends with 0 on SIG$signal");
}

# A dry run prints, and publishes nothing.
my ($out, $err) = ('', '');
my @dry = ($program, 'master', '--dry-run', '-d', $node->connstr('postgres'));
$node->safe_psql('postgres', q{
	SELECT stacksaga.create_ring('default', 'dry');
	SELECT stacksaga.register_node('c', cluster => 'dry'), stacksaga.register_node('d', cluster => 'dry')});
IPC::Run::run([ @dry, '--cluster', 'dry' ], '<', '/dev/null', '>', \$out, '2>', \$err);
is($?, 0, 'a dry run ends well');
like($out, qr{^Ring default/dry, window of \S+: 256 slots of 256 move\nrange_start}, 'it prints the next window');
like($out, qr/ c +\d+$/m, 'with what each node would get');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM stacksaga.token_window JOIN stacksaga.ring USING (ring_id)
		 WHERE cluster = 'dry'}),
	0, 'and publishes nothing');

done_testing();
