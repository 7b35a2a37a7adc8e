# Whatever a handler leaves for later runs as its definer, or not at all: in a worker, alone and in a
# subtransaction, and in run_pending() of a superuser.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('late');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE alice;
	SELECT stacksaga.grant_usage('alice', 'operator');
	CREATE TABLE ran (what text, role name DEFAULT current_user);
	GRANT ALL ON ran TO alice;
	CREATE SCHEMA a AUTHORIZATION alice;
	SET ROLE alice;
	SET search_path = a, public;
	CREATE FUNCTION note(what text) RETURNS integer LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ran VALUES (what);
		RETURN 1;
	END $$;
	-- IMMUTABLE, or so it says: what an index, a constraint or a planner may call.
	CREATE FUNCTION one(what text) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		RETURN a.note(what);
	END $$;
	CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM a.note('trigger');
		RETURN NULL;
	END $$;
	CREATE TABLE queue (again integer);
	CREATE FUNCTION queue_again() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		SET CONSTRAINTS ALL DEFERRED;
		PERFORM a.note('queued');
		IF new.again <> 0 THEN
			INSERT INTO a.queue VALUES (new.again - 1);
		END IF;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER queue_again AFTER INSERT ON queue DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION queue_again();
	CREATE TABLE set_late (id integer);
	CREATE CONSTRAINT TRIGGER fires AFTER INSERT ON set_late DEFERRABLE INITIALLY IMMEDIATE
		FOR EACH ROW EXECUTE FUNCTION fires();
	CREATE TABLE excluded (what text, EXCLUDE USING btree (one(what) WITH =) DEFERRABLE INITIALLY DEFERRED);
	CREATE DOMAIN checked AS text CHECK (a.one(value) = 1);
	CREATE TABLE indexed (what checked);
	CREATE INDEX ON indexed (one(what)) WHERE one('predicate') = 1;
	CREATE STATISTICS of_indexed ON (one('statistics ' || what)), what FROM indexed;
	CREATE FUNCTION leaves(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE call.input ->> 0;
		RETURN '1';
	END $$;
	CREATE FUNCTION leaves(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE m.payload ->> 0;
	END $$;
	SELECT stacksaga.define_saga('leaves', ARRAY[stacksaga.sql_step('only', 'leaves(stacksaga.step_call)')]);
	SELECT stacksaga.create_subscription('leaves', 'leaves', 'leaves(stacksaga.message)')});


# What a handler executes, how often that is noted (undef: whatever), and its error.
my @late = (
	[ 'a deferred trigger that defers others', 'INSERT INTO a.queue VALUES (2)', 3, '' ],
	[ 'one that never ends', 'INSERT INTO a.queue VALUES (-1)', 0,
		'deferred triggers queued one another for 1000 rounds' ],
	[ 'a trigger that was deferred by a statement',
		'SET CONSTRAINTS ALL DEFERRED; INSERT INTO a.set_late VALUES (1)', 1, '' ],
	[ 'a deferred trigger of a temporary table', q{
		CREATE TEMP TABLE left_behind (id integer) ON COMMIT DROP;
		CREATE CONSTRAINT TRIGGER fires AFTER INSERT ON left_behind DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION a.fires();
		INSERT INTO left_behind VALUES (1)}, 1, '' ],
	[ 'an index of a temporary table that is emptied', q{
		CREATE TEMP TABLE IF NOT EXISTS left_behind (what text) ON COMMIT DELETE ROWS;
		CREATE INDEX ON left_behind (a.one(what)) WHERE a.one('predicate') = 1;
		INSERT INTO left_behind VALUES ('index')}, undef, '' ],
	[ 'a deferred exclusion constraint', q{
		INSERT INTO a.excluded VALUES ('excluded'); DELETE FROM a.excluded}, undef, '' ],
	[ 'a domain, an index and statistics', q{
		INSERT INTO a.indexed VALUES ('indexed'); ANALYZE a.indexed}, undef, '' ],
	[ 'an open cursor', q{DO 'DECLARE c CURSOR FOR SELECT a.note(''cursor''); BEGIN OPEN c; END'}, 0, '' ],
	[ 'a cursor with hold', q{DECLARE c CURSOR WITH HOLD FOR SELECT a.note('cursor')}, 0,
		'a handler must not execute DECLARE CURSOR WITH HOLD' ],
	[ 'a plan', q{PREPARE p AS SELECT a.one('planned')}, 0, 'a handler must not execute PREPARE' ]);

# Each as a step and as a message.
sub check_late
{
	my ($where) = @_;
	foreach my $late (@late)
	{
		my ($what, $statement, $times, $error) = @$late;
		$node->safe_psql('postgres', qq{
			TRUNCATE ran;
			SELECT stacksaga.start_saga('leaves', to_jsonb(ARRAY[\$s\$$statement\$s\$]), '$where: $what');
			SELECT stacksaga.publish('leaves', to_jsonb(ARRAY[\$s\$$statement\$s\$]), key => '$where: $what')});
		$node->poll_query_until('postgres', q{
			SELECT NOT EXISTS (SELECT FROM stacksaga.sagas WHERE status NOT IN ('completed', 'failed'))
			   AND (SELECT lag_messages = 0 FROM stacksaga.subscriptions WHERE subscription = 'leaves')})
		  or die "$what does not end";
		is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT role, ',') FROM ran WHERE role <> 'alice'}), '',
			"$where: $what runs as its definer only");
		is($node->safe_psql('postgres', 'SELECT count(*) FROM ran'), 2 * $times, "and so often") if defined $times;
		is($node->safe_psql('postgres', qq{
			SELECT coalesce(regexp_replace(last_error, ' \\(.*', ''), '') FROM stacksaga.sagas WHERE key = '$where: $what'}),
			$error, "a step: '$error'");
		is($node->safe_psql('postgres', qq{
			SELECT coalesce((SELECT regexp_replace(last_error, ' \\(.*', '') FROM stacksaga.dead_messages
			 WHERE key = '$where: $what'), '')}), $error, "a message: '$error'");
	}
}

$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
check_late('at the top');

# Behind a failure each of the next handlers runs in a subtransaction.
$node->safe_psql('postgres', q{
	SELECT stacksaga.start_saga('leaves', '["SELECT 1 / 0"]');
	SELECT stacksaga.publish('leaves', '["SELECT 1 / 0"]')});
$node->poll_query_until('postgres', q{
	SELECT (SELECT count(*) FROM stacksaga.dead_messages WHERE last_error = 'division by zero') = 1
	   AND (SELECT count(*) FROM stacksaga.sagas WHERE last_error = 'division by zero') = 1})
  or die 'the failures do not come';
check_late('in a subtransaction');

$node->stop;
done_testing();
