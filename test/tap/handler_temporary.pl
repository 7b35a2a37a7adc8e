# After each call of a handler the session's temporary objects are as before it: in a worker, where many sagas and
# messages share a transaction, and in run_pending().
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('temporary');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE alice;
	SELECT stacksaga.grant_usage('alice', 'operator');
	CREATE TABLE invoice (of text, lines bigint, what text);
	CREATE TABLE tried (what text);
	GRANT ALL ON invoice, tried TO alice;
	-- No user's code is run when something is dropped.
	CREATE FUNCTION note_drop() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.tried VALUES ('event trigger as ' || current_user);
	END $$;
	CREATE EVENT TRIGGER note_drop ON sql_drop EXECUTE FUNCTION note_drop();
	GRANT CREATE ON SCHEMA public TO alice;
	SET ROLE alice;
	-- How one makes a list of lines in a transaction of one's own, in several ways.
	CREATE FUNCTION make_lines(idiom text) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		n bigint;
	BEGIN
		CASE idiom
		WHEN 'drop' THEN
			CREATE TEMP TABLE line ON COMMIT DROP AS SELECT 1 AS id;
			SELECT count(*) INTO n FROM line;
		WHEN 'delete rows' THEN
			CREATE TEMP TABLE IF NOT EXISTS line (id integer) ON COMMIT DELETE ROWS;
			INSERT INTO line VALUES (1);
			SELECT count(*) INTO n FROM line;
		WHEN 'stays' THEN
			CREATE TEMP TABLE line (id serial PRIMARY KEY);
			INSERT INTO line DEFAULT VALUES;
			SELECT max(id) INTO n FROM line;
		WHEN 'drop if exists' THEN
			DROP TABLE IF EXISTS line;
			CREATE TEMP TABLE line AS SELECT 1 AS id;
			SELECT count(*) INTO n FROM line;
		WHEN 'sequence' THEN
			CREATE TEMP SEQUENCE IF NOT EXISTS line;
			n := nextval('line');
		WHEN 'view' THEN
			CREATE TEMP VIEW line AS SELECT 1 AS id;
			SELECT count(*) INTO n FROM line;
		WHEN 'function' THEN
			CREATE FUNCTION pg_temp.line() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
			n := pg_temp.line();
		WHEN 'type' THEN
			CREATE TYPE pg_temp.line AS (id integer);
			CREATE DOMAIN pg_temp.line_id AS integer;
			CREATE TEMP TABLE of_line (l pg_temp.line, i pg_temp.line_id) ON COMMIT DROP;
			INSERT INTO of_line VALUES (ROW(1), 1);
			SELECT count(*) INTO n FROM of_line;
		WHEN 'trigger' THEN
			CREATE TEMP TABLE line (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP;
			CREATE INDEX ON line (id);
			INSERT INTO line VALUES (1);
			SELECT count(*) INTO n FROM line;
		WHEN 'cursor' THEN
			CREATE TEMP TABLE line AS SELECT 1 AS id;
			FOR n IN SELECT id FROM line LOOP
				EXIT;
			END LOOP;
		END CASE;
		RETURN n;
	END $$;
	CREATE FUNCTION lines(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.invoice VALUES (call.input ->> 0, make_lines(call.input ->> 0), 'first');
		RETURN '1';
	END $$;
	CREATE FUNCTION undo(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.invoice VALUES (call.input ->> 0, make_lines(call.input ->> 0), 'undone');
		RETURN '1';
	END $$;
	CREATE FUNCTION refuse(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM make_lines(call.input ->> 0);
		RAISE 'refused' USING ERRCODE = 'P0001';
	END $$;
	CREATE FUNCTION lines(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.invoice VALUES (m.payload ->> 0, make_lines(m.payload ->> 0), 'message');
	END $$;
	SELECT stacksaga.define_saga('lines', ARRAY[
		stacksaga.sql_step('one', 'lines(stacksaga.step_call)'),
		stacksaga.sql_step('two', 'lines(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('undone', ARRAY[
		stacksaga.sql_step('one', 'lines(stacksaga.step_call)', 'undo(stacksaga.step_call)'),
		stacksaga.sql_step('two', 'refuse(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 1))]);
	SELECT stacksaga.create_subscription('lines', 'lines', 'lines(stacksaga.message)')});

my $idioms = "'drop', 'delete rows', 'stays', 'drop if exists', 'sequence', 'view', 'function', 'type', 'trigger', 'cursor'";
my $work = qq{
	SELECT count(*) FROM stacksaga.start_sagas('lines', (SELECT array_agg(to_jsonb(ARRAY[i]))
		FROM generate_series(1, 10), unnest(ARRAY[$idioms]) AS i));
	SELECT count(*) FROM stacksaga.start_sagas('undone', (SELECT array_agg(to_jsonb(ARRAY[i]))
		FROM generate_series(1, 3), unnest(ARRAY[$idioms]) AS i));
	SELECT count(*) FROM stacksaga.publish_batch('lines', (SELECT array_agg(to_jsonb(ARRAY[i]))
		FROM generate_series(1, 5), unnest(ARRAY[$idioms]) AS i))};

sub check_done
{
	my ($where) = @_;
	is($node->safe_psql('postgres', q{
		SELECT string_agg(DISTINCT format('%s: %s, %s', what, lines, n), '; ') FROM (
			SELECT of, what, lines, count(*) AS n FROM invoice GROUP BY of, what, lines) AS i}),
		'first: 1, 23; message: 1, 5; undone: 1, 3', "$where: each call found its own lines, in every way of making them");
	is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT last_error, '; ') FROM stacksaga.sagas}),
		'refused', "$where: no attempt failed for another reason");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.dead_messages}), 0, "$where: no message failed");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM tried WHERE what NOT LIKE '% alice'}), 0,
		"$where: nothing that is dropped runs an event trigger as another role");
	is($node->safe_psql('postgres', q{
		SELECT count(*) FROM pg_depend AS d JOIN pg_namespace AS n ON n.oid = d.refobjid
		 WHERE d.refclassid = 'pg_namespace'::regclass AND n.nspname LIKE 'pg_temp%'}), 0, "$where: nothing stays");
	return $node->safe_psql('postgres', 'TRUNCATE invoice, tried');
}

