# Spans of finished sagas, as a collector of OpenTelemetry gets them: below their caller's span, each saga once
# while nothing fails, again after an answer that allows it, by one of several daemons.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaSite;

my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE page LOGIN;
	SELECT stacksaga.grant_usage('page', kind) FROM unnest(ARRAY['coordinator', 'monitor']) AS kind;
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF call.attempt = 1 THEN RAISE 'not yet "now"' USING ERRCODE = 'SR503'; END IF;
		RETURN '{}';
	END $$;
	SELECT stacksaga.define_saga('inner', ARRAY[stacksaga.queue_step('pack', 'packers', compensable => true)]);
	SELECT stacksaga.define_saga('order', ARRAY[
		stacksaga.sql_step('reserve', 'act(stacksaga.step_call)', retry => stacksaga.retry_policy(initial_interval => '0')),
		stacksaga.queue_step('charge', 'tills', compensable => true), stacksaga.child_step('send', 'inner')])});

# The collector.
my $collector = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 0, ReuseAddr => 1) or die $!;
my $port = $collector->sockport;

# The next request within a minute, answered with this status.
sub receive
{
	my ($status) = @_;
	IO::Select->new($collector)->can_read(60) or die "no request:\n" . slurp_file("$PostgreSQL::Test::Utils::log_path/coordinator_otlp_site.log");
	my $connection = $collector->accept;
	local $/ = "\r\n\r\n";
	my $head = <$connection>;
	my ($length) = $head =~ /^content-length: (\d+)/mi;
	my $body;
	read $connection, $body, $length;
	print $connection "HTTP/1.1 $status Answer\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
	close $connection;
	my @spans = map { @{ $_->{spans} } } map { @{ $_->{scopeSpans} } } @{ decode_json($body)->{resourceSpans} };
	return { head => $head, spans => \@spans, document => decode_json($body) };
}

# A saga that ends, traced if it has a traceparent. Returns its id.
sub run_saga
{
	my ($key, $traceparent) = @_;
	my $headers = defined $traceparent ? qq{{"traceparent": "$traceparent"}} : '{}';
	my $id = $node->safe_psql('postgres', "SELECT saga_id FROM stacksaga.start_saga('order', '{}', '$key', headers => '$headers')");
	$node->poll_query_until('postgres', qq{
		WITH ran AS MATERIALIZED (SELECT stacksaga.run_pending() AS n),
		done AS MATERIALIZED (
			SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM ran, unnest(ARRAY['tills', 'packers']) AS queue,
				LATERAL stacksaga.claim_steps(queue, 'till 7', CASE WHEN n >= 0 THEN 10 END) AS c)
		SELECT count(*) < 0 OR (SELECT status = 'completed' FROM stacksaga.sagas WHERE saga_id = '$id') FROM done})
	  or die 'the saga does not end';
	return $id;
}

sub text_of
{
	my ($span, $key) = @_;
	my ($attribute) = grep { $_->{key} eq $key } @{ $span->{attributes} };
	return $attribute->{value}{stringValue} // $attribute->{value}{intValue};
}
sub sagas_of
{
	my ($request) = @_;
	return join ' ', sort map { text_of($_, 'stacksaga.key') } grep { $_->{name} eq 'order' } @{ $request->{spans} };
}

my $trace = '0af7651916cd43dd8448eb211c80319c';
my $caller = 'b7ad6b7169203331';
my @options = ('--otlp-endpoint', "http://127.0.0.1:$port/", '--otlp-header', 'Authorization: Bearer confidential');
run_saga('not traced');
run_saga('not recorded', "00-$trace-$caller-00");
run_saga('first', "00-$trace-$caller-01");
# What anybody can lock stops nobody. A session without privileges is not asked for spans.
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
my $stranger = $node->background_psql('postgres', extra_params => [ '-U', 'stranger' ]);
$stranger->query_safe('SELECT pg_advisory_lock(1937009523, 1869900912)');
like(($node->psql('postgres', 'SET ROLE stranger; SELECT stacksaga_internal.hold_span_export()'))[2], qr/permission denied/,
	'a role without the kind cannot be the one that exports');
my $site = StacksagaSite->new($node, $program, @options);

my $refused = receive(503);
my $request = receive(200);
is_deeply($request->{document}, $refused->{document}, 'what a collector that is not ready has refused comes again');
like($request->{head}, qr{^POST /v1/traces HTTP/1.1\r\n}, 'at the path for traces');
like($request->{head}, qr{^authorization: Bearer confidential\r$}mi, 'with the header');
like($request->{head}, qr{^content-type: application/json\r$}mi, 'as JSON');
is(sagas_of($request), 'first', 'a saga without a traceparent, and one that its caller does not record, do not');
my %resource = map { $_->{key} => $_->{value}{stringValue} } @{ $request->{document}{resourceSpans}[0]{resource}{attributes} };
is_deeply(\%resource, { 'service.name' => 'stacksaga', 'db.namespace' => 'postgres' }, 'it says which database');

