# Schedules and workers: fired at the instant, once, whatever restarts, moves its clock or fails; kept
# by pg_dump.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('schedules');
$node->init(worker_databases => ['postgres']);
# So long that only a wake at the instant explains that anything is fired.
$node->append_conf('postgresql.conf', "stacksaga.poll_interval = '60s'\nstacksaga.workers = 3");
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
wait_until_works($node, 'postgres', 3);

sub query
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# The runs of a schedule that started a saga, in order.
my $runs = q{
	SELECT substr(key, length('%1$s@') + 1)::timestamptz AS run, status
	  FROM stacksaga.sagas WHERE key LIKE '%1$s@%%' ORDER BY key};

sub runs
{
	my ($schedule) = @_;
	return sprintf($runs, $schedule);
}

# Three workers, a run each second: none is late, and none is there twice.
query(q{SELECT stacksaga.create_schedule('seconds', 'answer', '* * * * * *')});
$node->poll_query_until('postgres', 'SELECT count(*) >= 5 FROM (' . runs('seconds') . ') AS r');
query(q{SELECT stacksaga.pause_schedule('seconds', 'enough')});
is(query('SELECT count(DISTINCT run) = count(*) AND max(run) - min(run) = (count(*) - 1) * interval \'1 s\'
	FROM (' . runs('seconds') . ') AS r'), 't', 'each second once, by three workers');
is(query(q{
	SELECT bool_and(created_at - substr(key, 9)::timestamptz < interval '10 seconds')
	  FROM stacksaga.sagas WHERE key LIKE 'seconds@%'}),
	't', 'at the instant, not at the next poll');
ok($node->poll_query_until('postgres',
		q{SELECT bool_and(status = 'completed') FROM (} . runs('seconds') . ') AS r'),
	'what it starts runs');

# Workers that are ended again and again, and a server that crashes: no second is lost, and none is there twice.
query(q{SELECT stacksaga.create_schedule('restarts', 'answer', '* * * * * *', catch_up => 'all')});
foreach my $round (1 .. 8)
{
	select(undef, undef, undef, 0.4);
	query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'
		ORDER BY random() LIMIT 2});
}
$node->stop('immediate');
$node->start;
$node->poll_query_until('postgres', q{SELECT next_run >= created_at + interval '12 seconds'
	FROM stacksaga.schedule WHERE schedule = 'restarts'});
query(q{SELECT stacksaga.pause_schedule('restarts', 'enough')});
is(query('SELECT count(DISTINCT run) = count(*) AND max(run) - min(run) = (count(*) - 1) * interval \'1 s\' AND count(*) >= 10
	FROM (' . runs('restarts') . ') AS r'), 't', 'each second once, whoever ends meanwhile');
query(q{SELECT stacksaga.drop_schedule('restarts')});
wait_until_works($node, 'postgres', 3);

# A schedule that is paused fires nothing; workers have nothing to do for it.
my $count = query('SELECT count(*) FROM (' . runs('seconds') . ') AS r');
query(q{SELECT stacksaga.create_schedule('other', 'answer', '* * * * * *')});
$node->poll_query_until('postgres', 'SELECT count(*) >= 2 FROM (' . runs('other') . ') AS r');
query(q{SELECT stacksaga.drop_schedule('other')});
is(query('SELECT count(*) FROM (' . runs('seconds') . ') AS r'), $count, 'a paused schedule waits');
query(q{SELECT stacksaga.drop_schedule('seconds')});

# A server that was away: its runs are caught up as each schedule says, once.
query(q{SELECT stacksaga.create_schedule(c, 'answer', '0 * * * *', catch_up => c)
	FROM unnest('{skip,last,all}'::text[]) AS c});
$count = query(q{SELECT count(*) FROM generate_series(
	date_trunc('hour', now()) + interval '1 hour', now() + interval '10 hours 90 seconds', '1 hour')});
$node->append_conf('postgresql.conf', "stacksaga.clock_offset = '10 hours 90 seconds'");
$node->stop('immediate');
$node->start;
wait_until_works($node, 'postgres', 3);
ok($node->poll_query_until('postgres',
		q{SELECT bool_and(next_run > stacksaga.clock_now()) FROM stacksaga.schedules}),
	'after a crash and ten hours nothing is due');
my %fired = map { $_ => query('SELECT count(*) FROM (' . runs($_) . ') AS r') } qw(skip last all);
# The hour itself may be less than a minute past, and is no missed run then.
my $is_on_time = query(q{SELECT count(*) FROM stacksaga.sagas
	WHERE key LIKE 'skip@%' AND created_at - substr(key, 6)::timestamptz < interval '60 s'});
is($fired{skip}, $is_on_time, 'catch_up skip: no missed run');
is($fired{last}, 1 + $is_on_time, 'catch_up last: the latest missed run');
cmp_ok($fired{all}, '>=', $count, 'catch_up all: each missed run');

# A clock that is set back, and forward again.
sub set_clock
{
	my ($offset) = @_;
	$node->append_conf('postgresql.conf', "stacksaga.clock_offset = '$offset'");
	$node->reload;
	return $node->poll_query_until('postgres', "SHOW stacksaga.clock_offset", $offset);
}
my $all = 'SELECT count(*) = count(DISTINCT run) FROM (' . runs('all') . ') AS r';
set_clock('2 hours');
query(q{SELECT stacksaga.create_schedule('soon', 'answer', '* * * * * *')});
$node->poll_query_until('postgres', 'SELECT count(*) >= 2 FROM (' . runs('soon') . ') AS r');
is(query('SELECT count(*) FROM (' . runs($_) . ') AS r'), $fired{$_}, "a clock set back fires no $_ again")
  foreach qw(skip last all);
query(q{SELECT stacksaga.drop_schedule('soon')});
set_clock('20 hours');
ok($node->poll_query_until('postgres',
		q{SELECT bool_and(next_run > stacksaga.clock_now()) FROM stacksaga.schedules}),
	'a clock set forward is noticed');
is(query($all), 't', 'and each run is there once');

# A schedule that fails keeps no other from running, and the log from filling.
my $start = -s $node->logfile;
query(q{
	SELECT stacksaga.define_saga('gone', ARRAY[stacksaga.timer_step('t', '0')]);
	SELECT stacksaga.create_schedule('broken', 'gone', '* * * * * *'),
	       stacksaga.create_schedule('sound', 'answer', '* * * * * *');
	UPDATE stacksaga.saga_definition SET is_current = false WHERE saga = 'gone'});
$node->poll_query_until('postgres',
	q{SELECT failures >= 3 FROM stacksaga.schedules WHERE schedule = 'broken'});
my $turns = query(q{SELECT count(*) FROM (} . runs('sound') . q{) AS r});
cmp_ok($turns, '>=', 3, 'others run meanwhile');
is(log_count($node, qr/schedule "broken" cannot start its saga/, $start), 1, 'the log says it once');
is(log_count($node, qr/ERROR/, $start), 0, 'a worker has no error of it');
cmp_ok(query(q{SELECT failures FROM stacksaga.schedules WHERE schedule = 'broken'}), '<=', $turns + 2,
	'it is tried ever more rarely');
query(q{UPDATE stacksaga.saga_definition SET is_current = true WHERE saga = 'gone'});
ok($node->poll_query_until('postgres',
		q{SELECT failures = 0 AND last_run IS NOT NULL FROM stacksaga.schedules WHERE schedule = 'broken'}),
	'and runs once its saga is there again');
query(q{SELECT stacksaga.drop_schedule(s) FROM unnest('{broken,sound}'::text[]) AS s});

# An error that is no schedule's: all of them wait, sagas run, and it is tried again without a hint. Every worker has to
# meet it: one that did not would go on, whatever became of those that did.
query(q{
	CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no disk'; END $$;
	CREATE TRIGGER broken BEFORE UPDATE ON stacksaga.schedule FOR EACH ROW EXECUTE FUNCTION broken();
	SELECT stacksaga.create_schedule('sound again', 'answer', '* * * * * *')});
$node->wait_for_log(qr/\[$_\] .*ERROR:  no disk/, $start) foreach worker_pids($node, 'postgres');
is(run_saga($node, 'postgres', 'answer'), 'completed', 'sagas run while no schedule can');
query(q{CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$});
ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM (' . runs('sound again') . ') AS r'),
	'schedules go on when they can');
query(q{SELECT stacksaga.drop_schedule('sound again'); DROP FUNCTION broken CASCADE});

# A dump keeps schedules, what they have fired, and whose they are.
query(q{
	CREATE ROLE planner;
	SELECT stacksaga.grant_usage('planner', 'operator');
	SET ROLE planner;
	SELECT stacksaga.create_schedule('kept', 'answer', '30 2 * * mon', '{"a": 1}', 'America/New_York',
		'all', 'skip');
	SELECT stacksaga.pause_schedule('kept', 'moving house')});
my $dump = "$PostgreSQL::Test::Utils::tmp_check/schedules.dump";
$node->prepare_dump('postgres');
command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
my $after = StacksagaCluster->new('after');
$after->init;
$after->start;
$after->safe_psql('postgres', 'CREATE ROLE planner');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $after->connstr('postgres'), $dump ],
	'pg_restore');
foreach my $question (
	'SELECT * FROM stacksaga.schedules ORDER BY schedule',
	'SELECT * FROM stacksaga.schedule_action ORDER BY schedule, action_no')
{
	is($after->safe_psql('postgres', $question), query($question), "same answer: $question");
}
my $later = q{SET stacksaga.clock_offset = '22 hours'; };
is($after->safe_psql('postgres', $later . q{
	SELECT stacksaga.resume_schedule('kept', 'moved');
	SELECT count(*) > 0 FROM (SELECT stacksaga.fire_schedules()) AS f;
	SELECT bool_and(next_run > stacksaga.clock_now() AND failures = 0) FROM stacksaga.schedules}),
	"\nt\nt", 'the restored schedules go on');
is($after->safe_psql('postgres', $all), 't', 'and fire nothing again that was fired before the dump');
$after->stop;

$node->stop;
done_testing();
