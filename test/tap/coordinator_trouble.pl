# Errors in the daemon's environment: an extension of another version, a pooler, a database that starts,
# roles without privileges, an unexpected server error, outputs that cannot be written. The daemon prints a
# hint, ends with the right code, and changes nothing.
use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;
my ($pooler) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';

my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "wal_level = replica\n"); # for the recovery at the end
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	-- A node that stays active without a heartbeat for as long as this test takes.
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
	SELECT stacksaga.register_node('a');
	CREATE ROLE coordinator LOGIN;
	SELECT stacksaga.grant_usage('coordinator', k)
	  FROM (VALUES ('coordinator'), ('operator'), ('monitor')) AS v(k)});
my $superuser = $node->connstr('postgres');

# All rows of the extension, and what any role or database sets.
sub everything
{
	my @tables = split /\n/, $node->safe_psql('postgres', q{
		SELECT oid::regclass FROM pg_class WHERE relnamespace = 'stacksaga'::regnamespace AND relkind = 'r'});
	my $rows = join ' UNION ALL ', map { "SELECT '$_', r::text FROM $_ AS r" } @tables;
	return $node->safe_psql('postgres', "
		SELECT md5(string_agg(name || row, '' ORDER BY name, row)), (SELECT count(*) FROM pg_db_role_setting)
		  FROM ($rows) AS all_rows (name, row)");
}

sub run_daemon
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ $program, @arguments ], '<', '/dev/null', '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

# A command that ends with a code and says something, and leaves everything as it was.
sub ends_with
{
	my ($code, $pattern, $test, @arguments) = @_;
	my $before = everything();
	my ($got, undef, $err) = run_daemon(@arguments);
	is($got, $code, "$test: exit code $code");
	like($err, $pattern, "$test: says so");
	return is(everything(), $before, "$test: nothing is changed");
}

my @no_http = ('--http', '');
my %command = (
	master => [ 'master', '--once' ], agent => [ 'agent', '--name', 'north', @no_http ],
	status => ['status'], ring => ['ring'], locate => [ 'locate', 'k' ],
	doctor => ['doctor'], 'check-config' => ['check-config']);

# Versions of the extension that this daemon does not know.
my $ours = $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'stacksaga'});
for my $version ('0.9', '99.0')
{
	$node->safe_psql('postgres',
		"UPDATE pg_extension SET extversion = '$version' WHERE extname = 'stacksaga'");
	ends_with(78, qr/has version \Q$version\E.*ALTER EXTENSION stacksaga UPDATE TO '\Q$ours\E'/s,
		"$_, extension $version", @{ $command{$_} }, '-d', $superuser)
	  for sort keys %command;
}
$node->safe_psql('postgres', "UPDATE pg_extension SET extversion = '$ours' WHERE extname = 'stacksaga'");

# An extension of the right number that lacks a function, as one in development might.
$node->safe_psql('postgres', 'ALTER FUNCTION stacksaga.ring_state RENAME TO ring_state_of_old');
ends_with(78, qr/sqlstate=42883.*ALTER EXTENSION/, 'a function is missing', @{ $command{master} }, '-d', $superuser);
$node->safe_psql('postgres', 'ALTER FUNCTION stacksaga.ring_state_of_old RENAME TO ring_state');

# Roles: one that may do nothing, and those of the other kinds.
my %needs = (
	master => ['coordinator'], agent => ['coordinator'],
	status => ['monitor'], ring => ['monitor'], locate => ['monitor'], doctor => ['monitor']);
