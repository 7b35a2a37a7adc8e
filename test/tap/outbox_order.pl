# The order checker: many writers, two workers with a set-based handler, and two services that
# receive, while handlers fail at random, services lose batches in which a message failed, a worker is
# killed and the server crashes with it, and generations of the log begin and are truncated. Every
# message arrives, in the order of its key; none is applied twice by a handler.
#
# STACKSAGA_MESSAGES sets how many there are at least, 200,000 by itself.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use StacksagaWorkers;
use Test::More;

my $messages = $ENV{STACKSAGA_MESSAGES} // 200_000;
my ($writers, $batch, $keys) = (8, 20, 10_000);
my $per_writer = int($messages / $writers / $batch) + 1;
my $total = $per_writer * $writers * $batch;

my $node = StacksagaCluster->new('order');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.workers = 2\nrestart_after_crash = on\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', qq{
	CREATE TABLE counter (key int PRIMARY KEY, n int NOT NULL);
	INSERT INTO counter SELECT k, 0 FROM generate_series(1, $keys) k;
	-- What was applied, in that order; a place is given under the lock of the key's partition.
	CREATE TABLE applied (at bigint GENERATED ALWAYS AS IDENTITY, key int, n int);
	CREATE TABLE received (at bigint GENERATED ALWAYS AS IDENTITY, key int, n int);
	CREATE FUNCTION apply(messages stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO applied (key, n) SELECT key::int, (payload -> 'n')::int FROM unnest(messages);
		IF random() < 0.01 THEN
			RAISE 'by chance' USING ERRCODE = 'SR503';
		END IF;
	END
	\$\$;
	SELECT stacksaga.create_subscription('applied', 'numbers', 'apply(stacksaga.message[])',
		retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '10 ms',
			max_interval => '100 ms')),
	       stacksaga.create_subscription('received', 'numbers',
		retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '10 ms',
			max_interval => '100 ms'));
	-- Takes its numbers while it holds the row of the key, and now and then commits late.
	CREATE PROCEDURE write(times int) LANGUAGE plpgsql AS \$\$
	DECLARE
		wanted int;
		last int;
	BEGIN
		FOR i IN 1..times LOOP
			wanted := 1 + floor(random() * $keys);
			UPDATE counter SET n = n + $batch WHERE key = wanted RETURNING n INTO last;
			PERFORM stacksaga.publish_batch('numbers',
				(SELECT array_agg(jsonb_build_object('n', last - $batch + j) ORDER BY j)
				   FROM generate_series(1, $batch) j), array_fill(wanted::text, ARRAY[$batch]));
			IF random() < 0.01 THEN
				PERFORM count(*) FROM generate_series(1, 50000);
			END IF;
			COMMIT;
		END LOOP;
	END
	\$\$;
	-- Returns whether everything has been received. Fails some messages, and loses some batches.
	CREATE PROCEDURE receive(consumer text, rounds int) LANGUAGE plpgsql AS \$\$
	DECLARE
		batch bigint;
		failed uuid[];
	BEGIN
		FOR i IN 1..rounds LOOP
			batch := NULL;
			failed := '{}';
			CREATE TEMP TABLE got ON COMMIT DROP AS
				SELECT * FROM stacksaga.receive_messages('received', consumer,
					(ARRAY[1000, 300, 30])[1 + floor(random() * 3)::int], '500 ms')
				  WITH ORDINALITY AS m(batch_id, message_id, topic, key, type, payload, headers,
					attempt, published_at, place);
			SELECT max(batch_id) INTO batch FROM got;
			IF batch IS NOT NULL AND random() < 0.2 THEN
				failed := ARRAY(SELECT message_id FROM got ORDER BY random()
					LIMIT (ARRAY[1, 2, 50])[1 + floor(random() * 3)::int]);
				PERFORM stacksaga.fail_message(batch, f, 'by chance') FROM unnest(failed) f;
			END IF;
			IF batch IS NOT NULL AND random() > 0.1 THEN
				INSERT INTO received (key, n)
					SELECT g.key::int, (g.payload -> 'n')::int FROM got g
					 WHERE NOT EXISTS (SELECT FROM got f WHERE f.message_id = ANY (failed)
						AND f.key = g.key AND f.place <= g.place)
					 ORDER BY g.place;
				PERFORM stacksaga.ack_messages(batch);
			END IF;
			COMMIT;
			IF random() < 0.05 THEN
				PERFORM stacksaga.maintain_outbox(true);
				COMMIT;
			END IF;
		END LOOP;
	END
	\$\$;
});
wait_until_works($node, 'postgres', 2);

# Sessions that run a procedure; one that dies with the server is started again by the caller.
sub start_call
{
	my ($call) = @_;
	my %session = (in => '', out => '', err => '');
	$session{run} = IPC::Run::start(
		[ 'psql', '-X', '-d', $node->connstr('postgres'), '-c', $call ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err});
	return \%session;
}

# The writers are done before the crash: messages that they did not commit do not exist.
my @writers = map { start_call("CALL write($per_writer)") } 1 .. $writers;
my @readers = map { start_call("CALL receive('early $_', 50)") } 1 .. 2;
$_->{run}->finish foreach @writers, @readers;
is(join('', map { $_->{err} } @writers), '', 'the writers write');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM counter'), $total, "$total messages");

my ($pid) = worker_pids($node, 'postgres');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM applied');
# Its successor starts soon.
$node->poll_query_until('postgres', q{
	SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'});
($pid) = worker_pids($node, 'postgres');
kill 'KILL', $pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/);
$node->poll_query_until('postgres', 'SELECT true');

# Until both have all messages.
foreach my $round (1 .. 1000)
{
	my @left = map { start_call("CALL receive('late $_', 100)") } 1 .. 2;
	$_->{run}->finish foreach @left;
	last if $node->safe_psql('postgres', q{
		SELECT lag_messages = 0 FROM stacksaga.subscriptions WHERE subscription = 'received'}) eq 't';
}
$node->poll_query_until('postgres', q{
	SELECT lag_messages = 0 FROM stacksaga.subscriptions WHERE subscription = 'applied'});

# Generations that both have read can be truncated. (Where a worker does that, the call returns at once.)
foreach my $round (1 .. 100)
{
	$node->safe_psql('postgres', 'SELECT stacksaga.maintain_outbox(true)');
	last if $node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.outbox_message') eq '0';
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.outbox_message'),
	'0', 'the log is truncated when all have read it');

foreach my $table (qw(applied received))
{
	is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT (key, n)) FROM $table"),
		"$total|$total", "$table: each message once");
	is($node->safe_psql('postgres', qq{
		SELECT count(*) FROM (
			SELECT n <> row_number() OVER (PARTITION BY key ORDER BY at) AS wrong FROM $table) AS t
		 WHERE wrong}), '0', "$table: each key in its order");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.message_retry'),
	'0', 'no retries are left');

$node->stop;
done_testing();