# In run_pending(): the caller's own temporary objects stay, and nothing else is left.
my $output = $node->safe_psql('postgres', qq{
	\\o /dev/null
	$work;
	CREATE TEMP VIEW of_caller AS SELECT 1;
	CREATE TEMP TABLE also_of_caller (id integer);
	GRANT alice TO CURRENT_USER;
	\\o
	ALTER VIEW of_caller OWNER TO alice;
	ALTER TABLE also_of_caller OWNER TO alice;
	BEGIN;
	SELECT stacksaga.run_pending(10000);
	SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = pg_my_temp_schema();
	COMMIT;
	SELECT stacksaga.run_pending(10000);
	SELECT stacksaga.run_pending(10000);
	SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = pg_my_temp_schema()});
like($output, qr/^\d+\nalso_of_caller,of_caller\n\d+\n\d+\nalso_of_caller,of_caller$/, 'run_pending(): the caller keeps its own');
$node->poll_query_until('postgres', q{
	SELECT count(*) = 0 FROM pg_depend AS d JOIN pg_namespace AS n ON n.oid = d.refobjid
	 WHERE d.refclassid = 'pg_namespace'::regclass AND n.nspname LIKE 'pg_temp%'});
check_done('run_pending()');

# In a worker.
$node->safe_psql('postgres', $work);
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
$node->poll_query_until('postgres', q{
	SELECT NOT EXISTS (SELECT FROM stacksaga.sagas WHERE status NOT IN ('completed', 'failed'))
	   AND (SELECT lag_messages = 0 FROM stacksaga.subscriptions WHERE subscription = 'lines')}) or die 'the work does not end';
check_done('a worker');

$node->stop;
done_testing();
