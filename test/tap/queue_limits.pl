# Limits of a queue while services claim, wait, crash and are restored: never more leases than allowed;
# a waiter returns when there is room, and not before; lower priorities and all groups advance under
# permanent pressure.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWaiter;

my $node = StacksagaCluster->new('limits');
$node->init;
$node->start;
$node->create_extension('postgres');
sub psql { return $node->safe_psql('postgres', @_) }

psql(q{
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.queue_step('a', 'q', compensable => true,
		retry => stacksaga.retry_policy(initial_interval => '1 hour', max_interval => '1 hour', jitter => 0))]);
	SELECT stacksaga.define_saga('soaked', ARRAY[stacksaga.queue_step('a', 'soaked', compensable => true)]);
	CREATE VIEW leases AS SELECT * FROM stacksaga.work WHERE lease_until IS NOT NULL;
	-- What services do, until told to stop: claim, commit, complete, and start as many again.
	CREATE TABLE soak (goes_on boolean);
	CREATE TABLE done (n bigint GENERATED ALWAYS AS IDENTITY, saga_id uuid, priority integer, group_key text);
	CREATE PROCEDURE serve(max_steps integer) LANGUAGE plpgsql AS $$
	DECLARE
		claimed stacksaga.claimed_step[];
	BEGIN
		WHILE (SELECT goes_on FROM soak) LOOP
			claimed := ARRAY(SELECT c FROM stacksaga.claim_steps('soaked', 'w', max_steps, '3 s') AS c);
			COMMIT;
			INSERT INTO done (saga_id, priority, group_key)
			SELECT saga_id, s.priority, s.group_key FROM unnest(claimed) AS c JOIN stacksaga.saga s USING (saga_id);
			PERFORM stacksaga.start_saga('soaked', priority => 1, group_key => 'group ' || (random() * 3)::integer)
			  FROM unnest(claimed);
			IF random() < 0.1 THEN
				PERFORM stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'retryable', '0.1 s') FROM unnest(claimed) AS c;
			ELSE
				PERFORM stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM unnest(claimed) AS c;
			END IF;
			IF random() < 0.1 THEN
				ROLLBACK; -- as if the service had died: its leases run out
			ELSE
				COMMIT;
			END IF;
		END LOOP;
	END $$;
	-- The most leases that it has seen, in all and of one group, in so many looks.
	CREATE TABLE seen (all_groups bigint, one_group bigint);
	CREATE PROCEDURE watch(looks integer) LANGUAGE plpgsql AS $$
	DECLARE
		most bigint := 0;
		most_of_group bigint := 0;
	BEGIN
		FOR i IN 1 .. looks LOOP
			SELECT greatest(most, sum(n)), greatest(most_of_group, max(n) FILTER (WHERE group_key <> ''))
			  INTO most, most_of_group
			  FROM (SELECT group_key, count(*) AS n FROM leases WHERE queue = 'soaked' GROUP BY group_key) AS g;
			COMMIT;
		END LOOP;
		INSERT INTO seen VALUES (most, most_of_group);
	END $$});

# Waiting.
my $service = StacksagaWaiter->new($node, 'q', 20);
my $pid = $service->{pid};

psql(q{
	SELECT stacksaga.set_queue('q', max_running => 1);
	SELECT count(*) FROM generate_series(1, 20) AS n, LATERAL stacksaga.start_saga('s', key => n::text)});
my ($id, $lease) = split /\|/, psql(q{SELECT saga_id, lease FROM stacksaga.claim_steps('q', 'w', 10, '10 minutes')});
$service->woken_by('a completion makes room',
	sub {
		# What falls due does not end the wait while the queue is full.
		psql(q{SELECT stacksaga.start_saga('s')});
		is(psql("SELECT state FROM pg_stat_activity WHERE pid = $pid"), 'active', 'a step without room wakes nobody');
		psql("SELECT stacksaga.complete_step('$id', 'a', $lease)");
	});
($id, $lease) = split /\|/, psql(q{SELECT saga_id, lease FROM stacksaga.claim_steps('q', 'w', 10, '10 minutes')});
$service->woken_by('a failure makes room', sub { psql("SELECT stacksaga.fail_step('$id', 'a', $lease, 'no', 'retryable')") });
psql(q{SELECT stacksaga.claim_steps('q', 'w', 10, '10 minutes')});
$service->woken_by('a higher limit makes room', sub { psql(q{SELECT stacksaga.set_queue('q', max_running => 2)}) });
psql(q{SELECT stacksaga.claim_steps('q', 'w', 10, '3 seconds')});
$service->woken_by('a lease that runs out makes room', sub { });
psql(q{
	SELECT stacksaga.set_queue('q');
	SELECT stacksaga.complete_step(saga_id, 'a', lease) FROM leases WHERE queue = 'q';
	SELECT stacksaga.set_queue('q', rate => 2, rate_interval => '4 seconds');
	SELECT stacksaga.claim_steps('q', 'w', 10)});
$service->woken_by('the next instant of a rate wakes it', sub { });
is(psql(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10)}), 2, 'and then there is something to claim');
psql(q{SELECT stacksaga.set_queue('q'); SELECT stacksaga.pause_queue('q', 'a test')});
$service->woken_by('the end of a pause wakes it', sub { psql(q{SELECT stacksaga.resume_queue('q', 'a test')}) });
psql(q{
	SELECT stacksaga.set_queue('q', max_running_per_group => 1);
	SELECT stacksaga.complete_step(saga_id, 'a', lease) FROM stacksaga.claim_steps('q', 'w', 100);
	SELECT count(*) FROM generate_series(1, 2) AS n, LATERAL stacksaga.start_saga('s', key => 'g' || n, group_key => 'g');
	SELECT stacksaga.claim_steps('q', 'w', 10, '10 minutes')});
