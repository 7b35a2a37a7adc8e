# Many requests and bad clients: half-open, dribbling and unreading ones do not delay a probe, and the
# memory of the daemon stays. COORDINATOR_REQUESTS says how many requests; `make chaos-http` asks for a
# million.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;
use Time::HiRes qw(time);

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

# On a machine that does other things as well.
my $delay_max = 1;
my $requests_max = $ENV{COORDINATOR_REQUESTS} || 40_000;
my $warm_up = 20_000;
# What a process may take more for the same work: pages of the allocator, no more with more requests.
my $growth_max_kB = 512;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.register_node(n) FROM (VALUES ('till-1'), ('till-2'), ('till-3')) AS v(n)});
my $saga = $node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.signal_step('wait', 'go')]);
	SELECT saga_id FROM stacksaga.start_saga('s')});
$saga =~ s/.*\n//s;

my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
my $port = $free->sockport;
close $free;
my $master = IPC::Run::start(
	[ $program, 'master', '--http', "127.0.0.1:$port", '-d', $node->connstr('postgres') ],
	'<', '/dev/null', '>', '/dev/null', '2>>', "$PostgreSQL::Test::Utils::log_path/load.log");

sub connect_to
{
	my ($to) = @_;
	return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $to, Timeout => 60);
}

sub request
{
	my ($path, $method) = @_;
	return sprintf "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", $method // 'GET', $path;
}

# The seconds until /livez is answered over a connection of its own; nothing when it is not within
# twice the delay allowed.
sub probe
{
	my ($to) = @_;
	my $begun = time;
	my $socket = connect_to($to) or return;
	print {$socket} request('/livez');
	IO::Select->new($socket)->can_read(2 * $delay_max) or return;
	sysread($socket, my $answer, 4096) or return;
	return $answer =~ m{^HTTP/1\.1 200} ? time - $begun : undef;
}

