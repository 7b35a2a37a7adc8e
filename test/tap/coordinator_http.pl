# The answers of the daemon over HTTP, and the commands that read: probes with and without the database,
# metrics that promtool accepts, a page that loads nothing from other sites.
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

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stacksaga');
$node->safe_psql('postgres', "SELECT stacksaga.register_node('till')");

# A port that is free now; the daemon reports an error if another program takes it first.
my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
my $port = $free->sockport;
close $free;
my $log = "$PostgreSQL::Test::Utils::log_path/coordinator_http.log";
our @connection = ('-d', $node->connstr('postgres'));
my $master =
  IPC::Run::start([ $program, 'master', '--http', "127.0.0.1:$port", '--http-host', 'db.example', @connection ],
	'<', '/dev/null', '>', '/dev/null', '2>>', $log);

my $http = HTTP::Tiny->new(timeout => 10, keep_alive => 0);

sub get
{
	my ($path) = @_;
	return $http->get("http://127.0.0.1:$port$path");
}

# Asks until the status is as wanted, or three minutes are over.
sub answers
{
	my ($path, $status, $test) = @_;
	my $response = {status => 0};
	my $end = time + 180;
	while ($response->{status} != $status && time < $end)
	{
		$response = get($path);
		select undef, undef, undef, 0.05 if $response->{status} != $status;
	}
	is($response->{status}, $status, $test);
	return $response->{content};
}

answers('/livez', 200, 'it is alive');
answers('/readyz', 200, 'it is ready');
like(get('/health')->{content}, qr/live: ok\nready: ok\nring default\/default: epoch \d+, [\d.]+ % owned, nodes active 1, suspected 0, dead 0, draining 0\n/,
	'health has both, and a summary of each ring');

my $status = decode_json(get('/status')->{content});
is($status->{database}, 'postgres', 'status is that of the database');
is($status->{rings}[0]{nodes}[0]{node}, 'till', 'status lists the nodes');

my $metrics = get('/metrics');
like($metrics->{headers}{'content-type'}, qr{^text/plain; version=0\.0\.4}, 'metrics have their type');
like($metrics->{content}, qr/^stacksaga_coordinator_database_up 1$/m, 'the database is up');
like($metrics->{content}, qr/^stacksaga_ring_nodes\{[^}]*state="active"\} 1$/m, 'a node is counted');

like($metrics->{content},
	qr/^# HELP stacksaga_ring_epoch the epoch of the ring.*\n# TYPE stacksaga_ring_epoch gauge$/m,
	'and are described');
