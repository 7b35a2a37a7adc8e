# Large values do not fill the memory of the process that gives them out: a consumer's batch of messages, a claim of steps with
# large results and a worker's batch of steps end behind stacksaga.batch_bytes, and a thousand of them are handled all the same.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $count = 300;
my $limit = 1024 * 1024;

my $node = StacksagaCluster->new('batch_bytes');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf',
	"autovacuum = off\nfsync = off\nstacksaga.batch_bytes = '1MB'\nstacksaga.poll_interval = '50ms'\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	-- Compressed on disk, and large wherever it is read.
	CREATE FUNCTION large() RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT to_jsonb(repeat('x', 200000)) $$;
	CREATE FUNCTION peak() RETURNS bigint LANGUAGE sql AS $$
		SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s*(\d+)')::bigint * 1024 $$;
	-- From now on.
	CREATE FUNCTION forget_peak() RETURNS bigint LANGUAGE plpgsql AS $$
	BEGIN
		COPY (SELECT 5) TO '/proc/self/clear_refs';
		RETURN peak();
	END $$;
	SELECT stacksaga.create_subscription('read', 'read');
	SELECT stacksaga.define_saga('served', ARRAY[
		stacksaga.queue_step('a', 'a', compensable => false), stacksaga.queue_step('b', 'b', compensable => false)]);
	CREATE TABLE done (transaction xid8 DEFAULT pg_current_xact_id(), bytes int);
	CREATE FUNCTION note(c stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO done (bytes) VALUES (length((c).input::text)) RETURNING 'null'::jsonb $$;
	SELECT stacksaga.define_saga('worked', ARRAY[stacksaga.sql_step('note', 'note(stacksaga.step_call)', effect => 'guarded')])});
wait_until_works($node, 'postgres', 1);

# Messages: all are read in batches of six, the first five of which have less than a megabyte together.
$node->safe_psql('postgres', "SELECT count(stacksaga.publish('read', large())) FROM generate_series(1, $count)");
my $batches = q{
	CREATE PROCEDURE read_all() LANGUAGE plpgsql AS $$
	DECLARE
		batch bigint;
		messages int;
		most int := 0;
		total int := 0;
		before bigint := forget_peak();
	BEGIN
		LOOP
			SELECT max(batch_id), count(*) INTO batch, messages FROM stacksaga.receive_messages('read', 'c', 10000);
			EXIT WHEN batch IS NULL;
			PERFORM stacksaga.ack_messages(batch);
			total := total + messages;
			most := greatest(most, messages);
			COMMIT;
		END LOOP;
		RAISE NOTICE 'messages % at most % memory %', total, most, peak() - before;
	END $$;
	CREATE PROCEDURE claim_all() LANGUAGE plpgsql AS $$
	DECLARE
		claimed int;
		most int := 0;
		total int := 0;
		before bigint := forget_peak();
	BEGIN
		LOOP
			SELECT count(*) INTO claimed FROM stacksaga.claim_steps('b', 'w', 1000);
			EXIT WHEN claimed = 0;
			total := total + claimed;
			most := greatest(most, claimed);
			COMMIT;
		END LOOP;
		RAISE NOTICE 'steps % at most % memory %', total, most, peak() - before;
	END $$;};
$node->safe_psql('postgres', $batches);
my $notice = sub {
	my ($call) = @_;
	my ($out, $err);
	$node->psql('postgres', $call, stdout => \$out, stderr => \$err);
	diag($err) unless $err =~ /NOTICE:  \w+ (\d+) at most (\d+) memory (\d+)/;
	return ($1, $2, $3);
};
my ($total, $most, $memory) = $notice->('CALL read_all()');
is($total, $count, 'every message is received');
is($most, 6, 'a batch ends behind the message that passes the bytes');
cmp_ok($memory, '<', 16 * $limit, "receiving them takes little memory ($memory bytes)");

# Steps whose results are built for each claim.
$node->safe_psql('postgres', qq{
	SELECT count(*) FROM stacksaga.start_sagas('served', (SELECT array_agg('{}'::jsonb) FROM generate_series(1, $count)));
	SELECT count(stacksaga.complete_step(saga_id, step, lease, large())) FROM stacksaga.claim_steps('a', 'w', 1000)});
($total, $most, $memory) = $notice->('CALL claim_all()');
is($total, $count, 'every step is claimed');
is($most, 6, 'a claim ends behind the step that passes the bytes');
cmp_ok($memory, '<', 16 * $limit, "claiming them takes little memory ($memory bytes)");

# A worker's transaction has no more than six of them.
$node->safe_psql('postgres', qq{
	SELECT count(*) FROM stacksaga.start_sagas('worked', (SELECT array_agg(large()) FROM generate_series(1, $count)))});
ok($node->poll_query_until('postgres', "SELECT count(*) = $count FROM done"), 'a worker has run every step');
is($node->safe_psql('postgres', 'SELECT max(count) FROM (SELECT count(*) FROM done GROUP BY transaction) AS t'), 6,
	"a worker's batch ends behind the step that passes the bytes");

$node->stop;
done_testing();
