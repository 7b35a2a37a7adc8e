# Who may act over HTTP, attacked: forged requests, foreign hosts and origins, missing, wrong and old
# tokens, guessed passwords, a proxy's header from strangers, and markup in every name and payload.
use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use IO::Socket::UNIX;
use IPC::Run;
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use StacksagaSite;
use Test::More;

my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
my $markup = '<script>alert(1)</script>';
StacksagaSite::fill($node, $markup);

my $operators = StacksagaSite::operators_file($program, alice => 'right', bob => 'other', dave => 'fourth');
my $site = StacksagaSite->new($node, $program, '--operators-file', $operators);
my $origin = $site->origin;

# Reading needs nobody; payloads, inputs and attributes do.
my $session = $site->get('/api/session');
is_deeply([ @$session{qw(user csrf_token actions)}, $session->{sees_payloads} ? 1 : 0 ],
	[ undef, undef, 'password', 0 ], 'a stranger is anonymous');
my $parked = $site->get('/api/sagas?status=parked&key=pay')->{sagas}[0];
is($parked->{key}, "pay $markup", 'and finds a parked saga');
my $saga = $site->get("/api/saga?id=$parked->{saga_id}");
is($saga->{saga}{status}, 'parked', 'and reads about it');
is($saga->{parked}{step}, 'debit', 'at which step it is parked');
is_deeply([ @{$saga}{qw(input)}, $saga->{result}{output}, $saga->{attributes}, $saga->{saga}{attributes} ], [ undef, undef, undef, undef ],
	'but not what it holds');
my $hidden = join ' ', map { $site->request('GET', $_)->{content} } '/api/sagas', "/api/saga?id=$parked->{saga_id}",
  '/api/dead-messages', '/api/schedules', '/api/queues', '/api/definitions', '/api/operator-actions', '/status', '/metrics',
  "/saga/$parked->{saga_id}", '/api/message?subscription=billing&id=' . $site->get('/api/dead-messages')->{dead_messages}[0]{message_id};
unlike($hidden, qr/confidential/, 'nor does any other view show it');
is($site->request('GET', '/api/sagas?attributes=%7B%22customer%22%3A1%7D')->{status}, 403, 'nor can it be searched for');
my $details = "/api/saga-error-detail?id=$parked->{saga_id}";
is($site->request('GET', $details)->{status}, 403, 'nor DETAIL of its errors');

# A login.
is($site->login('alice', 'wrong')->{status}, 401, 'a wrong password is refused');
is($site->login('nobody', 'right')->{status}, 401, 'so is an unknown user');
is($site->request('GET', '/api/login?user=alice&password=right')->{status}, 405, 'and a login by GET');
is($site->login('alice', 'right', origin => undef)->{status}, 403, 'and one without an origin');
is($site->login('alice', 'right', origin => 'http://evil.example')->{status}, 403, 'and one of another site');
my $login = $site->login('alice', 'right');
is($login->{status}, 200, 'the right one is not');
like($login->{headers}{'set-cookie'}, qr/^stacksaga_session=[0-9a-f]{64}; Path=\/; HttpOnly; SameSite=Strict$/,
	'the cookie is for this site and not for scripts');
like($site->login('bob', 'other', origin => "https://127.0.0.1:" . $site->port)->{headers}{'set-cookie'}, qr/; Secure$/,
	'and for TLS alone where the page came by TLS');
for my $header ([ 'x-forwarded-proto' => 'https' ], [ 'x-forwarded-proto' => 'HTTPS, http' ], [ forwarded => 'for=192.0.2.1;Proto="https"' ],
	[ 'x-forwarded-ssl' => 'on' ])
{
	like($site->login('bob', 'other', @$header)->{headers}{'set-cookie'}, qr/; Secure$/, "so does one whose proxy says $header->[0]: $header->[1]");
}
my %alice = StacksagaSite::credentials($login);
is(ref $site->get($details, %alice), 'ARRAY', 'DETAIL of errors is for operators');
$saga = $site->get("/api/saga?id=$parked->{saga_id}", %alice);
like($saga->{input}{text}, qr/confidential/, 'an operator sees the input');
is($saga->{attributes}{customer}, 'confidential', 'and the attributes');
cmp_ok(length $site->get("/api/saga?id=$site->{large}", %alice)->{input}{text}, '<=', 65536, 'of which at most 64 kB');
cmp_ok($site->get("/api/saga?id=$site->{large}", %alice)->{input}{bytes}, '>', 65536, 'and how long it is');

