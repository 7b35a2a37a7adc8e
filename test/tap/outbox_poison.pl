# A message whose handler ends its process, or never ends, runs out of attempts: on its own, in a batch
# of others, and in a fallback. The server survives, and every other message is handled once and in order.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('outbox_poison');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
restart_after_crash = on
stacksaga.workers = 2
stacksaga.message_timeout = '500 ms'});
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION testing_kill(signal integer) RETURNS integer
		LANGUAGE c AS 'stacksaga_testing', 'stacksaga_kill';
	CREATE TABLE handled (at bigint GENERATED ALWAYS AS IDENTITY, subscription text, key text, n int);
	CREATE FUNCTION act(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		CASE payload ->> 'does'
			WHEN 'kill' THEN PERFORM testing_kill(9);
			WHEN 'quit' THEN PERFORM pg_terminate_backend(pg_backend_pid());
			WHEN 'hang' THEN LOOP END LOOP;
			WHEN 'fail' THEN RAISE 'by order' USING ERRCODE = 'SR503';
			ELSE
		END CASE;
	END $$;
	CREATE FUNCTION one(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO handled (subscription, key, n) VALUES ('one', m.key, (m.payload -> 'n')::int);
		PERFORM act(m.payload);
	END $$;
	CREATE FUNCTION many(m stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO handled (subscription, key, n) SELECT 'many', key, (payload -> 'n')::int FROM unnest(m);
		PERFORM act(payload) FROM unnest(m);
	END $$;
	CREATE FUNCTION broken(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF m.payload ->> 'does' = 'kill' THEN
			RAISE 'no' USING ERRCODE = '23514';
		END IF;
		PERFORM one(m);
	END $$;
	CREATE FUNCTION late(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM act(jsonb_build_object('does', ('{fail,fail,kill}'::text[])[m.attempt]));
		INSERT INTO handled (subscription, key, n) VALUES ('late', m.key, m.attempt);
	END $$;
	-- Each message fails at its first attempt.
	CREATE FUNCTION again(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF m.attempt = 1 THEN
			RAISE 'busy' USING ERRCODE = 'SR503';
		END IF;
		PERFORM one(m);
	END $$;
	CREATE FUNCTION retries(attempts integer) RETURNS stacksaga.retry_policy LANGUAGE sql AS $$
		SELECT stacksaga.retry_policy(max_attempts => attempts, initial_interval => '0') $$;
	SELECT stacksaga.create_subscription('one', 'kills', 'one(stacksaga.message)', retry => retries(0)),
	       stacksaga.create_subscription('many', 'kills', 'many(stacksaga.message[])', retry => retries(0)),
	       stacksaga.create_subscription('late', 'late', 'late(stacksaga.message)', retry => retries(0)),
	       stacksaga.create_subscription('fallback', 'fallbacks', 'broken(stacksaga.message)',
	                                     fallback => 'one(stacksaga.message)'),
	       stacksaga.create_subscription('hang', 'hangs', 'one(stacksaga.message)', retry => retries(2)),
	       stacksaga.create_subscription('hangs', 'hangs', 'many(stacksaga.message[])', retry => retries(2))});
$node->safe_psql('postgres', q{
	SELECT stacksaga.create_subscription(s || h, s, h || '(stacksaga.message' || CASE h WHEN 'many' THEN '[])' ELSE ')' END,
	           retry => retries(5))
	  FROM (VALUES ('again', 'again'), ('key', 'one'), ('key', 'many'), ('new', 'one'), ('new', 'many')) AS v(s, h)});
wait_until_works($node, 'postgres', 2);

# Publishes messages 1..n in one transaction, of two keys and none, of which some do something. The server may crash
# before it answers: what is published kills its consumer.
sub publish
{
	my ($topic, $count, %does) = @_;
	my $does = join(',', map { "$_: \"$does{$_}\"" } sort keys %does);
	$does =~ s/(\d+):/"$1":/g;
	$node->psql('postgres', qq{
		SELECT count(stacksaga.publish('$topic',
			jsonb_build_object('n', n, 'does', '{$does}'::jsonb ->> n::text),
			(ARRAY['a', 'b', NULL])[1 + n % 3])) FROM generate_series(1, $count) n});
}

sub dead
{
	my ($subscription) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT string_agg(format('%s %s %s', payload -> 'n', attempts, last_error), E'\\n'
		                  ORDER BY (payload -> 'n')::int)
		  FROM stacksaga.dead_messages WHERE subscription = '$subscription'});
}

sub await_dead
{
	my ($subscription, $count) = @_;
	ok($node->poll_query_until('postgres', qq{
		SELECT count(*) = $count FROM stacksaga.dead_messages WHERE subscription = '$subscription'}),
		"$subscription: messages that cannot be handled are dead");
}

# Of which key each message is: 'b' 1, 4, 7; none 2, 5, 8; 'a' 3, 6, 9.
my $crash = 'the handler ended its process';
publish('kills', 60, 4 => 'kill', 30 => 'quit');
# Only then no handler ends the server's processes any more, our sessions among them.
await_dead($_, 2) foreach ('one', 'many');
foreach my $subscription ('one', 'many')
{
	is(dead($subscription), "4 3 $crash\n30 3 $crash", "$subscription: after three attempts");
	$node->safe_psql('postgres', qq{
		SELECT stacksaga.discard_message('$subscription', message_id, 'it kills')
		  FROM stacksaga.dead_messages WHERE subscription = '$subscription'});
	ok($node->poll_query_until('postgres', qq{
		SELECT count(*) = 58 FROM handled WHERE subscription = '$subscription'}),
		"$subscription: all the others are handled");
	is($node->safe_psql('postgres', qq{
		SELECT count(DISTINCT n) FROM handled WHERE subscription = '$subscription'}), 58,
		"$subscription: once");
	is($node->safe_psql('postgres', qq{
		SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY key ORDER BY at) AS wrong
			FROM handled WHERE subscription = '$subscription' AND key IS NOT NULL) AS h WHERE wrong}),
		0, "$subscription: each key in its order");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.message_retry'), 0,
	'no retries are left');