# Probes one after the other; returns how long the slowest but one in a hundred took, and how many
# were not answered. Ends at the first that is not.
sub probes
{
	my ($to, $count) = @_;
	my @taken;
	for (1 .. $count)
	{
		my $seconds = probe($to) // return (undef, 1);
		push @taken, $seconds;
	}
	@taken = sort { $a <=> $b } @taken;
	return ($taken[ int(0.99 * $#taken) ], 0);
}

# Clients that say half a sentence and stay.
sub half_open
{
	my ($to, $count) = @_;
	return map {
		my $socket = connect_to($to);
		print {$socket} "GET /livez HTTP/1.1\r\nHost: localhost\r\n" if $socket;
		$socket // ()
	} 1 .. $count;
}

my $end = time + 60;
my $answered;
select undef, undef, undef, 0.05 while !($answered = probe($port)) && time < $end;
ok($answered, 'the daemon answers');

# The measure is one that a server which takes its clients one after the other does not pass.
{
	my $listener = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1', LocalPort => 0);
	my $one_by_one = fork // die "fork: $!";
	if ($one_by_one == 0)
	{
		while (my $client = $listener->accept)
		{
			my $heard = '';
			1 while $heard !~ /\r\n\r\n/ && sysread($client, $heard, 4096, length $heard);
			print {$client} "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
		}
		POSIX::_exit(0);
	}
	my ($alone) = probes($listener->sockport, 100);
	cmp_ok($alone, '<', $delay_max, 'one client after the other: alone, a probe is quick');
	my @idle = half_open($listener->sockport, 1);
	my (undef, $lost) = probes($listener->sockport, 1);
	is($lost, 1, 'behind one half-open client, it is not answered');
	kill 'KILL', $one_by_one;
	waitpid $one_by_one, 0;
}

# Half-open clients, clients that say a byte at a time, and clients that take no answers.
my @idle = half_open($port, 200);
is(scalar(@idle), 200, 'two hundred half-open requests');
my @unreading = map {
	my $socket = connect_to($port);
	print {$socket} request('/status') x 20;
	$socket
} 1 .. 40;
my @dribbling = map { {socket => connect_to($port), said => 0} } 1 .. 40;
my $sentence = request('/status');
my @delays;
for (1 .. 20)
{
	for my $client (@dribbling)
	{
		syswrite $client->{socket}, substr($sentence, $client->{said}++ % length $sentence, 1);
	}
	my ($delay, $lost) = probes($port, 25);
	is($lost, 0, 'a probe is not answered') if $lost;
	push @delays, $delay // 2 * $delay_max;
}
my ($slowest) = sort { $b <=> $a } @delays;
cmp_ok($slowest, '<', $delay_max,
	sprintf '280 slow clients do not delay a probe (99 of 100 take less than %.1f ms)', 1000 * $slowest);
@idle = @dribbling = ();

# More clients that say half a sentence than there are connections, from one address and from three others. Each
# newcomer closes the connection that has kept its turn for longest, so probes are answered all the while.
sub half_open_from
{
	my ($address, $count) = @_;
	return map {
		my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, LocalAddr => $address);
		print {$socket} "GET /livez HTTP/1.1\r\n" if $socket;
		$socket // ()
	} 1 .. $count;
}
for my $addresses ([ ('127.0.0.1') x 3 ], [ '127.0.0.2', '127.0.0.3', '127.0.0.4' ])
{
	my @slow = map { half_open_from($_, 250) } @$addresses;
	cmp_ok(scalar(@slow), '>=', 700, 'seven hundred clients send half a request: ' . $addresses->[-1]);
	my ($delay, $lost) = probes($port, 50);
	is($lost, 0, 'every probe is answered');
	cmp_ok($delay // 2 * $delay_max, '<', $delay_max, sprintf 'at once (%.1f ms)', 1000 * ($delay // 0));
}

# A client that sends a byte now and then does not keep its connection: its request has ten seconds in all.
{
	my $slow = connect_to($port);
	print {$slow} "GET /livez HTTP/1.1\r\n";
	my ($begun, $closed) = (time, undef);
	until ($closed || time - $begun > 60)
	{
		syswrite $slow, 'X: y' . "\r\n";
		$closed = IO::Select->new($slow)->can_read(0.5) && !sysread $slow, my $said, 4096;
	}
	cmp_ok(time - $begun, '<', 30, 'a request that never ends is closed');
}

# Requests over few connections, pipelined, each kind of page among them.
my %status_of = (
	'/livez' => 200, '/readyz' => 200, '/health' => 200, '/metrics' => 200, '/status' => 200,
	'/' => 200, '/page.js' => 200, '/page.css' => 200, "/saga/$saga" => 200,
	'/saga/00000000-0000-0000-0000-000000000000' => 404, '/saga/none' => 400, '/nothing' => 404);
my @paths = (('/livez') x 60, ('/readyz') x 10, ('/metrics') x 8, ('/status') x 8, ('/health') x 4, '/',
	'/page.js', '/page.css', ('/nothing') x 3, '/saga/none', "/saga/$saga",
	'/saga/00000000-0000-0000-0000-000000000000');
my $batch = join '', (map { request($_) } @paths), request('/', 'POST');
my $expected = join ' ', (map { $status_of{$_} } @paths), 405;
my $batch_size = @paths + 1;

# Sends so many requests and returns how many were answered as expected.
sub send_requests
{
	my ($count) = @_;
	my $answers = 0;
	while ($answers < $count)
	{
		my $socket = connect_to($port) or return $answers;
		for (1 .. 50)
		{
			last if $answers >= $count;
			print {$socket} $batch;
			my ($heard, $tail, @got) = ('', '');
			while (@got < $batch_size)
			{
				sysread($socket, my $bytes, 1 << 18) or return $answers;
				# The end of what came before may be the beginning of a status line.
				my $text = $tail . $bytes;
				push @got, $text =~ m{HTTP/1\.1 (\d{3}) }g;
				$tail = substr $text, -12;
			}
			"@got" eq $expected or diag("@got") && return $answers;
			$answers += $batch_size;
		}
	}
	return $answers;
}

sub resident_kB
{
	my ($pid) = map { $_->{PID} } @{ $master->{KIDS} };
	return slurp_file("/proc/$pid/status") =~ /^VmRSS:\s+(\d+) kB/m ? $1 : die 'no VmRSS';
}

SKIP:
{
	skip 'the size of a process is read from /proc', 2 unless -r '/proc/self/status';
	send_requests($warm_up);
	my $before = resident_kB();
	my ($sent, $most) = (0, 0);
	my $begun = time;
	for (1 .. 10)
	{
		$sent += send_requests($requests_max / 10);
		my $now = resident_kB();
		my $figures = sprintf '%d requests, %.0f s: %d kB', $sent, time - $begun, $now;
		$ENV{COORDINATOR_REQUESTS} ? diag($figures) : note($figures);
		$most = $now if $now > $most;
	}
	cmp_ok($sent, '>=', $requests_max, "$requests_max requests are answered as they should be");
	cmp_ok($most - $before, '<=', $growth_max_kB,
		sprintf 'its memory stays (%d kB, and at most %d kB more)', $before, $most - $before);
}

# Clients that keep their connections do not keep it from ending: one is idle, one waits for an answer.
my @kept = map { connect_to($port) } 1 .. 2;
print { $kept[0] } request('/livez');
sysread $kept[0], my $kept_answer, 4096;
print { $kept[1] } request('/status') x 50;
my $signalled = time;
$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'it ends on SIGTERM');
cmp_ok(time - $signalled, '<', 5, 'at once, though clients keep their connections');

done_testing();