$node->safe_psql('postgres', q{CREATE ROLE "o'nobody" LOGIN});
for my $what (sort keys %needs)
{
	my $calls = join ', ', map { "stacksaga.grant_usage('o''nobody', '$_')" } @{ $needs{$what} };
	ends_with(77, qr/permission denied.*Run as the extension's owner: SELECT \Q$calls\E;/s, "$what without grants",
		@{ $command{$what} }, '-d', qq{$superuser user='o\\'nobody'});
}
my %others = (
	master => [ 'service', 'monitor' ], status => ['coordinator']);
for my $what (sort keys %others)
{
	for my $kind (@{ $others{$what} })
	{
		$node->safe_psql('postgres', qq{
			CREATE ROLE only_$kind LOGIN; SELECT stacksaga.grant_usage('only_$kind', '$kind')})
		  if $node->safe_psql('postgres', "SELECT count(*) FROM pg_roles WHERE rolname = 'only_$kind'") == 0;
		my ($code, undef, $err) = run_daemon(@{ $command{$what} }, '-d', "$superuser user=only_$kind");
		is($code, 77, "$what as a role of kind $kind: exit code 77");
		like($err, qr/grant_usage\('only_$kind', '$needs{$what}[0]'\)/, "$what as a role of kind $kind: says so");
	}
}
$node->safe_psql('postgres', 'CREATE ROLE no_login');
ends_with(77, qr/not permitted to log in.*may log in with --dbname/s, 'a role that may not log in',
	@{ $command{master} }, '-d', "$superuser user=no_login");

# A pooler between: its transaction mode would give our session parameters to others.
SKIP:
{
	skip 'pgbouncer is not here', 1 unless defined $pooler;
	my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
	my $port = $free->sockport;
	close $free;
	for my $mode ('transaction', 'statement', 'session')
	{
		my ($ini, $users) = ("$folder/$mode.ini", "$folder/users");
		append_to_file($users, qq{"coordinator" ""\n}) unless -e $users;
		append_to_file($ini, join "\n", '[databases]',
			sprintf('postgres = host=%s port=%d', $node->host, $node->port), '[pgbouncer]', "pool_mode = $mode",
			'listen_addr = 127.0.0.1', "listen_port = $port", 'unix_socket_dir =', 'auth_type = trust',
			"auth_file = $users", "logfile = $folder/$mode.log", "pidfile = $folder/$mode.pid", '');
		my $run = IPC::Run::start([ $pooler, $ini ], '<', '/dev/null', '>&', "$folder/$mode.out");
		my $through = "host=127.0.0.1 port=$port dbname=postgres user=coordinator";
		my $end = time + 60;
		my ($said) = 1;
		$said = system_log('psql', '-XqAtd', $through, '-c', 'SELECT 1') while $said != 0 && time < $end;
		is($said, 0, "a pooler in $mode mode runs");
		for my $what (sort keys %command)
		{
			ends_with(65, qr/a pooler or proxy is between.*Connect to the server itself/s,
				"$what through a pooler in $mode mode", @{ $command{$what} }, '-d', $through);
		}
		my ($settings) = run_command([ 'psql', '-XqAtd', $through, '-c',
			q{SELECT current_setting('search_path'), current_setting('statement_timeout'),
				current_setting('default_transaction_read_only')} ]);
		is($settings, '"$user", public|0|off', "no session of the pooler in $mode mode is touched");
		if ($mode eq 'session')
		{
			my ($code) = run_daemon(@{ $command{master} }, '--session-pooler', '-d', $through);
			is($code, 0, 'with --session-pooler a master works through it');
		}
		$run->signal('INT');
		$run->finish;
	}
}

# Roles of another kind. A service may register nodes, but not publish.
$node->safe_psql('postgres', q{
	CREATE ROLE service LOGIN;
	CREATE ROLE monitor LOGIN;
	SELECT stacksaga.grant_usage('service', 'service'), stacksaga.grant_usage('monitor', 'monitor')});
for my $kind (qw(service monitor))
{
	ends_with(77, qr/sqlstate=42501.*grant_usage.*'\Q$kind\E', 'coordinator'/, "a $kind as agent",
		@{ $command{agent} }, '-d', "$superuser user=$kind");
}

# An unexpected server error, and outputs that cannot be written.
$node->safe_psql('postgres', q{
	CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION 'the disk is on fire' USING ERRCODE = 'XX001'; END $$;
	CREATE TRIGGER break BEFORE INSERT ON stacksaga.token_window EXECUTE FUNCTION break();
	SELECT stacksaga.create_ring('default', 'other'), stacksaga.register_node('b', cluster => 'other')});
ends_with(70, qr/class=fatal error="the disk is on fire" sqlstate=XX001.*exit_code=70/, 'a corrupted table',
	@{ $command{master} }, '--cluster', 'other', '-d', $superuser);
$node->safe_psql('postgres', 'DROP TRIGGER break ON stacksaga.token_window');
for my $case ([ 'status' ], [ 'doctor', '-o', 'json' ], [ 'check-config' ], [ '--help' ], [ '--version' ],
	[ 'master', '--print-config' ], [ 'master', '--dry-run', '--cluster', 'other' ])
{
	my $err = '';
	local $ENV{STACKSAGA_DBNAME} = $superuser;
	IPC::Run::run([ $program, @$case ], '<', '/dev/null', '>', '/dev/full', '2>', \$err);
	is($? >> 8, 70, "@$case to a full disk: exit code 70");
	like($err, qr/cannot write to standard output: No space left on device/, "@$case to a full disk: says so");
}
IPC::Run::run([ $program, @{ $command{master} }, '--cluster', 'other', '-d', $superuser ],
	'<', '/dev/null', '>', '/dev/null', '2>', '/dev/full');
is($? >> 8, 0, 'a log that cannot be written stops nothing');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM stacksaga.token_window JOIN stacksaga.ring USING (ring_id) WHERE cluster = 'other'}),
	1, 'the window is published');
