# Handlers run once for each message, also for one that was copied out of the log while the position of
# its partition still lay before it, and only where there is a handler.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('outbox_once');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE handled (at bigint GENERATED ALWAYS AS IDENTITY, n int, key text);
	-- Fails, if it is told to, when the instant that it is told has come.
	CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		WHILE clock_timestamp() < (m.payload ->> 'until')::timestamptz LOOP
		END LOOP;
		IF m.payload ? 'until' THEN
			RAISE 'by order' USING ERRCODE = 'SG424';
		END IF;
		INSERT INTO handled (n, key) VALUES ((m.payload -> 'n')::int, m.key);
	END $$;
	SELECT stacksaga.create_subscription('handler', 'one', 'handle(stacksaga.message)'),
	       stacksaga.create_subscription('service', 'served', fallback => 'handle(stacksaga.message)')});
wait_until_works($node, 'postgres', 1);
isnt($node->safe_psql('postgres', q{SELECT stacksaga.slot(stacksaga.token('p'), 16)}),
	$node->safe_psql('postgres', q{SELECT stacksaga.slot(stacksaga.token('q'), 16)}),
	'the keys are in different partitions');

# Message 1 ends the first batch, in which 2 is not due yet; 3 ends the second one, in which it is,
# before 4 of its partition is done.
$node->safe_psql('postgres', q{
	SELECT stacksaga.publish('one', jsonb_build_object('n', 1, 'until', clock_timestamp() + '2 s'), 'q'),
	       stacksaga.publish('one', '{"n": 2}', 'p', deliver_at => clock_timestamp() + '1 s'),
	       stacksaga.publish('one', '{"n": 3, "until": "-infinity"}'::jsonb, 'q2'),
	       stacksaga.publish('one', '{"n": 4}', 'p')});
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM handled WHERE n = 4}), 'the log is read to its end');
is($node->safe_psql('postgres', q{SELECT string_agg(n::text, ' ' ORDER BY at) FROM handled}), '2 4',
	'a delayed message is handled once though a batch ends behind it');

$node->safe_psql('postgres', q{
	SELECT stacksaga.publish('served', '{"n": 11}', 'p');
	SELECT stacksaga.publish('one', '{"n": 12}', 'p')});
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM handled WHERE n = 12}), 'workers continue');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.message_retry}), 0, 'a worker leaves services their messages');
is($node->safe_psql('postgres', q{
	SELECT string_agg(payload ->> 'n' || ' attempt ' || attempt, ' ') FROM stacksaga.receive_messages('service', 'c')}),
	'11 attempt 1', 'and services get them');
$node->stop;
done_testing();
