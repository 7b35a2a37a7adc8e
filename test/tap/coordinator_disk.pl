# A disk that is really full under the daemon's database: no window is half published and no step half
# done, the daemon and the server's worker say so and wait, and go on when there is room.
use strict;
use warnings;

use SmallDisk size => '48m';

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
SmallDisk::start_with_shop($node);
my $large = q{(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3000) AS n)};
$node->safe_psql('shop', qq{
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
				   ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
	SELECT stacksaga.register_node('a');
	CREATE TABLE effect (what text);
	ALTER TABLE effect ALTER what SET STORAGE external;
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO public.effect VALUES ($large);
		RETURN '{}';
	END \$\$;
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.sql_step('act', 'public.act(stacksaga.step_call)')]);
	SELECT FROM stacksaga.start_saga('s')});
my @to_shop = ('--http', '', '-d', $node->connstr('shop'));

sub wait_for_log
{
	my ($log, $pattern, $test) = @_;
	my $end = time + 120;
	select undef, undef, undef, 0.05 while slurp_file($log) !~ $pattern && time < $end;
	return like(slurp_file($log), $pattern, $test);
}

sub start_daemon
{
	my ($role, @options) = @_;
	my $log = "$PostgreSQL::Test::Utils::log_path/disk_$role.log";
	append_to_file($log, '');
	return (
		IPC::Run::start([ $program, $role, @options, @to_shop ], '<', '/dev/null', '>', '/dev/null', '2>>', $log),
		$log);
}

# No window has been published yet, so the table has no page that could take one.
SmallDisk::fill();
my $err = '';
IPC::Run::run([ $program, 'master', '--once', @to_shop ], '<', '/dev/null', '>', '/dev/null', '2>', \$err);
is($? >> 8, 69, 'a full disk ends --once with 69');
like($err, qr/class=reconnect error="could not extend file.*sqlstate=53100 hint="Check free disk space\."/,
	'it says so');
is($node->safe_psql('shop', 'SELECT count(*), (SELECT epoch FROM stacksaga.ring_status) FROM stacksaga.token_window'),
	'0|0', 'no window is published, and no epoch is used');

my ($master, $master_log) = start_daemon('master', '--name', 'm');
wait_for_log($master_log, qr/level=warn .*sqlstate=53100 .*retry_in_ms=/, 'a master that stays waits');
$node->safe_psql('shop', 'SELECT stacksaga.worker_ensure()');
my ($worker) = worker_pids($node, 'shop');
wait_for_log($node->logfile, qr/\[$worker\] \w+: .*could not extend file/, 'the worker of the server says so, too');
is($node->safe_psql('shop', 'SELECT count(*) FROM effect'), 0, 'nothing is half done');

SmallDisk::make_room();
ok($node->poll_query_until('shop', q{SELECT count(*) = 1 FROM stacksaga.sagas WHERE status = 'completed'}),
	'when there is room, the worker goes on');
is($node->safe_psql('shop', 'SELECT count(*) FROM effect'), 1, 'and does the step once');
ok($node->poll_query_until('shop', q{SELECT count(*) > 0 FROM stacksaga.token_window WHERE publisher = 'm'}),
	'and the master publishes');
$master->signal('TERM');
$master->finish;
is(($master->results)[0], 0, 'a master that met a full disk ends as it should');
$node->stop;
done_testing();