# The same among 500 retries, in one key, and among 16 new messages without a key: only the one that kills dies.
sub publish_with_killer
{
	my ($topic, $count, $killer, $key) = @_;
	$node->psql('postgres', qq{
		TRUNCATE handled;
		SELECT count(stacksaga.publish('$topic', jsonb_build_object('n', n, 'does', CASE n WHEN $killer THEN 'kill' END), $key))
		  FROM generate_series(1, $count) n});
}

sub others_are_handled
{
	my ($killer, $count, @subscriptions) = @_;
	await_dead($_, 1) foreach (@subscriptions);
	foreach my $subscription (@subscriptions)
	{
		is(dead($subscription), "$killer 3 $crash", "$subscription: only the message that kills is dead");
		$node->safe_psql('postgres', qq{
			SELECT stacksaga.discard_message('$subscription', message_id, 'it kills')
			  FROM stacksaga.dead_messages WHERE subscription = '$subscription'});
	}
	ok($node->poll_query_until('postgres', qq{
		SELECT count(*) = $count AND count(DISTINCT (subscription, n)) = $count FROM handled}),
		'all the others are handled once');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.message_retry'), 0, 'and none is left');
}
publish_with_killer('again', 501, 250, 'NULL');
others_are_handled(250, 500, 'againagain');
publish_with_killer('key', 60, 1, "'k'");
others_are_handled(1, 2 * 59, 'keyone', 'keymany');
publish_with_killer('new', 16, 11, 'NULL');
others_are_handled(11, 2 * 15, 'newone', 'newmany');

publish('fallbacks', 3, 2 => 'kill');
await_dead('fallback', 1);
is(dead('fallback'), "2 1 $crash", 'a fallback that ends its process is not run again');

# A message that has failed in other ways before is not dead when its process ends for the first time.
publish('late', 1);
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM handled WHERE subscription = 'late'}),
	'a message whose third attempt ended the process is tried again');
is($node->safe_psql('postgres', q{SELECT n FROM handled WHERE subscription = 'late'}), 4, 'and handled');
is(dead('late'), '', 'and not dead');

publish('hangs', 6, 3 => 'hang', 4 => 'fail');
my $timeout = 'the handler took longer than stacksaga.message_timeout';
await_dead($_, 2) foreach ('hang', 'hangs');
is(dead($_), "3 2 $timeout\n4 2 by order", "$_: after as many attempts as its policy has")
	foreach ('hang', 'hangs');

$node->stop;
done_testing();
