# The history of a saga lists exactly what its handlers published and did not roll back: handlers publish at random, in
# subtransactions some of which are rolled back, and fail at random, in batches of two workers and in run_pending(). The
# model is a table that each handler writes beside each message, in the same subtransaction.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $sagas = $ENV{STACKSAGA_SAGAS} // 400;
my $node = StacksagaCluster->new('published');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
stacksaga.workers = 2
stacksaga.retry_budget = -1
stacksaga.batch_size = 30});
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 2);

$node->safe_psql('postgres', q{
	CREATE SEQUENCE published; -- counts what is rolled back, too
	CREATE TABLE sent (n bigint NOT NULL, saga_id uuid, step text, direction text, attempt integer, message_id uuid, topic text,
		key text, transaction xid8 DEFAULT pg_current_xact_id());
	CREATE FUNCTION send(call stacksaga.step_call, how_many integer) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE a_topic text := 'topic ' || (random() * 5)::integer; a_key text := 'Schlüssel ' || (random() * 9)::integer; n bigint;
	BEGIN
		IF how_many = 1 THEN
			a_key := CASE WHEN random() < 0.5 THEN a_key END;
			INSERT INTO sent VALUES (nextval('published'), call.saga_id, call.step, call.direction, call.attempt,
				stacksaga.publish(a_topic, to_jsonb(call), a_key), a_topic, a_key);
			RETURN;
		END IF;
		INSERT INTO sent SELECT nextval('published'), call.saga_id, call.step, call.direction, call.attempt, id, a_topic, a_key
		  FROM stacksaga.publish_batch(a_topic, array_fill(to_jsonb(call), ARRAY[how_many]), array_fill(a_key, ARRAY[how_many])) AS id;
	END $$;
	-- What is deferred to the end of the handler is of the handler.
	CREATE TABLE later (call stacksaga.step_call);
	CREATE FUNCTION send_later() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM send(NEW.call, 1);
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER send_later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION send_later();
	CREATE FUNCTION act(call stacksaga.step_call, depth integer) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. (random() * 3)::integer LOOP
			CASE (random() * 8)::integer
				WHEN 0, 1, 2 THEN PERFORM send(call, 1);
				WHEN 3 THEN PERFORM send(call, 2 + (random() * 9)::integer);
				WHEN 4 THEN INSERT INTO later VALUES (call);
				ELSE
					IF depth < 4 THEN
						BEGIN
							PERFORM act(call, depth + 1);
							IF random() < 0.4 THEN RAISE EXCEPTION 'rolled back' USING ERRCODE = 'SG499'; END IF;
						EXCEPTION WHEN SQLSTATE 'SG499' THEN NULL;
						END;
					END IF;
			END CASE;
		END LOOP;
	END $$;
	CREATE FUNCTION handle(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF random() < 0.5 THEN PERFORM act(call, 0); END IF;
		IF random() < 0.05 THEN PERFORM send(call, 15); PERFORM act(call, 0); PERFORM send(call, 10); END IF;
		IF random() < 0.1 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = 'SR503'; END IF;
		IF random() < 0.03 AND call.direction = 'act' THEN RAISE EXCEPTION 'never' USING ERRCODE = 'SG424'; END IF;
		RETURN NULL;
	END $$;
	-- One of messages publishes for nobody.
	CREATE FUNCTION relay(stacksaga.message) RETURNS void LANGUAGE sql AS
		$$ SELECT stacksaga.publish('relayed', to_jsonb($1)) WHERE random() < 0.5 $$;
	SELECT stacksaga.create_subscription('relay', 'topic 1', 'relay(stacksaga.message)', start_at => 'earliest');
	SELECT stacksaga.define_saga('sends', array_agg(stacksaga.sql_step('s' || n, 'handle(stacksaga.step_call)',
			'handle(stacksaga.step_call)', fallback => CASE WHEN n = 3 THEN 'handle(stacksaga.step_call)' END)),
		retry => stacksaga.retry_policy(max_attempts => 20, initial_interval => '1 ms', max_interval => '5 ms'))
	  FROM generate_series(1, 6) AS n;});

# What was started in a transaction is run by run_pending() in it, some of that is rolled back, and workers do the rest.
my $unfinished = q{SELECT count(*) FROM stacksaga.saga WHERE status NOT IN ('completed', 'failed')};
for my $part (1 .. 10)
{
	my $count = $sagas / 10;
	$node->safe_psql('postgres', qq{
		BEGIN;
		SELECT count(*) FROM generate_series(1, $count) AS n, LATERAL stacksaga.start_saga('sends', key => '$part ' || n);
		SELECT count(stacksaga.publish('topic 1', '{}')) FROM generate_series(1, 3);
		SELECT stacksaga.run_pending(30);
		SAVEPOINT before;
		SELECT stacksaga.run_pending(10);
		ROLLBACK TO before;
		SELECT stacksaga.run_pending(10);
		COMMIT});
}
ok($node->poll_query_until('postgres', "SELECT ($unfinished) = 0"), 'all sagas end');

is($node->safe_psql('postgres', q{
	WITH sent AS (
		SELECT saga_id, step, direction, attempt, jsonb_build_object('count', count(*), 'messages',
		           jsonb_agg(jsonb_strip_nulls(jsonb_build_object('topic', topic, 'key', key, 'message_id', message_id)) ORDER BY n)
		               FILTER (WHERE place <= 20)) AS published
		  FROM (SELECT *, row_number() OVER (PARTITION BY saga_id, step, direction, attempt ORDER BY n) AS place FROM sent) AS s
		 GROUP BY saga_id, step, direction, attempt)
	SELECT saga_id, step, direction, attempt, h.status, h.worker, h.published AS listed, s.published AS sent
	  FROM stacksaga.saga_history h FULL JOIN sent s USING (saga_id, step, direction, attempt)
	 WHERE h.published IS DISTINCT FROM s.published LIMIT 3}), '', 'the history lists what each attempt published, and nothing else');

# What the comparison was about.
my ($failed, $compensated, $cut, $by_worker, $by_pending, $undone, $ahead) = split /\|/, $node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE direction = 'compensate' AND published IS NOT NULL),
	       count(*) FILTER (WHERE (published -> 'count')::integer > 20),
	       count(*) FILTER (WHERE worker LIKE 'worker%' AND published IS NOT NULL),
	       count(*) FILTER (WHERE worker = 'run_pending' AND published IS NOT NULL),
	       (SELECT last_value - (SELECT count(*) FROM sent) FROM published),
	       (SELECT count(*) FROM (SELECT FROM sent GROUP BY saga_id, transaction HAVING count(DISTINCT step) > 1) AS t)
	  FROM stacksaga.saga_history});
cmp_ok($failed, '>', 0, "$failed attempts failed");
cmp_ok($compensated, '>', 0, "$compensated compensations published");
cmp_ok($cut, '>', 0, "$cut attempts published more than is listed");
cmp_ok($by_worker, '>', 0, "$by_worker attempts were a worker's");
cmp_ok($by_pending, '>', 0, "$by_pending were those of run_pending()");
cmp_ok($undone, '>', 0, "$undone messages were rolled back");
cmp_ok($ahead, '>', 0, "$ahead transactions ran several steps of a saga that published");

$node->stop;
done_testing();
