# In which order a worker does what is due: by priority, with one of eight steps for the lower ones, also while
# the highest never ends and sagas run ahead; and the same where the table is read by statements.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('worker_order');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', 'stacksaga.batch_size = 32');
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 1);
sub sql { return $node->safe_psql('postgres', @_) }

sql(q{
	CREATE TABLE done (n bigint GENERATED ALWAYS AS IDENTITY, rank integer, key text, step text);
	-- Each saga of the pressure that ends starts another one.
	CREATE TABLE pressure (goes_on boolean);
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO done (rank, key, step)
		SELECT CASE call.direction WHEN 'act' THEN priority ELSE 0 END, split_part(key, ' test', 1), call.step
		  FROM stacksaga.saga WHERE saga_id = call.saga_id;
		IF call.saga = 'endless' AND call.step = 'b' AND (SELECT goes_on FROM pressure) THEN
			PERFORM stacksaga.start_saga('endless', priority => 1);
		ELSIF call.saga = 'fails' AND call.attempt = 1 THEN
			RAISE EXCEPTION 'once' USING ERRCODE = 'SR503';
		END IF;
		RETURN NULL;
	END $$;
	CREATE FUNCTION step(name text) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
		SELECT stacksaga.sql_step(name, 'act(stacksaga.step_call)',
			retry => stacksaga.retry_policy(max_attempts => 5, initial_interval => '0', jitter => 0)) $$;
	SELECT stacksaga.define_saga('short', ARRAY[step('a')]),
	       stacksaga.define_saga('fails', ARRAY[step('a')]),
	       stacksaga.define_saga('timer', ARRAY[stacksaga.timer_step('wait', '0.1 s'), step('a')]),
	       stacksaga.define_saga('endless', ARRAY[step('a'), step('b')]),
	       stacksaga.define_saga('long', array_agg(step('s' || n) ORDER BY n)) FROM generate_series(1, 40) AS n;
	CREATE SEQUENCE test;
	CREATE PROCEDURE start(saga text, sagas integer, of_priority integer) LANGUAGE sql AS $$
		SELECT count(*) FROM generate_series(1, sagas) AS n, LATERAL stacksaga.start_saga(saga,
		       key => format('%s%s %s test %s', saga, of_priority, n, nextval('test')), priority => of_priority) $$;
	-- Of eight steps in a row, while any of a lower priority waited: how many of these were there, at least and at most?
	CREATE FUNCTION eights() RETURNS TABLE (fewest bigint, most bigint) LANGUAGE sql AS $$
		SELECT min(e.lower), max(e.lower)
		  FROM (SELECT row_number() OVER w AS n,
		               count(*) FILTER (WHERE rank > 1) OVER (w ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS lower,
		               count(*) FILTER (WHERE rank > 1) OVER (w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS left_lower,
		               count(*) FILTER (WHERE rank = 1) OVER (w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS left_first
		          FROM done WINDOW w AS (ORDER BY n)) AS e
		 WHERE e.n >= 8 AND left_lower > 0 AND left_first > 0 $$});

sub await_end
{
	return $node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM stacksaga.sagas WHERE finished_at IS NULL});
}

sub run_all
{
	my ($how) = @_;

	# All at once, in one transaction: by priority, the oldest first.
	sql(q{TRUNCATE done; BEGIN; CALL start('short', 2, 5); CALL start('short', 4, 3); CALL start('short', 3, 2);
		CALL start('short', 16, 1); COMMIT});
	await_end();
	is(sql(q{
		SELECT min(place - before), count(*) BETWEEN 2 AND 4
		  FROM (SELECT place, lag(place) OVER (ORDER BY n) AS before
		          FROM (SELECT *, row_number() OVER (ORDER BY n) AS place FROM done) AS d
		         WHERE EXISTS (SELECT FROM done AS later WHERE later.n > d.n AND later.rank < d.rank)) AS turns}),
		'8|t', "$how: by priority, but for the turns of lower ones");
	is(sql(q{SELECT count(*) FROM (SELECT rank FROM done ORDER BY n LIMIT 16) AS d WHERE rank > 1}), 2,
		"$how: which get two of the first sixteen");
	is(sql(q{SELECT min(key) FROM done WHERE n = (SELECT min(n) FROM done WHERE rank > 1)}), 'short5 1',
		"$how: and the longest-waiting of these");
	is(sql(q{SELECT count(*) FROM done a JOIN done b ON a.n < b.n AND a.rank = b.rank
		WHERE substr(a.key, 8)::int > substr(b.key, 8)::int}), 0, "$how: the oldest of a priority first");

	# More than a batch holds, and steps that follow each other.
	sql(q{TRUNCATE done; BEGIN; CALL start('long', 1, 5); CALL start('short', 20, 4); CALL start('long', 12, 1); COMMIT});
	await_end();
	is(sql('SELECT * FROM eights()'), '1|1', "$how: sagas that run ahead keep nobody from a turn, and have no more than it");

	# Permanent pressure: the lowest priority advances, with no less than a step of eight.
	sql(q{TRUNCATE done, pressure; INSERT INTO pressure VALUES (true);
		BEGIN; CALL start('endless', 100, 1); CALL start('short', 150, 5); COMMIT});
	my $low_ends = q{SELECT count(*) = 0 FROM stacksaga.saga WHERE priority = 5 AND finished_at IS NULL};
	my $pressed = q{SELECT count(*) >= 100 FROM stacksaga.saga WHERE priority = 1 AND finished_at IS NULL};
	ok($node->poll_query_until('postgres', $low_ends), "$how: the lowest priority ends while the highest never does");
	is(sql($pressed), 't', "$how: as it still does not");
	is(sql('SELECT * FROM eights()'), '1|1', "$how: it gets a step of eight");
	# So do retries and timers.
	sql(q{BEGIN; CALL start('fails', 50, 5); CALL start('timer', 30, 5); COMMIT});
	ok($node->poll_query_until('postgres', $low_ends), "$how: retries and timers of the lowest priority come to their turn");
	is(sql($pressed), 't', "$how: under the same pressure");
	sql('UPDATE pressure SET goes_on = false');
	await_end();
}

run_all('by the indexes');
sql(q{
	BEGIN;
	ALTER TABLE stacksaga.work RENAME TO work_plain;
	CREATE TABLE stacksaga.work (LIKE stacksaga.work_plain INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY HASH (saga_id);
	CREATE TABLE stacksaga.work_0 PARTITION OF stacksaga.work FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE stacksaga.work_1 PARTITION OF stacksaga.work FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	COMMIT});
run_all('by statements');

$node->stop;
done_testing();
