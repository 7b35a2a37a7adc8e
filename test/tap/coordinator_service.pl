# The daemon's manners: what a supervisor is told, signals, reloading, a dry run.
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

# Everything that a supervisor was told so far.
my $told = '';
my $supervisor;
sub is_told
{
	my ($pattern, $test) = @_;
	my $select = IO::Select->new($supervisor);
	while ($told !~ $pattern && $select->can_read(60))
	{
		$supervisor->recv(my $message, 4096);
		$told .= "$message\n";
	}
	like($told, $pattern, $test);
	$told = '';
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

for my $address ("$folder/notify", "\0stacksaga-$$")
{
	my $kind = $address =~ /^\0/ ? 'abstract' : 'file';
	socket($supervisor, AF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
	# The length of an abstract name counts, and perl pads it.
	bind($supervisor, $kind eq 'file' ? pack_sockaddr_un($address) : pack('S a*', AF_UNIX, $address))
	  or die "bind: $!";
	bless $supervisor, 'IO::Socket::UNIX';
	my $log = "$PostgreSQL::Test::Utils::log_path/service_$kind.log";
	append_to_file($log, '');
	settings("[master]\nlog-level = \"warn\"\n");
	local $ENV{NOTIFY_SOCKET} = $address =~ s/^\0/@/r;
	local $ENV{WATCHDOG_USEC} = 200000;
	my $master = IPC::Run::start(
		[ $program, 'master', '-c', $file, '--http', '', '-d', $node->connstr('postgres') ],
		'<', '/dev/null', '>', '/dev/null', '2>>', $log);
	is_told(qr/^READY=1$/m, "$kind socket: it is ready");
	is_told(qr/^STATUS=serving 1 ring\(s\) of database postgres$/m, 'says what it does');
	is_told(qr/^WATCHDOG=1\n(.*\n)*WATCHDOG=1$/m, 'and that it lives, again and again');

	unlike(slurp_file($log), qr/level=debug|msg=reloaded/, 'its log is quiet');
	settings("[master]\nlog-level = \"debug\"\nname = \"other\"\n");
	$master->signal('HUP');
	is_told(qr/^RELOADING=1\nMONOTONIC_USEC=\d+\n(.*\n)*READY=1$/m, 'SIGHUP reloads');
	wait_for_log($log, qr/msg=reloaded log_level=debug/, 'the level of the log is taken over');
	like(slurp_file($log), qr/msg="settings that need a restart" settings=name/, 'a name is not');

	settings("[master]\nlog-level = \"loud\"\n");
	$master->signal('HUP');
	wait_for_log($log, qr/level=error msg="not reloaded.*settings\.ini:2/, 'a bad file changes nothing');

	$master->signal('USR1');
	wait_for_log($log, qr/msg=state role=master .*connected=yes/, 'SIGUSR1 logs the state');
	wait_for_log($log, qr{msg="state of ring" ring=default/default}, 'of each ring too');

	$master->signal('TERM');
	is_told(qr/^STOPPING=1$/m, 'it says that it stops');
	$master->finish;
	is(($master->results)[0], 0, 'and does');
	close $supervisor;
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