like($metrics->{content}, qr/^# HELP stacksaga_coordinator_info /m, "the daemon's own too");
my ($promtool) = grep { -x } map { "$_/promtool" } split /:/, $ENV{PATH};
SKIP:
{
	skip 'promtool (package prometheus) is missing', 1 unless defined $promtool;
	my ($text, $said) = ($metrics->{content}, '');
	IPC::Run::run([ $promtool, 'check', 'metrics' ], '<', \$text, '>&', \$said);
	is($?, 0, 'promtool finds nothing to say') or diag($said);
}

# The alerts and the dashboard use existing metrics.
my %known = map { $_ => 1 } 'stacksaga_coordinator_database_up', split /\n/, $node->safe_psql('postgres',
	'SELECT name FROM stacksaga.metric_descriptions()');
foreach my $file ('coordinator/monitoring/prometheus/alerts.yml', 'coordinator/monitoring/grafana/stacksaga.json')
{
	my %asked = map { $_ => 1 } slurp_file($file) =~ /\b(stacksaga_[a-z_]+)(?:\[|\{| |\)|")/g;
	cmp_ok(scalar(keys %asked), '>', 5, "$file asks for metrics");
	is(join(' ', sort grep { !$known{$_} } keys %asked), '', "$file: there are such metrics");
}
my $dashboard = slurp_file('coordinator/monitoring/grafana/stacksaga.json');
decode_json($dashboard);
is(join(' ', sort grep { /_(saga|queue|schedule|worker)s?(_|$)|_total$/ && $dashboard !~ /\b\Q$_\E\b/ } keys %known), '',
	'the dashboard has every metric of sagas, queues, schedules and workers, and every counter');
# Of all that it shows it says which database, and shows it once however many daemons serve it.
my @shown = map { @{ $_->{targets} // [] } } @{ decode_json($dashboard)->{panels} };
cmp_ok(scalar(@shown), '>=', 25, 'the dashboard has panels');
is(join("\n", grep { !/^(?:sum by \(database\b.*)?max without \(instance\) \((?:rate\()?stacksaga_\w+\{database=~"\$database"/ }
	map { $_->{expr} } @shown), '', 'each is of the databases that are chosen');
is(join("\n", grep { !/\{\{database\}\}/ } map { $_->{legendFormat} } @shown), '', 'and names them in its legend');

# The labels that they choose by have these values.
$node->safe_psql('postgres', q{SELECT stacksaga.set_queue('limited', max_running => 1, max_running_per_group => 1, rate => 1);
	SELECT stacksaga.define_saga('scheduled', ARRAY[stacksaga.queue_step('a', 'limited', compensable => true)]);
	SELECT stacksaga.create_schedule('scheduled', 'scheduled', '@yearly')});
my %value = map { $_ => 1 } split /\n/, $node->safe_psql('postgres',
	q[SELECT DISTINCT m.name || '{' || l.key || '=' || l.value FROM stacksaga.metrics() m, jsonb_each_text(m.labels) l]);
my @chosen;
foreach my $text (map { s/\\"/"/gr } slurp_file('coordinator/monitoring/prometheus/alerts.yml'), $dashboard)
{
	while ($text =~ /(stacksaga_\w+)\{([^}]+)\}/g)
	{
		my ($metric, $labels) = ($1, $2);
		push @chosen, [ $metric, $1, $2 ] while $labels =~ /(\w+)!?="(\w+)"/g;
	}
}
cmp_ok(scalar(@chosen), '>=', 4, 'they choose by labels');
is(join(' ', grep { !$value{$_} } map { "$_->[0]\{$_->[1]=$_->[2]" } @chosen), '', 'which exist with these values');
$node->safe_psql('postgres', q{SELECT stacksaga.drop_schedule('scheduled'), stacksaga.drop_queue('limited')});
SKIP:
{
	skip 'promtool (package prometheus) is missing', 1 unless defined $promtool;
	my $said = '';
	IPC::Run::run([ $promtool, 'check', 'rules', 'coordinator/monitoring/prometheus/alerts.yml' ], '>&', \$said);
	is($?, 0, 'promtool finds no fault with the alerts') or diag($said);
}

my $page = get('/');
is($page->{status}, 200, 'there is a page');
like($page->{headers}{'content-security-policy'}, qr/^default-src 'none'/, 'which loads nothing foreign');
unlike($page->{content}, qr{https?://}, 'and names nothing foreign');
is(get($_)->{status}, 200, "the page's $_ is there") for '/page.js', '/page.css';

my $id = $node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.signal_step('wait', 'go')]);
	SELECT saga_id FROM stacksaga.start_saga('s')});
$id =~ s/.*\n//s;
like(get("/saga/$id")->{content}, qr/start of saga s \(version 1\)/, "a saga's timeline is served");
is(get('/saga/00000000-0000-0000-0000-000000000000')->{status}, 404, 'an unknown saga is not found');

# Eighty readers of a timeline that takes long delay no probe and no scrape; more than sixteen at a time are refused.
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE stacksaga.saga IN ACCESS EXCLUSIVE MODE');
my @readers = map {
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
	print {$socket} "GET /saga/$id HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	$socket
} 1 .. 80;
my @refused = map { join '', readline $_ } @readers[ 17 .. 79 ];
is(scalar(grep { m{^HTTP/1\.1 503 .*too many}s } @refused), 63, 'those who come too late are refused at once');
is(get('/readyz')->{status}, 200, 'a probe is answered meanwhile');
$locker->query_safe('COMMIT');
$locker->quit;
is(scalar(grep { (join '', readline $_) =~ m{^HTTP/1\.1 200 } } @readers[ 0 .. 16 ]), 17, 'and the first ones when it can be read');
is(get("/saga/x'--")->{status}, 400, 'an invalid id is refused');
is(get('/nothing')->{status}, 404, 'an unknown path is not found');
is($http->post("http://127.0.0.1:$port/")->{status}, 405, 'nothing can be posted');

# A page of another site that points its own name at the daemon gets no answer.
for my $case ([ 'evil.example', 421 ], [ "evil.example:$port", 421 ], [ '', 421 ], [ "localhost:$port", 200 ],
	[ "[::1]:$port", 200 ], [ 'db.example', 200 ])
{
	my ($host, $expected) = @$case;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
	print {$socket} "GET /livez HTTP/1.1\r\nHost: $host\r\nConnection: close\r\n\r\n";
	my $answer = join '', <$socket>;
	like($answer, qr{^HTTP/1\.1 $expected }, "a request for the host '$host'");
	like($answer, qr/--allowed-host/, 'and the answer names the setting that accepts the name') if $expected == 421;
}

# A server that accepts a connection and never answers: a terminal gets a line after ten seconds. Its end is
# checked below.
my $unresponsive_server = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 0);
my ($terminal) = grep { -x } map { "$_/script" } split /:/, $ENV{PATH};
my $waiting = sprintf q{%s status -d 'host=127.0.0.1 port=%d connect_timeout=12'}, $program, $unresponsive_server->sockport;
my ($seen, $unseen) = ('', '');
my @patient = (
	defined $terminal
	? IPC::Run::start([ $terminal, '-qefc', "$waiting", '/dev/null' ], '<', '/dev/null', '>', \$seen, '2>&1')
	: (),
	IPC::Run::start([ 'sh', '-c', $waiting ], '<', '/dev/null', '>', \$unseen, '2>&1'));

# The commands that read.
sub execute
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ $program, @arguments, @connection ], '<', '/dev/null', '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}
my ($code, $out, $err) = execute('status');
like($out, qr/^Rings\nregion +cluster.*^Nodes\n.*till.*^Sagas\n.*^pending +1\n.*^Subscriptions\n.*^Checks\n/ms,
	'status prints tables');
is($code, 2, 'and ends with 2 where there is an error');
($code, $out) = execute('status', '-o', 'json');
is(decode_json($out)->{database}, 'postgres', 'or JSON');
($code, $out) = execute('locate', 'hello');
like($out, qr/^-3758069500696749310 +75 /m, 'locate prints the token and the slot of a key');
is($code, 0, 'and ends with 0');
($code, $out) = execute('locate', 'hello', '-o', 'json');
is(decode_json($out)->{token}, '-3758069500696749310', 'or as JSON');
like($out, qr/"token": "-3758069500696749310"/, 'the token as text, as JSON in a browser needs it');
($code, $out) = execute('ring');
like($out, qr/^Ring default\/default\nrange_start/m, 'ring prints ranges');
($code, $out) = execute('doctor');
like($out, qr/worker_ensure/, 'doctor prints the SQL that fixes the problem');
my $file = "$PostgreSQL::Test::Utils::tmp_check/settings.ini";
sub settings
{
	my ($text) = @_;
	unlink $file;
	append_to_file($file, $text);
}
settings("[master]\nname = \"m\"\n[agent]\nname = \"a\"\nweight = 7\n");
($code, $out) = execute('ring', '-c', $file);
like($out, qr/^Ring default/, 'a section of a file calls no other command');
{
	local @connection = ('-d', 'host=nowhere.invalid');
	($code, $out) = execute('agent', '-c', $file, '--print-config');
	like($out, qr/^weight = "7"  # file$/m, 'settings are printed without a connection');
	is($code, 0, 'and it ends with 0');
}
for my $bad (
	["[master]\nname = \"m\"\nlog-level = \"loud\"\n", qr/settings\.ini:3: .*must be debug/, 'a bad value'],
	["[master]\n\nbogus = 1\n", qr/settings\.ini:3: .*bogus/, 'an unknown setting'],
	["[master]\nname\n", qr/settings\.ini:2: /, 'an invalid line'],
	["[master\nname = \"m\"\n", qr/settings\.ini:1: a section ends with \]/, 'a section without its end'],
	["[master]\noperator-header = \"X-User\"\n", qr/settings\.ini:2: --operator-header: /, 'a setting that is not safe'])
{
	settings($bad->[0]);
	($code, $out, $err) = execute('master', '-c', $file, '--once');
	is($code, 65, "$bad->[2] in a file ends it with 65");
	like($err, $bad->[1], 'and names the line');
}
($code, $out, $err) = execute('master', '-c', "$file.missing", '--once');
is($code, 65, 'so does a missing file');
{
	local $ENV{STACKSAGA_LOG_LEVEL} = 'warn';
	($code, $out) = execute('check-config', '--region', 'eu');
	like($out, qr/^region = "eu"  # flag$/m, 'check-config names the source: a flag');
	like($out, qr/^log-level = "warn"  # environment$/m, 'the environment');
	like($out, qr/^cluster = "default"  # default$/m, 'and a default');
	is($code, 0, 'and that it can connect');
	settings("[master]\ncluster = \"default\"\ndry-run = true\nname = \"m\"\n[agent]\nname = \"a\"\n");
	($code, $out) = execute('check-config', '-c', $file);
	like($out, qr/^name = "m"  # file$/m, 'it reads what master would read from a file');
	is($code, 0, 'and leaves out what only master has');
}
$node->safe_psql('postgres', 'CREATE DATABASE bare');
($code, $out, $err) = execute('doctor', '-d', $node->connstr('bare'));
is($code, 64, 'a flag that is given twice is refused');
{
	local @connection = ('-d', $node->connstr('bare'));
	($code, $out, $err) = execute('doctor');
	is($code, 78, 'without the extension it ends with 78');
	like($err, qr/CREATE EXTENSION stacksaga/, 'and says what to do');
}
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
{
	local @connection = ('-d', $node->connstr('postgres') . ' user=nobody');
	($code, $out, $err) = execute('status');
	is($code, 77, 'without privileges it ends with 77');
	like($err, qr/grant_usage/, 'and says what to grant');
}

($code, $out, $err) = execute('sagsa');
is($code, 64, 'an unknown command ends with 64');
like($err, qr/There is no command "sagsa". The commands are: master, .*sagas/, 'and is named');

# No spelling of a password is printed, nor by an error.
for my $case (
	[ 0, "user=me password = 'my secret'" ], [ 0, 'postgresql://me:%73ecret@db/shop?sslpassword=secret' ],
	[ 64, 'PGPASSWORD=secret dbname=shop' ], [ 64, 'POSTGRESQL://me:secret@db/shop' ],
	[ 64, 'postgresql://me:secret@[::1/shop' ])
{
	local @connection = ('-d', $case->[1]);
	($code, $out, $err) = execute('master', '--print-config');
	is($code, $case->[0], "--print-config ends with $case->[0]");
	unlike("$out$err", qr/secret/, 'and shows no password');
}

$_->finish for @patient;
SKIP:
{
	skip 'script (package bsdutils) is missing', 2 unless defined $terminal;
	like($seen, qr/^Waiting for the database, 10 s so far\r?\n(.|\n)*no answer within 12 s/, 'a terminal sees that the command waits');
	is(($patient[0]->results)[0], 69, 'and the command ends with 69 all the same');
}
is($unseen, "no answer within 12 s\n", 'a pipe gets only the error');

# Help: every command has examples, and those of daemons can be copied.
for my $command (qw(master agent status ring locate doctor check-config))
{
	my $help = '';
	IPC::Run::run([ $program, $command, '--help' ], '<', '/dev/null', '>', \$help);
	my @examples = $help =~ /^  (stacksaga-coordinator \Q$command\E .*)$/mg;
	cmp_ok(scalar(@examples), '>', 0, "$command has examples");
	next if $command !~ /^(master|agent)$/;
	for my $example (grep { !/ -c / } @examples)
	{
		IPC::Run::run([ 'sh', '-c', "$example --print-config" ], '<', '/dev/null', '>', \$out, '2>', \$err);
		is($?, 0, $example) or diag($err);
	}
}

# A watch goes on while a database stops and comes back; a pipe gets no escape sequences.
my $watched = '';
my $watch = IPC::Run::start([ $program, 'status', '--watch', @connection ], '<', '/dev/null', '>', \$watched, '2>&1');
$watch->pump while $watched !~ /^Checks/m;

# The database stops, and comes back.
$node->stop('immediate');
my $why = answers('/readyz', 503, 'without its database it is not ready');
isnt($why, '', 'and says why');
is(get('/livez')->{status}, 200, 'but alive');
# The daemon keeps an answer for a second: it may send the old one again.
my $end = time + 180;
my $scraped = '';
$scraped = get('/metrics')->{content}
  while $scraped !~ /^stacksaga_coordinator_database_up 0$/m && time < $end;
like($scraped, qr/^stacksaga_coordinator_database_up 0$/m, 'and its metrics say so');
$node->start;
answers('/readyz', 200, 'it is ready again');

# After a restart of the server between two questions the connection of the first one is dead. The daemon
# reads the timeline of a saga for each question, which opens the connection.
for my $path ("/saga/$id", '/readyz', '/health')
{
	answers("/saga/$id", 200, 'the daemon has a connection');
	$node->restart;
	is(get($path)->{status}, 200, "$path: the first question after a restart is answered");
}
$watch->pump while $watched !~ /Checks.*(failed|closed|terminat|shut).*^Checks/ms;
unlike($watched, qr/\033/, 'a watch goes on when the database is back');
$watch->signal('INT');
$watch->finish;

$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'it ends on SIGTERM');

done_testing();