# What a service says of its progress may hold what a payload holds.
my $priced = $node->safe_psql('postgres', q{SELECT c.saga_id FROM stacksaga.claim_steps((SELECT queue FROM stacksaga.queues WHERE queue LIKE 'pricing%'), 'pricer', 1) AS c,
	LATERAL stacksaga.extend_step(c.saga_id, c.step, c.lease, progress => '{"of": 7, "note": "confidential"}') AS e});
my %shown = map { my ($who, @as) = @$_; $who => $site->request('GET', "/api/saga?id=$priced", @as)->{content} } [ stranger => () ], [ operator => %alice ];
like($shown{operator}, qr/claimed by pricer, progress .*confidential/, 'an operator sees the progress of a step in the timeline');
is((grep { $_->{step} eq 'price' } @{ decode_json($shown{operator})->{attempts} })[0]{progress}, '{"of": 7, "note": "confidential"}', 'and with its attempt');
like($shown{stranger}, qr/claimed by pricer"/, 'a stranger sees who has claimed it');
unlike($shown{stranger} . $site->request('GET', "/saga/$priced")->{content}, qr/confidential/, 'and nothing of its progress');
like($site->request('GET', "/saga/$priced")->{content}, qr/claimed by pricer$/m, 'nor does anybody in the timeline as text');

# Actions: every one of these must change nothing.
sub status_now { return $node->safe_psql('postgres', "SELECT status FROM stacksaga.sagas WHERE saga_id = '$parked->{saga_id}'") }
my %object = (saga_ids => [ $parked->{saga_id} ], reason => 'because');
my $path = '/api/act/retry?dry_run=no';
my @attacks = (
	[ 'without a session', 401, headers => {cookie => ''} ],
	[ 'with a guessed session', 401, headers => {cookie => 'stacksaga_session=' . '0' x 64} ],
	[ 'without a token', 403, headers => {'x-csrf-token' => ''} ],
	[ 'with a wrong token', 403, headers => {'x-csrf-token' => 'f' x 64} ],
	[ 'with the first half of the token', 403, headers => {'x-csrf-token' => substr($alice{'x-csrf-token'}, 0, 32)} ],
	[ 'with the token of another session', 403, headers => {'x-csrf-token' => {StacksagaSite::credentials($site->login('bob', 'other'))}->{'x-csrf-token'}} ],
	[ 'from another site', 403, headers => {origin => 'http://evil.example'} ],
	[ 'from another port of this host', 403, headers => {origin => 'http://127.0.0.1:1'} ],
	[ 'from a page without an origin', 403, headers => {origin => 'null'} ],
	[ 'without an origin', 403, headers => {origin => ''} ],
	[ 'from another site by what the browser says', 403, headers => {'sec-fetch-site' => 'cross-site'} ],
	[ 'as a form', 415, headers => {'content-type' => 'application/x-www-form-urlencoded'} ],
	[ 'as plain text, as a form of another site may send it', 415, headers => {'content-type' => 'text/plain'} ],
	[ 'by GET', 405, method => 'GET' ],
	[ 'by HEAD', 405, method => 'HEAD' ],
	[ 'for another host', 421, headers => {host => 'evil.example'} ],
	[ 'with a list of a hundred thousand bytes', 413, body => 'x' x 100_000 ],
	[ 'of no name', 404, path => '/api/act/' ],
	[ 'that is for the commands alone', 404, path => '/api/act/reset-instants?dry_run=no' ],
	[ 'of another function', 404, path => '/api/act/define_saga?dry_run=no' ]);
for my $attack (@attacks)
{
	my ($what, $expected, %more) = @$attack;
	is($site->act($more{path} // $path, \%object, \%alice, %more), $expected, "an action $what ends with $expected");
}
is(status_now(), 'parked', 'none of them changed anything');
is($site->act('/api/act/retry', \%object, \%alice), 200, 'an action is tried first');
is(status_now(), 'parked', 'which changes nothing');
is($site->act('/api/act/resolve', {saga_id => $parked->{saga_id}, step => 'debit', outcome => 'done', reason => 'x'}, \%alice),
	200, 'also where the function knows no dry run');
is(status_now(), 'parked', 'which changes nothing either');
is($site->act('/api/act/retry', {saga_ids => ["'; DROP TABLE stacksaga.saga; --"], reason => 'x'}, \%alice), 400, 'no id is SQL');
is($site->act('/api/act/retry', {saga_ids => [ $parked->{saga_id} ], reason => $markup}, \%alice), 200, 'any reason is a text');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
is($site->act($path, \%object, \%alice), 200, 'then done');
ok($node->poll_query_until('postgres', qq{
	WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
	SELECT n >= 0 AND (SELECT status FROM stacksaga.sagas WHERE saga_id = '$parked->{saga_id}') = 'failed' FROM done}),
	'and the saga ends');
is($node->safe_psql('postgres', q{SELECT role_name, on_behalf_of, action, reason FROM stacksaga.operator_actions WHERE on_behalf_of <> '' AND action = 'retry'}),
	'page|alice|retry|because', 'recorded is who did it: the role, and for whom');

# A pause takes an instant, which is not SQL either.
for my $kind ('queue', 'subscription')
{
	my %pause = ($kind => $kind eq 'queue' ? "pricing $markup" : 'audit', reason => 'closed');
	my $paused = "SELECT paused, paused_until FROM stacksaga.${kind}s WHERE pause_reason = 'closed'";
	is($site->act("/api/act/pause-$kind?dry_run=no", {%pause, until => "'; DROP TABLE stacksaga.saga; --"}, \%alice), 400, "$kind: no text is an instant");
	is($site->act("/api/act/pause-$kind", {%pause, until => '2100-01-01T00:00:00Z'}, \%alice), 200, 'an instant is');
	is($node->safe_psql('postgres', $paused), '', 'tried first');
	is($site->act("/api/act/pause-$kind?dry_run=no", {%pause, until => '2100-01-01T00:00:00Z'}, \%alice), 200, 'then done');
	is($node->safe_psql('postgres', "SET timezone = 'UTC'; $paused"), 't|2100-01-01 00:00:00+00', 'until then');
	is($site->act("/api/act/pause-$kind?dry_run=no", \%pause, \%alice), 409, 'and not twice');
	is($site->act("/api/act/resume-$kind?dry_run=no", \%pause, \%alice), 200, 'it can go on before');
	is($node->safe_psql('postgres', $paused), '', 'and does');
}

# Old dead messages, by their ids, by their error and all of them: only where the operator says so.
is(StacksagaSite::add_dead_messages($node, 2), 3, 'three messages are dead');
$node->safe_psql('postgres', q{UPDATE stacksaga.dead_message SET published_at = published_at - interval '40 days'});
my ($message_id, $pattern) = split /\|/, $node->safe_psql('postgres', q{
	SELECT message_id, stacksaga_internal.error_pattern(last_error) FROM stacksaga.dead_messages LIMIT 1}), 2;
for my $redrive ([ redrive => message_ids => [$message_id] ], [ 'redrive-group' => pattern => $pattern ], [ 'redrive-all' => topic => 'orders' ])
{
	my ($action, %which) = @$redrive;
	my %old = (subscription => 'billing', reason => 'looked at', %which);
	is($site->act("/api/act/$action?dry_run=no", \%old, \%alice), 409, "$action refuses old messages");
	is($site->act("/api/act/$action", {%old, past_dedupe_retention => JSON::PP::true}, \%alice), 200, 'until the operator has looked at them');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.dead_messages'), '3', 'which is only a try');
}

# A message that has lost its payload does not keep the others of its group.
$node->safe_psql('postgres', qq{UPDATE stacksaga.dead_message SET payload = NULL WHERE message_id = '$message_id'});
is($site->act('/api/act/redrive-group?dry_run=no', {subscription => 'billing', reason => 'looked at', pattern => $pattern,
	past_dedupe_retention => JSON::PP::true}, \%alice), 200, 'a group with a message that cannot be delivered is redriven');
is($node->safe_psql('postgres', 'SELECT message_id FROM stacksaga.dead_messages'), $message_id, 'but for that message');

# Logged out, the session and its token are old.
is($site->act('/api/logout', {}, {%alice, 'x-csrf-token' => ''}), 403, 'nobody else can log her out');
is($site->act('/api/logout', {}, \%alice), 200, 'she can');
is($site->act($path, \%object, \%alice), 401, 'then her session has ended');
is($site->get('/api/session', %alice)->{user}, undef, 'and she is a stranger again');

# Guessing: five attempts a minute. The others are not locked out, and nor is the loop.
my @statuses = map { $site->login('alice', "guess $_", 'x-forwarded-for' => "192.0.2.$_")->{status} } 1 .. 5;
is_deeply(\@statuses, [ (401) x 5 ], 'five guesses are answered');
my $sixth = $site->login('alice', 'right', 'x-forwarded-for' => '192.0.2.6');
is($sixth->{status}, 429, 'the sixth is not, even if it is right and says that it comes from elsewhere');
cmp_ok($sixth->{headers}{'retry-after'}, '>', 30, 'and when to come back is said');
is($site->login('bob', 'other')->{status}, 200, 'another operator logs in');

# More passwords at once than it checks: those who come too late are told when to come back.
my @waiting = map {
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $site->port);
	my $form = "user=guest$_&password=x";
	print {$socket} "POST /api/login HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1:", $site->port, "\r\nOrigin: $origin\r\n",
	  "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ", length $form, "\r\n\r\n$form";
	$socket
} 1 .. 40;
my @late = grep { m{^HTTP/1.1 429} } map { my $socket = $_; join '', <$socket> } @waiting;
cmp_ok(scalar(@late), '>', 0, 'of many who log in at once some are refused');
is(scalar(grep { !/^Retry-After: 1\r$/m || !/too many log in at once.*Try again in 1 s/ } @late), 0, 'and told to come back in a second');

# Eight connections that send one invented name after the other, as fast as they are answered: who is known here
# logs in all the while, and who is not waits for seconds.
my @flood = map { my $number = $_; my $pid = fork // die $!; if ($pid == 0) { $site->login("guest$number-$_", 'x') for 1 .. 100_000; POSIX::_exit(0) } $pid } 1 .. 8;
ok($site->wait_until(sub { () = slurp_file($site->{log}) =~ /user=guest\d+-/g; slurp_file($site->{log}) =~ /user=guest\d+-3\b/ }), 'many invented names are tried');
is_deeply([ map { $site->login('bob', 'other')->{status} } 1 .. 15 ], [ (200) x 15 ], 'bob, who logged in from here before, does so');
is($site->login('dave', 'fourth')->{status}, 200, 'dave, who did not, does so too');
kill 'KILL', @flood;
waitpid $_, 0 for @flood;

# The file is read again on SIGHUP: who is gone is out at once; a file that others can read changes nothing.
my %bob = StacksagaSite::credentials($site->login('bob', 'other'));
is($site->get('/api/session', %bob)->{user}, 'bob', 'bob is known');
StacksagaSite::operators_file($program, carol => 'third');
$site->{daemon}->signal('HUP');
ok($site->wait_until(sub { !defined $site->get('/api/session', %bob)->{user} }), 'he is not, once the file does not name him');
is($site->login('carol', 'third')->{status}, 200, 'whom it names now logs in');
chmod 0644, $operators;
$site->{daemon}->signal('HUP');
ok($site->wait_until(sub { slurp_file($site->{log}) =~ /reload failed, the operators are unchanged/ }), 'a file that others can read is refused');
is($site->login('carol', 'third')->{status}, 200, 'and changes nothing');
unlike(slurp_file($site->{log}), qr/\$y\$|right|confidential/, 'the log has no password, no hash and no payload');
$site->stop;
chmod 0600, $operators;

# The role of the daemon cannot define, run or create rings, whatever a page would send.
for my $sql (q{SELECT stacksaga.define_saga('x', ARRAY[stacksaga.timer_step('t', '1 s')])}, q{SELECT stacksaga.run_pending()},
	q{SELECT stacksaga.create_ring('a', 'b')})
{
	my (undef, undef, $error) = $node->psql('postgres', "SET ROLE page; $sql");
	like($error, qr/permission denied/, "the role may not: $sql");
}

# A proxy names the operator: believed on a Unix socket and from its network, and from nobody else.
$site = StacksagaSite->new($node, $program, '--operator-header', 'X-Remote-User', '--trusted-proxy', '10.0.0.0/8');
my $named = $site->get('/api/session', 'x-remote-user' => 'mallory');
is($named->{user}, undef, 'a header of a stranger counts for nothing');
is($site->act($path, \%object, {'x-remote-user' => 'mallory', 'x-csrf-token' => 'x'}), 401, 'nor can he act');
is($site->request('GET', '/api/session', 'x-remote-user' => 'mallory', 'x-forwarded-for' => '10.0.0.1')->{content} =~ /"user": null/, 1,
	'not even if he says that he is the proxy');
$site->stop;

# From its network, over TCP; two names are no name.
$site = StacksagaSite->new($node, $program, '--operator-header', 'X-Remote-User', '--trusted-proxy', '127.0.0.0/8');
my %erin = (StacksagaSite::credentials($site->request('GET', '/api/session', 'x-remote-user' => 'erin')), 'x-remote-user' => 'erin');
is($site->get('/api/session', %erin)->{user}, 'erin', 'from the network of the proxy the header is believed');
is($site->act('/api/act/suspend', {saga_ids => [ $site->{running} ], reason => 'r'}, \%erin), 200, 'and its operator can act');
is($site->get('/api/session', 'x-remote-user' => "erin\r\nX-Remote-User: mallory")->{user}, undef, 'two names are no name');
$site->stop;

# Behind a proxy guesses are counted for each of its clients.
$site = StacksagaSite->new($node, $program, '--operators-file', $operators, '--trusted-proxy', '127.0.0.1');
my @guesses = map { $site->login('carol', "guess $_", 'x-forwarded-for' => '192.0.2.9, 192.0.2.1')->{status} } 1 .. 6;
is_deeply(\@guesses, [ (401) x 5, 429 ], 'a client of the proxy guesses five times');
is($site->login('carol', 'third', 'x-forwarded-for' => '192.0.2.1, 192.0.2.2')->{status}, 200, 'another one of its clients is not locked out');
# Guesses at one name from many addresses at once: a handful passes, and who logged in before still does.
my @spread = map {
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $site->port);
	print {$socket} "POST /api/login HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1:", $site->port, "\r\nOrigin: ", $site->origin,
	  "\r\nX-Forwarded-For: 203.0.113.$_\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 21\r\n\r\nuser=carol&password=x";
	$socket
} 1 .. 60;
my $answered = grep { m{^HTTP/1.1 401} } map { my $socket = $_; join '', <$socket> } @spread;
cmp_ok($answered, '<=', 13, 'of sixty guesses from as many addresses a dozen is answered');
is($site->login('carol', 'third', 'x-forwarded-for' => '192.0.2.2')->{status}, 200, 'she is not locked out where she logged in before');
is($site->login('dave', 'nothing', 'x-forwarded-for' => '203.0.113.1')->{status}, 401, 'nor is anybody else');
$site->stop;

my $socket = PostgreSQL::Test::Utils::tempdir_short() . '/http';
$site = StacksagaSite->new($node, $program, '--http', "unix:$socket", '--operator-header', 'X-Remote-User', '--allowed-host', 'ops.example');
is((stat $socket)[2] & 0777, 0660, 'only user and group may use the socket');
my @from_proxy = (host => 'ops.example', origin => 'https://ops.example', 'x-remote-user' => 'dora');
my $answer = $site->request('GET', '/api/session', @from_proxy);
my %dora = (StacksagaSite::credentials($answer), @from_proxy);
like($answer->{content}, qr/"user": "dora"/, 'on the socket the header is believed');
like($answer->{headers}{'set-cookie'}, qr/; Secure$/, 'and the session is for TLS alone');
is($site->act('/api/act/suspend', {saga_ids => [ $site->{running} ], reason => 'r'}, \%dora), 200, 'and she can act');
is($site->act('/api/act/suspend', {saga_ids => [ $site->{running} ], reason => 'r'}, {%dora, 'x-remote-user' => 'mallory'}), 401,
	'her session is not his');
is($site->act('/api/act/suspend', {saga_ids => [ $site->{running} ], reason => 'r'}, {%dora, 'x-remote-user' => ''}), 401,
	'nor that of a request without a name');
is($site->act('/api/act/suspend', {saga_ids => [ $site->{running} ], reason => 'r'}, {%dora, origin => 'https://ops.example.evil'}), 403,
	'and another site cannot use it');
$site->stop;
ok(!-e $socket, 'the socket is removed');

# A file that is no socket is not the daemon's to remove, neither at its start nor at its end.
append_to_file($socket, 'precious');
IPC::Run::run([ $program, 'master', '-d', $node->connstr('postgres'), '--http', "unix:$socket" ], '<', '/dev/null', '>', \my $no_output, '2>', \my $refusal);
like($refusal, qr/cannot listen on unix:\Q$socket\E: there is a file of that name, which is no socket/, 'a file in place of the socket is refused');
is(slurp_file($socket), 'precious', 'and left alone');
unlink $socket;
$site = StacksagaSite->new($node, $program, '--http', "unix:$socket");
rename $socket, "$socket.old" or die $!;
append_to_file($socket, 'precious');
$site->stop;
is(slurp_file($socket), 'precious', 'so is one that has taken its place');

# Without operators the page is read-only; --hide-payloads hides them from operators, too.
$site = StacksagaSite->new($node, $program);
is($site->act($path, \%object, {}), 403, 'without operators nobody acts');
is($site->login('alice', 'right')->{status}, 404, 'nor logs in');
$site->stop;
$site = StacksagaSite->new($node, $program, '--operators-file', $operators, '--hide-payloads');
my %carol = StacksagaSite::credentials($site->login('carol', 'third'));
is($site->get("/api/saga?id=$parked->{saga_id}", %carol)->{input}, undef, 'hidden payloads are hidden from operators');
unlike($site->request('GET', "/api/saga?id=$priced", %carol)->{content}, qr/confidential/, 'so is the progress of a step');
$site->stop;

# What is not safe is refused at the start, with 64 or 65.
for my $case (
	[ 64, '--operators-file', $operators, '--http', '0.0.0.0:0' ], [ 64, '--operator-header', 'X-User' ],
	[ 64, '--operator-header', 'X User', '--trusted-proxy', '10.0.0.1' ], [ 64, '--trusted-proxy', 'proxy' ],
	[ 64, '--operators-file', $operators, '--operator-header', 'X-User', '--trusted-proxy', '10.0.0.1' ],
	[ 65, '--operators-file', "$operators.missing" ], [ 65, '--operators-file', '/etc/passwd' ])
{
	my ($expected, @options) = @$case;
	IPC::Run::run([ $program, 'master', '-d', $node->connstr('postgres'), '--http', '127.0.0.1:0', @options ], '<', '/dev/null', '>', \my $out, '2>', \my $err);
	is($? >> 8, $expected, "@options ends with $expected") or diag($err);
}
done_testing();
