# A handler ends its process with a batch before which the same turn copied out other messages: the
# messages of the batch are delivered on their own from then on.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('outbox_poison_batch');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
restart_after_crash = on
stacksaga.batch_size = 4});
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION testing_kill(signal integer) RETURNS integer
		LANGUAGE c AS 'stacksaga_testing', 'stacksaga_kill';
	CREATE TABLE handled (at bigint GENERATED ALWAYS AS IDENTITY, n int);
	CREATE FUNCTION many(m stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO handled (n) SELECT (payload -> 'n')::int FROM unnest(m);
		PERFORM testing_kill(9) FROM unnest(m) WHERE payload ->> 'does' = 'kill';
		IF EXISTS (SELECT FROM unnest(m) WHERE payload ->> 'does' = 'fail') THEN
			RAISE 'by order' USING ERRCODE = 'SG424';
		END IF;
	END $$;
	SELECT stacksaga.create_subscription('many', 't', 'many(stacksaga.message[])',
		retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0'))});
wait_until_works($node, 'postgres', 1);
my $same = $node->safe_psql('postgres', q{
	SELECT min(n) FROM generate_series(1, 1000) AS n
	 WHERE stacksaga.slot(stacksaga.token('b' || n), 16) = stacksaga.slot(stacksaga.token('a'), 16)});
$node->safe_psql('postgres', q{SELECT stacksaga.publish('t', '{"does": "fail"}', 'a')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM stacksaga.dead_messages}), 'a key is blocked');
# What is published kills its worker, and the server restarts, maybe before it has answered: the checks below count all 24.
$node->psql('postgres', qq{
	SELECT count(stacksaga.publish('t', jsonb_build_object('n', n, 'does', CASE n WHEN 23 THEN 'kill' END),
		CASE WHEN n <= 20 THEN 'a' ELSE 'b$same' END)) FROM generate_series(1, 24) AS n});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM stacksaga.dead_messages}),
	'the message that kills is dead');
is($node->safe_psql('postgres', q{
	SELECT string_agg(payload ->> 'n' || ' ' || attempts, ' ') FROM stacksaga.dead_messages WHERE payload ? 'n'}),
	'23 3', 'after three attempts');
is($node->safe_psql('postgres', q{SELECT string_agg(n::text, ' ' ORDER BY at) FROM handled}), '21 22',
	'earlier messages of its key are handled once');
is($node->safe_psql('postgres', q{SELECT sum(waiting) FROM stacksaga.blocked_keys}), 21,
	'later messages of both keys wait');
$node->stop;
done_testing();