$service->woken_by('room in a group wakes it', sub {
	psql(q{SELECT stacksaga.complete_step(saga_id, 'a', lease) FROM leases WHERE queue = 'q' AND group_key = 'g'}) });
$service->quit;

# Sixteen claimers; what is observed meanwhile never passes the limits.
psql(q{
	INSERT INTO soak VALUES (true);
	SELECT stacksaga.set_queue('soaked', max_running => 25, max_running_per_group => 10);
	SELECT count(*) FROM generate_series(1, 100) AS n, LATERAL
		stacksaga.start_saga('soaked', priority => 1, group_key => 'group ' || n % 4, key => n::text);
	SELECT count(*) FROM generate_series(1, 40) AS n, LATERAL
		stacksaga.start_saga('soaked', priority => 5, group_key => 'group ' || n % 4, key => 'low ' || n)});
my @claimers = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 16;
my $calls = 0;
for my $claimer (@claimers)
{
	$claimer->{stdin} .= sprintf("CALL serve(%d); \\echo over\n", 1 + $calls++ % 5);
	$claimer->{run}->pump_nb;
}
psql('CALL watch(3000)');
$node->poll_query_until('postgres', q{SELECT count(DISTINCT saga_id) = 40 FROM done WHERE priority = 5})
  or die 'the lowest priority does not advance';
pass('the lowest priority advances while the highest has more to do than is done');
is(psql('SELECT all_groups <= 25, one_group <= 10 FROM seen'), 't|t', 'no look saw more leases than allowed');
is(psql('SELECT all_groups > 5 FROM seen'), 't', 'nor did it look at nothing');
# Each session gives them a step of eight. (Until 25 of the 40 had come: then it may be that none waits.)
is(psql(q{
	SELECT count(*) <= 8 * count(*) FILTER (WHERE priority = 5) + 8 * 16 FROM done
	 WHERE n <= (SELECT min(n) FROM done WHERE priority = 5 GROUP BY saga_id ORDER BY min(n) OFFSET 24 LIMIT 1)}),
	't', 'with a step of eight');

# The limit changes while they claim. As soon as no more run than it allows, it is never passed again; also where
# there was none before.
for my $limit (4, 0, 7)
{
	psql('SELECT stacksaga.set_queue($$soaked$$, max_running => nullif(' . $limit . ', 0))');
	$node->poll_query_until('postgres', $limit > 0 ? "SELECT count(*) <= $limit FROM leases WHERE queue = 'soaked'"
		: q{SELECT count(*) > 20 FROM leases WHERE queue = 'soaked'}) or die "a limit of $limit is not seen";
	psql('TRUNCATE seen; CALL watch(1000)');
	is(psql("SELECT all_groups BETWEEN 1 AND $limit FROM seen"), 't', "a limit of $limit under load") if $limit > 0;
}
psql('UPDATE soak SET goes_on = false');
$_->query_until(qr/over/, '') for @claimers;
$_->quit for @claimers;
is(psql(q{SELECT count(DISTINCT group_key) FROM (SELECT * FROM done ORDER BY n LIMIT 200) AS d}), 4,
	'all groups are among the first');

# A server that dies between a claim and its commit leaves the slots free.
psql(q{SELECT stacksaga.set_queue('q', max_running => 3);
	SELECT stacksaga.complete_step(saga_id, 'a', lease) FROM leases WHERE queue = 'q'});
psql(q{SELECT count(*) FROM generate_series(1, 9) AS n, LATERAL stacksaga.start_saga('s', key => 'crash ' || n)});
my $claimer = $node->background_psql('postgres', on_error_stop => 0);
is($claimer->query(q{BEGIN; SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 2)}), 2, 'a claim that is not committed');
$node->stop('immediate');
$claimer->{run}->finish;
$node->start;
is(psql(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10, '10 minutes')}), 3, 'all slots are free after the crash');
is(psql(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10)}), 0, 'and no more');

# A restore with leases open: the leases count, and limits and rates are kept.
psql(q{SELECT stacksaga.set_queue('q', max_running => 4, rate => 5, rate_interval => '1 hour');
	SELECT stacksaga.pause_queue('soaked', 'before the dump')});
is(psql(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10, '10 minutes')}), 1, 'one more before the dump');
my $dump = $node->basedir . '/dump.sql';
$node->prepare_dump('postgres');
command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'dumped');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ], 'restored');
sub restored { return $node->safe_psql('restored', @_) }
is(restored(q{SELECT running, max_running, rate, rate_interval FROM stacksaga.queues WHERE queue = 'q'}),
	'4|4|5|01:00:00', 'the limits and the leases are there');
is(restored(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10)}), 0, 'the leases hold their slots');
restored(q{SELECT stacksaga.complete_step(saga_id, 'a', lease) FROM leases WHERE queue = 'q'});
is(restored(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10)}), 4, 'until they are completed');
is(restored(q{SELECT paused, pause_reason FROM stacksaga.queues WHERE queue = 'soaked'}), 't|before the dump', 'a pause is kept');
restored(q{SELECT stacksaga.complete_step(saga_id, 'a', lease) FROM leases WHERE queue = 'q'});
is(restored(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10)}), 0, 'the claims before the dump count in the rate');

$node->stop;
done_testing();
