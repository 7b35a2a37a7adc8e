# On Citus: schedules, and the daemon that serves each node of a cluster as a server: windows, the status, numbers, pages
# and spans. Runs where Citus is installed.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use PostgreSQL::Test::Utils;
use StacksagaCitus;
use StacksagaSite;
use Test::More;

StacksagaCitus::skip_without_citus();
my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;
my $cluster = StacksagaCitus->new(2, "stacksaga.databases = 'postgres'\nstacksaga.coordination = 'coordinator'");
my $main = $cluster->coordinator;
my @workers = ($cluster->worker(0), $cluster->worker(1));
$main->safe_psql('postgres', q{SELECT stacksaga.citus_enable(shard_count => 8, sagas => true); CREATE ROLE page LOGIN});
$_->safe_psql('postgres', q{SELECT stacksaga.grant_usage('page', kind)
	FROM unnest(ARRAY['coordinator', 'monitor', 'support', 'operator']) AS kind}) for $main, @workers;
$main->safe_psql('postgres', q{
	CREATE FUNCTION act(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF step.saga = 'stuck' AND step.direction = 'compensate' THEN RAISE 'stuck' USING ERRCODE = 'SG424'; END IF;
		RETURN '{}';
	END $$;
	SELECT stacksaga.define_saga('tick', ARRAY[stacksaga.sql_step('a', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('stuck', ARRAY[
		stacksaga.sql_step('a', 'act(stacksaga.step_call)', compensation => 'act(stacksaga.step_call)'), stacksaga.queue_step('b', 'b', compensable => true)])});

my $collector = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 0, ReuseAddr => 1) or die $!;
my $site = StacksagaSite->new($main, $program, (map { ('-d', $_->connstr('postgres') . ' user=page') } @workers),
	'--otlp-endpoint', 'http://127.0.0.1:' . $collector->sockport . '/');

# Windows are published to each node, whose workers then run what is in its shards.
for my $node ($main, @workers)
{
	ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM stacksaga.ring_status WHERE window_end > stacksaga.clock_now()
		AND coverage = 1}), $node->name . ' has a window, and its worker all slots');
}
my $traced = '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}';
$main->safe_psql('postgres', qq{SELECT count(*) FROM generate_series(1, 30) AS i, stacksaga.start_saga('tick', '{}', i::text, headers => '$traced')});
ok($main->poll_query_until('postgres', q{SELECT count(*) = 30 FROM stacksaga.saga WHERE status = 'completed'}), 'sagas run');

# Spans: each saga once, by the node that has it.
my %spans;
for (my $tries = 0; $tries < 10 && keys %spans < 30; ++$tries)
{
	IO::Select->new($collector)->can_read(60) or last;
	my $connection = $collector->accept;
	local $/ = "\r\n\r\n";
	my $head = <$connection>;
	my ($length) = $head =~ /^content-length: (\d+)/mi;
	read($connection, my $body, $length);
	print $connection "HTTP/1.1 200 Answer\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
	close $connection;
	++$spans{ $_->{spanId} } for grep { $_->{name} eq 'tick' } map { @{ $_->{spans} } } map { @{ $_->{scopeSpans} } }
	  @{ decode_json($body)->{resourceSpans} };
}
is(scalar(keys %spans), 30, 'each saga has its span');
is(scalar(grep { $_ > 1 } values %spans), 0, 'once, though each node is asked');

# A schedule on two nodes starts one saga for each instant.
$_->safe_psql('postgres', q{SELECT stacksaga.create_schedule('each second', 'tick', '* * * * * *', overlap => 'skip')}) for $main, $workers[0];
ok($main->poll_query_until('postgres', q{SELECT count(*) >= 3 FROM stacksaga.saga WHERE key LIKE 'each second@%' AND status = 'completed'}),
	'a schedule starts sagas on any node');
ok($_->poll_query_until('postgres', q{SELECT last_saga_id IS NOT NULL AND failures = 0 FROM stacksaga.schedules}), $_->name . ' fires it')
  for $main, $workers[0];
is($main->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.saga WHERE key LIKE 'each second@%' GROUP BY key HAVING count(*) > 1}), '',
	'and one for each instant');
$_->safe_psql('postgres', q{SELECT stacksaga.drop_schedule('each second')}) for $main, $workers[0];

# What the daemon shows.
$main->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 8) AS i, stacksaga.start_saga('stuck', '{}', 's' || i)});
$main->poll_query_until('postgres', q{SELECT count(*) = 8 FROM stacksaga.work WHERE queue = 'b'});
$main->safe_psql('postgres', q{SELECT count(stacksaga.cancel_saga(stacksaga.saga_id_of('stuck', 's' || i), 'x')) FROM generate_series(1, 8) AS i});
$main->poll_query_until('postgres', q{SELECT count(*) = 8 FROM stacksaga.saga WHERE status = 'parked'});
sub databases { return @{ $site->get('/status')->{databases} } }
ok($site->wait_until(sub {
	my $parked = 0;
	$parked += $_->{status}{parked} // $_->{parked} // 0 for databases();
	return $parked == 8;
}), 'the status of all nodes has each parked saga once') or diag(substr(encode_json([ databases() ]), 0, 3000));
my $metrics = $site->request('GET', '/metrics')->{content};
my $parked = 0;
$parked += $1 while $metrics =~ /^stacksaga_sagas_parked\{[^}]*\} (\d+)/mg;
is($parked, 8, 'and so have the numbers');
my @names = map { $_->{name} } databases();
my @ids = split /\n/, $main->safe_psql('postgres', q{SELECT stacksaga.saga_id_of('stuck', 's' || i) FROM generate_series(1, 8) AS i});
for my $name (@names)
{
	for my $path (map { "/api/$_" } 'sagas', 'sagas-of-key?key=s3', 'queues', 'blocked-keys', 'dead-messages?subscription=x', 'schedules', 'definitions',
		'definition?saga=tick', 'operator-actions', 'history')
	{
		my $answer = $site->request('GET', $path . ($path =~ /\?/ ? '&' : '?') . "database=$name");
		is($answer->{status}, 200, "$path of $name") or diag($answer->{content});
	}
}
for my $id (@ids)
{
	is(join(' ', sort map { $site->request('GET', "/api/saga?id=$id&database=$_")->{status} } @names), '200 404 404', 'one node has the saga');
}
$site->stop;
done_testing();