# The tree of names below a span.
my %below;
push @{ $below{ $_->{parentSpanId} } }, $_ foreach sort { $a->{name} cmp $b->{name} } @{ $request->{spans} };
sub tree
{
	my ($id) = @_;
	return [ map { my $children = tree($_->{spanId}); @$children ? { $_->{name} => $children } : $_->{name} } @{ $below{$id} // [] } ];
}
is_deeply(tree($caller),
	[ { order => [
		{ charge => ['attempt 1'] },
		{ reserve => [ 'attempt 1', 'attempt 2' ] },
		{ send => [ 'attempt 1', { inner => [ { pack => ['attempt 1'] } ] } ] } ] } ],
	'saga, steps and attempts stand below the span of the caller, a child saga below its step')
  or diag explain tree($caller);
is(scalar(grep { $_->{traceId} eq $trace } @{ $request->{spans} }), scalar @{ $request->{spans} }, 'in its trace');
is(scalar(grep { $_->{startTimeUnixNano} !~ /^\d{19}$/ || $_->{endTimeUnixNano} < $_->{startTimeUnixNano} } @{ $request->{spans} }),
	0, 'with instants in nanoseconds, begun before they end');
my ($first_attempt) = grep { ($_->{status}{message} // '') =~ /not yet/ && $_->{name} eq 'attempt 1' } @{ $request->{spans} };
is_deeply($first_attempt->{status}, { code => 2, message => 'not yet "now"' }, 'an attempt that failed has its error');
my ($reserve) = grep { $_->{name} eq 'reserve' } @{ $request->{spans} };
is_deeply($reserve->{status}, { code => 1 }, 'and its step, which was done at last, has none');
my ($charged) = @{ $below{ (grep { $_->{name} eq 'charge' } @{ $request->{spans} })[0]{spanId} } };
is(text_of($charged, 'stacksaga.worker'), 'till 7', 'an attempt says whose it was');
is(text_of($charged, 'stacksaga.attempt'), 1, 'and which');

# Each once; a refusal for good ends it.
run_saga('second', "00-$trace-$caller-01");
is(sagas_of(receive(400)), 'second', 'what was exported does not come again');
run_saga('third', "00-$trace-$caller-01");
is(sagas_of(receive(200)), 'third', 'nor does what was refused for good');
like(slurp_file($site->{log}), qr/spans are not exported.*HTTP 503.*spans are exported again/s, 'the log says both');

# Two daemons: the second one exports when the first one has ended.
my $second = StacksagaSite->new($node, $program, @options);
run_saga('fourth', "00-$trace-$caller-01");
is(sagas_of(receive(200)), 'fourth', 'of two daemons one exports');
$site->stop;
run_saga('fifth', "00-$trace-$caller-01");
my $again = receive(200);
my @taken = split / /, sagas_of($again);
push @taken, split / /, sagas_of(receive(200)) until grep { $_ eq 'fifth' } @taken;
is_deeply([ sort @taken ], [qw(fifth first fourth second third)], 'the other one goes on after it has ended, a minute back');
my ($id) = map { $_->{spanId} } grep { $_->{name} eq 'order' && text_of($_, 'stacksaga.key') eq 'first' } @{ $request->{spans} };
my ($same) = map { $_->{spanId} } grep { $_->{name} eq 'order' && text_of($_, 'stacksaga.key') eq 'first' } @{ $again->{spans} };
is($same, $id, 'with the same ids');

$stranger->quit;

# No collector: what finishes meanwhile waits for it.
close $collector;
run_saga('sixth', "00-$trace-$caller-01");
$second->wait_until(sub { slurp_file($second->{log}) =~ /the collector does not answer/ }) or die slurp_file($second->{log});
$collector = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1) or die $!;
is(sagas_of(receive(200)), 'sixth', 'a collector that was away gets it when it is back');
$second->stop;
unlike(slurp_file("$PostgreSQL::Test::Utils::log_path/coordinator_otlp_site.log"), qr/confidential/, 'the log has no token');

# Settings.
sub refuses
{
	my ($test, @words) = @_;
	my $ended = IPC::Run::run([ $program, 'check-config', @words ], '>', \my $out, '2>', \my $error);
	is($? >> 8, 64, $test);
	return like($error, qr/--otlp/, '... and names the option');
}
refuses('an endpoint is a URL of HTTP', '--otlp-endpoint', 'collector:4318');
refuses('a header has a name', '--otlp-header', 'confidential');
IPC::Run::run([ $program, 'master', '--print-config', @options ], '>', \my $printed);
like($printed, qr/otlp-header = "?Authorization/, 'settings are printed');
unlike($printed, qr/confidential/, 'without the token');
for my $endpoint ('https://me:confidential@collector/', 'https://collector/v1/traces?key=confidential', 'https://confidential@collector#confidential')
{
	for my $command ('master', 'check-config')
	{
		IPC::Run::run([ $program, $command, ($command eq 'master' ? '--print-config' : ()), '--otlp-endpoint', $endpoint, '-d', 'host=/nowhere' ],
			'>', \$printed, '2>', \my $error);
		like("$printed", qr/otlp-endpoint = "https:/, 'an endpoint is printed') if $command eq 'master';
		unlike("$printed$error", qr/confidential/, "$command prints no secret of it");
	}
}

done_testing;
