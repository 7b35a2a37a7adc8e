# A worker's own messages: those that a handler or a step publishes inside its turn are delivered, while
# another transaction stays open before, between and after; and so are those of a prepared transaction.
# What workers do for all readers does not keep services from their messages.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('outbox_worker');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 2\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE handled (at bigint GENERATED ALWAYS AS IDENTITY, hops int, key text);
	-- Sends each message on until it has gone so far.
	CREATE FUNCTION hop(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO handled (hops, key) VALUES ((m.payload -> 'hops')::int, m.key);
		IF (m.payload -> 'hops')::int < 20 THEN
			PERFORM stacksaga.publish('hop', jsonb_build_object('hops', (m.payload -> 'hops')::int + 1), m.key);
		END IF;
	END $$;
	CREATE FUNCTION begin_hops(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		SELECT to_jsonb(stacksaga.publish('hop', '{"hops": 1}', 'saga')) $$;
	SELECT stacksaga.create_subscription('hop', 'hop', 'hop(stacksaga.message)');
	SELECT stacksaga.define_saga('hops', ARRAY[stacksaga.sql_step('begin', 'begin_hops(stacksaga.step_call)')])});
wait_until_works($node, 'postgres', 1);

sub hops
{
	my ($key) = @_;
	return $node->safe_psql('postgres',
		"SELECT string_agg(hops::text, ' ' ORDER BY at) FROM handled WHERE key = '$key'");
}

my $all = join(' ', 1 .. 20);
my $other = $node->background_psql('postgres');
$other->query_safe(q{
	BEGIN;
	SELECT stacksaga.publish('hop', '{"hops": 20}', 'other')});
$node->safe_psql('postgres', q{SELECT stacksaga.publish('hop', '{"hops": 1}', 'handler')});
$node->safe_psql('postgres', q{SELECT stacksaga.start_saga('hops')});
$node->safe_psql('postgres', q{
	BEGIN;
	SELECT stacksaga.publish('hop', '{"hops": 20}', 'prepared');
	PREPARE TRANSACTION 'hops'});
foreach my $key ('handler', 'saga')
{
	ok($node->poll_query_until('postgres',
			"SELECT count(*) = 20 FROM handled WHERE key = '$key'"),
		"$key: what is published inside a turn is delivered while another transaction is open");
	is(hops($key), $all, "$key: each once and in order");
}
is(hops('other') . hops('prepared'), '', 'messages that are not committed are not delivered');
$node->safe_psql('postgres', q{SELECT stacksaga.publish('hop', '{"hops": 1}', 'between')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 20 FROM handled WHERE key = 'between'}),
	'nor do they delay later ones');
$other->query_safe('COMMIT');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM handled WHERE key = 'other'}),
	'they are delivered when they are committed');
$node->restart;
$node->safe_psql('postgres', q{COMMIT PREPARED 'hops'});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM handled WHERE key = 'prepared'}),
	'a prepared one too, after a restart');
is($node->safe_psql('postgres', 'SELECT count(*) FROM handled'), 62, 'nothing came twice');

# The message of a handler that is cancelled each time runs out of attempts, and blocks only its key.
$node->safe_psql('postgres', q{
	CREATE FUNCTION cancel(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF m.payload = '"cancel"' THEN
			PERFORM pg_cancel_backend(pg_backend_pid());
		END IF;
		INSERT INTO handled (key) VALUES (m.key);
	END $$;
	SELECT stacksaga.create_subscription('cancel', 'cancel', 'cancel(stacksaga.message)',
		retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'));
	SELECT stacksaga.publish('cancel', '"cancel"', 'cancelled');
	SELECT stacksaga.publish('cancel', '"go on"', 'not cancelled')});
ok($node->poll_query_until('postgres',
		q{SELECT (SELECT count(*) FROM handled WHERE key = 'not cancelled') = 1
			AND (SELECT count(*) FROM stacksaga.dead_messages) = 1}),
	'other messages are handled');
is($node->safe_psql('postgres', 'SELECT key, attempts, last_error FROM stacksaga.dead_messages'),
	'cancelled|2|canceling statement due to user request', 'and that one fails as others do');

$other->quit;

# A service finds what was published, whoever maintains the log or makes ticks at the same time. (A
# maintenance that takes longer than the service waits for it is left a chance.)
my $maintainer = $node->background_psql('postgres', on_error_stop => 0);
$maintainer->query_until(qr/begins/, q{\echo begins
	DO $$
	BEGIN
		LOOP
			PERFORM stacksaga.maintain_outbox(true);
			COMMIT;
		END LOOP;
	END $$;
});
my $services = q{SELECT stacksaga.create_subscription('served', 'served'); CREATE TABLE missed (n int);} . "\n";
for my $n (1 .. 300)
{
	$services .= qq{SELECT stacksaga.publish('served', '1', '$n');
		SELECT coalesce(min(batch_id), 0) AS batch FROM stacksaga.receive_messages('served', 'c') \\gset
		INSERT INTO missed SELECT 1 WHERE :batch = 0;
		SELECT CASE WHEN :batch > 0 THEN stacksaga.ack_messages(:batch) END;\n};
}
$node->safe_psql('postgres', $services);
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM missed'), '<', 15,
	'what was published is received while the log is maintained');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE query LIKE '%maintain_outbox%' AND pid <> pg_backend_pid()});

$node->stop;
done_testing();
