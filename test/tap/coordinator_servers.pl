# One master for three servers: one that is killed, frozen, slow or refuses connections stops only itself. The
# others get each window, and /status and /readyz name the lost one.
use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my %server;
for my $name (qw(north south west))
{
	my $node = $server{$name} = StacksagaCluster->new($name);
	$node->init;
	$node->append_conf('postgresql.conf', 'restart_after_crash = off');
	$node->start;
	$node->create_extension('postgres');
	# The only node beats when the test says so, and a ring with one node stays its own meanwhile.
	$node->safe_psql('postgres', q{
		CREATE ROLE coordinator LOGIN;
		SELECT stacksaga.grant_usage('coordinator', kind) FROM unnest(ARRAY['coordinator', 'monitor']) AS kind;
		SELECT stacksaga.alter_ring('default', 'default', setting, value)
		  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
					   ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
		SELECT stacksaga.register_node('only')});
}
my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
my $port = $free->sockport;
close $free;
my $log = "$PostgreSQL::Test::Utils::log_path/coordinator_servers.log";
my $master = IPC::Run::start(
	[
		$program, 'master', '--http', "127.0.0.1:$port",
		map { ('-d', $server{$_}->connstr('postgres') . ' user=coordinator connect_timeout=2') } qw(north south west)
	],
	'<', '/dev/null', '>', '/dev/null', '2>>', $log);
my @frozen;
END
{
	kill 'CONT', @frozen;
	$master->kill_kill if defined $master;
}

my $http = HTTP::Tiny->new(timeout => 60);
sub ask { return $http->get("http://127.0.0.1:$port$_[0]") }

# Of which servers /status has an error.
sub lost
{
	my $answer = ask('/status');
	return "HTTP $answer->{status}" if $answer->{status} != 200;
	my @lost = map { $_->{name} } grep { exists $_->{error} } @{ decode_json($answer->{content})->{databases} };
	return join ' ', map { my $port = $_->port; (grep { m{/$port/} } @lost) ? $_->name : () } @server{qw(north south west)};
}

sub wait_until_lost
{
	my ($expected, $test) = @_;
	my $end = time + 120;
	my $found;
	while (($found = lost()) ne $expected && time < $end) { select undef, undef, undef, 0.1 }
	return is($found, $expected, $test);
}

# Waits until so many more windows were published on a server.
sub wait_for_windows
{
	my ($name, $test, $more) = @_;
	my $count = q{SELECT count(*) FROM stacksaga.token_window};
	my $since = $server{$name}->safe_psql('postgres', 'SELECT epoch FROM stacksaga.ring_status');
	return ok($server{$name}->poll_query_until('postgres', "SELECT count(*) >= $more FROM stacksaga.token_window WHERE epoch > $since"),
		"$name: $test");
}

# Each window since an instant was published before it began.
sub no_gap
{
	my ($name, $since, $test) = @_;
	return is($server{$name}->safe_psql('postgres', qq{
		WITH w AS (SELECT window_start, published_at, lag(window_start) OVER (ORDER BY window_start) AS earlier
					 FROM stacksaga.token_window WHERE window_start >= '$since'::timestamptz + interval '2 seconds')
		SELECT count(*) FILTER (WHERE window_start - earlier <> interval '1 second' OR published_at > window_start)
		  FROM w}), 0, "$name: $test");
}

sub clock { return $server{$_[0]}->safe_psql('postgres', 'SELECT stacksaga.clock_now()') }

wait_for_windows($_, 'windows are published', 2) for qw(north south west);
wait_until_lost('', 'all servers answer');
is(ask('/readyz')->{status}, 200, 'the daemon is ready');

# A fault of north, and what the others notice of it: nothing.
sub survives
{
	my ($what, $fault, $repair, $answers) = @_;
	my %since = map { $_ => clock($_) } qw(south west);
	$fault->();
	wait_until_lost('north', "$what: /status says which one is lost");
	if (!$answers)
	{
		# An answer is kept for a second.
		my $end = time + 60;
		my $ready;
		while (($ready = ask('/readyz'))->{status} == 200 && time < $end) { select undef, undef, undef, 0.1 }
		my ($n, $s) = ($server{north}->port, $server{south}->port);
		is($ready->{status}, 503, "$what: the daemon is not ready");
		like($ready->{content}, qr{/$n/}, "$what: /readyz names the lost one");
		unlike($ready->{content}, qr{/$s/}, "$what: and no other");
		my $name = $server{south}->connstr('postgres');
		my ($label) = map { $_->{name} } grep { $_->{name} =~ m{/$s/} } @{ decode_json(ask('/status')->{content})->{databases} };
		$label =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/eg;
		is(ask("/readyz?database=$label")->{status}, 200, "$what: asked about another one it is ready");
	}
	# As long as a reconnection, with its longest pause, takes.
	wait_for_windows($_, "$what: windows go on", 8) for qw(south west);
	no_gap($_, $since{$_}, "$what: without a gap, each before it begins") for qw(south west);
	$repair->();
	wait_until_lost('', "$what: it is back");
	wait_for_windows('north', "$what: it is served again", 2);
	is(ask('/readyz')->{status}, 200, "$what: the daemon is ready again");
	return;
}

sub postmaster { return (split /\n/, slurp_file($server{north}->data_dir . '/postmaster.pid'))[0] }

sub family
{
	my $postmaster = postmaster();
	return ($postmaster, split ' ', `ps -o pid= --ppid $postmaster`);
}

survives('kill -9',
	sub { kill 'KILL', family(); $server{north}->{_pid} = undef; },
	sub {
		unlink $server{north}->data_dir . '/postmaster.pid';
		$server{north}->start;
	});
survives('frozen', sub { @frozen = family(); kill 'STOP', @frozen; }, sub { kill 'CONT', splice @frozen; });
survives('refuses connections', sub { $server{north}->stop('fast') }, sub { $server{north}->start });

# Slow: each statement about a ring waits for a lock until the daemon gives up. The server answers otherwise, so the
# daemon is ready.
my $gate;
survives('slow',
	sub {
		$gate = $server{north}->background_psql('postgres');
		$gate->query_safe('BEGIN; LOCK TABLE stacksaga.ring, stacksaga.token_window IN ACCESS EXCLUSIVE MODE');
	},
	sub { $gate->query_safe('COMMIT'); $gate->quit; }, 1);

$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'it ends on SIGTERM');
undef $master;
$_->stop for values %server;
done_testing();
