# --metrics-http: metrics and probes at an address of their own, which may be open to a network that the page is not open
# to, so nothing else is served there; and the page serves no metrics then.
use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use IO::Socket::UNIX;
use IPC::Run;
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
my $id = $node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.signal_step('wait', 'go')]);
	SELECT saga_id FROM stacksaga.start_saga('s', key => 'private')}) =~ s/.*\n//sr;

# Ports that are free now; the daemon reports an error if another program takes one first.
my @free = map { IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0) } 1 .. 2;
my ($page, $machine) = map { $_->sockport } @free;
close $_ for @free;
my $log = "$PostgreSQL::Test::Utils::log_path/coordinator_metrics_http.log";
my @connection = ('-d', $node->connstr('postgres'));
my $http = HTTP::Tiny->new(timeout => 10, keep_alive => 0);

sub start_master
{
	return IPC::Run::start([ $program, 'master', @connection, @_ ], '<', '/dev/null', '>', '/dev/null', '2>>', $log);
}

# Asks until the status is as wanted, or three minutes are over.
sub answers
{
	my ($url, $status, $test) = @_;
	my $response = {status => 0};
	my $end = time + 180;
	while ($response->{status} != $status && time < $end)
	{
		$response = $http->get($url);
		select undef, undef, undef, 0.05 if $response->{status} != $status;
	}
	is($response->{status}, $status, $test);
	return $response->{content};
}

# The whole answer to a request as it is written here.
sub ask
{
	my ($socket, $request) = @_;
	print {$socket} "$request\r\nConnection: close\r\n\r\n";
	return join '', <$socket>;
}

my $master = start_master('--http', "127.0.0.1:$page", '--metrics-http', "0.0.0.0:$machine", '--allowed-host', 'db.example');
answers("http://127.0.0.1:$page/readyz", 200, 'the page is ready');
like(answers("http://127.0.0.1:$machine/metrics", 200, 'metrics have their own address'),
	qr/^stacksaga_coordinator_database_up 1$/m, 'which serves them');
is($http->get("http://127.0.0.1:$machine$_")->{status}, 200, "it serves $_") for '/livez', '/readyz', '/health';
is($http->head("http://127.0.0.1:$machine/metrics")->{status}, 200, 'HEAD is answered');

# Nothing that a viewer, or an operator, may ask of the page.
for my $path ('/', '/page.js', '/status', "/saga/$id", '/api/session', '/api/sagas', "/api/saga?id=$id", '/api/history', '/metrics/',
	'/metrics/../status', '//metrics')
{
	my $response = $http->get("http://127.0.0.1:$machine$path");
	is($response->{status}, 404, "it does not serve $path");
	unlike($response->{content}, qr/private/, 'and tells nothing');
}
like($http->get("http://127.0.0.1:$machine/")->{content}, qr/127\.0\.0\.1:$page/, 'but where the page is');
is($http->post("http://127.0.0.1:$machine$_", {content => '{}', headers => {'content-type' => 'application/json'}})->{status}, 405,
	"nothing can be posted to $_") for '/api/act/cancel', '/api/login', '/metrics';
for my $case ([ 'evil.example', 421 ], [ '', 421 ], [ "127.0.0.1:$machine", 200 ], [ 'db.example', 200 ])
{
	my ($host, $expected) = @$case;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $machine);
	like(ask($socket, "GET /metrics HTTP/1.1\r\nHost: $host"), qr{^HTTP/1\.1 $expected }, "a request for the host '$host'");
}

my $elsewhere = $http->get("http://127.0.0.1:$page/metrics");
is($elsewhere->{status}, 404, 'the page serves no metrics');
like($elsewhere->{content}, qr/0\.0\.0\.0:$machine/, 'and says where they are');
is($http->get("http://127.0.0.1:$page$_")->{status}, 200, "it serves $_ as before") for '/', '/status', '/health', '/api/sagas';

# The address is taken.
my $said = '';
my $second = IPC::Run::start([ $program, 'master', @connection, '--http', '', '--metrics-http', "127.0.0.1:$machine" ],
	'<', '/dev/null', '>&', \$said);
$second->finish;
isnt(($second->results)[0], 0, 'a daemon ends where it cannot serve metrics');
like($said, qr/127\.0\.0\.1:$machine/, 'and names the address') or diag($said);

# Without the database there are metrics, too.
$node->stop('immediate');
answers("http://127.0.0.1:$machine/readyz", 503, 'without its database it is not ready');
my ($scraped, $end) = ('', time + 180);
$scraped = $http->get("http://127.0.0.1:$machine/metrics")->{content}
  while $scraped !~ /^stacksaga_coordinator_database_up 0$/m && time < $end;
like($scraped, qr/^stacksaga_coordinator_database_up 0$/m, 'and its metrics say so');
$node->start;
$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'it ends on SIGTERM');

# On a socket, with no page at all.
my $socket_path = PostgreSQL::Test::Utils::tempdir_short() . '/metrics';
$master = start_master('--http', '', '--metrics-http', "unix:$socket_path");
my $socket;
$end = time + 180;
until ($socket = IO::Socket::UNIX->new(Peer => $socket_path))
{
	last if time > $end;
	select undef, undef, undef, 0.05;
}
like(ask($socket, "GET /metrics HTTP/1.1\r\nHost: localhost"), qr/^stacksaga_coordinator_database_up /m, 'a socket serves metrics');
is(sprintf('%04o', (stat $socket_path)[2] & 07777), '0660', 'for its user and group');
like(ask(IO::Socket::UNIX->new(Peer => $socket_path), "GET / HTTP/1.1\r\nHost: localhost"),
	qr{^HTTP/1\.1 404 .*It is not served}s, 'there is no page');
$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'that one ends, too');

done_testing();