my $watch = IPC::Run::start([ $program, 'status', '--watch', '-d', $superuser ], '<', '/dev/null', '>pipe', \*WATCHED);
read WATCHED, my $some, 10;
close WATCHED;
eval { $watch->finish };
is($watch->full_result & 127, 13, 'a watch whose reader has ended ends by SIGPIPE, as other programs do');

# A port that is taken.
{
	my $taken = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
	my $address = '127.0.0.1:' . $taken->sockport;
	ends_with(70, qr/cannot listen on \Q$address\E: .*exit_code=70/, 'a port that is taken',
		'master', '--http', $address, '-d', $superuser);
}

# A server that starts: recovery waits until the test writes to a pipe.
$node->stop;
my ($go, $pipe) = ("$folder/go", "$folder/pipe");
POSIX::mkfifo($pipe, 0600) or die "mkfifo: $!";
$node->append_conf('postgresql.conf',
	"restore_command = '[ -e $go ] || read line < $pipe; false'\nhot_standby = off\n");
append_to_file($node->data_dir . '/recovery.signal', '');
command_ok([ 'pg_ctl', '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start' ], 'a server starts');
my ($code, $err) = (0, '');
my $end = time + 60;
($code, undef, $err) = run_daemon(@{ $command{master} }, '-d', $superuser)
  while $err !~ /starting up|not yet accepting/ && time < $end;
is($code, 69, 'while the server starts, --once ends with 69');
like($err, qr/class=reconnect error=".*the database system is starting up.*sqlstate=57P03/, 'and says why');
my $log = "$PostgreSQL::Test::Utils::log_path/waits.log";
my $waits = IPC::Run::start([ $program, 'master', '--cluster', 'other', @no_http, '-d', $superuser ],
	'<', '/dev/null', '>', '/dev/null', '2>>', $log);
select undef, undef, undef, 0.05 while (!-e $log || slurp_file($log) !~ /sqlstate=57P03.*retry_in_ms=/) && time < $end;
like(slurp_file($log), qr/level=warn msg="database unavailable".*starting up.*retry_in_ms=/, 'without, it waits');
append_to_file($go, '');
append_to_file($pipe, "go\n");
select undef, undef, undef, 0.05 while slurp_file($log) !~ /msg=coordinating/ && time < $end;
like(slurp_file($log), qr/msg=coordinating/, 'and coordinates when the server is there');
$waits->signal('TERM');
$waits->finish;
is(($waits->results)[0], 0, 'until SIGTERM');

# The server was started behind the back of the test's own object.
command_ok([ 'pg_ctl', '-D', $node->data_dir, '-m', 'immediate', 'stop' ], 'the server stops');
done_testing();
