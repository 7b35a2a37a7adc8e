# A worker calls handlers at the top of its transactions, where what a function keeps for its next call
# lives from one to the other: it is used again, and not after a change of what it depends on.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('plans');
$node->init;
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE log (n integer GENERATED ALWAYS AS IDENTITY, what text);
	-- Is evaluated when a statement that calls it is planned.
	CREATE SEQUENCE made;
	CREATE FUNCTION planned() RETURNS text LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM nextval('made'); RETURN ' planned'; END $$;
	-- Changes the table that all of them use.
	CREATE FUNCTION change(what text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF what = 'alter' THEN
			ALTER TABLE log ADD COLUMN more text DEFAULT 'more';
		END IF;
	END $$;
	CREATE FUNCTION atomic(m stacksaga.message) RETURNS void BEGIN ATOMIC
		INSERT INTO log (what) VALUES (m.payload ->> 0 || planned());
		SELECT change(m.payload ->> 0);
	END;
	CREATE FUNCTION in_text(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
		INSERT INTO log (what) VALUES (m.payload ->> 0 || planned());
		SELECT change(m.payload ->> 0);
	$$;
	CREATE FUNCTION in_plpgsql(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO log (what) VALUES (m.payload ->> 0 || planned());
		PERFORM change(m.payload ->> 0);
	END $$;
	-- Fails in its second statement, in a batch of which the first part has been done.
	CREATE FUNCTION fails(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
		INSERT INTO log (what) VALUES (m.payload ->> 0);
		SELECT 1 / CASE m.payload ->> 0 WHEN 'fail' THEN 0 ELSE 1 END;
	$$;
	CREATE FUNCTION fails_atomic(m stacksaga.message) RETURNS void BEGIN ATOMIC
		INSERT INTO log (what) VALUES (m.payload ->> 0);
		SELECT 1 / CASE m.payload ->> 0 WHEN 'fail' THEN 0 ELSE 1 END;
	END;
	SELECT stacksaga.worker_ensure()});

# Delivers messages to a handler, in order and in one batch while nothing fails.
sub deliver
{
	my ($handler, @messages) = @_;
	my $list = join ', ', map { qq{'["$_"]'} } @messages;
	my $count = @messages;
	$node->safe_psql('postgres', qq{
		TRUNCATE log;
		ALTER TABLE log DROP COLUMN IF EXISTS more;
		SELECT setval('made', 1, false);
		SELECT stacksaga.publish_batch('plans', ARRAY[$list]::jsonb[], array_fill('key'::text, ARRAY[$count]));
		SELECT stacksaga.create_subscription('$handler', 'plans', '$handler(stacksaga.message)',
			start_at => 'earliest', stop_on_first_failure => false,
			retry => stacksaga.retry_policy(max_attempts => 1))});
	$node->poll_query_until('postgres', qq{
		SELECT lag_messages = 0 FROM stacksaga.subscriptions WHERE subscription = '$handler'});
	my $result = $node->safe_psql('postgres', q{SELECT string_agg(what, ',' ORDER BY n) FROM log});
	my $dead = $node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.dead_messages});
	$node->safe_psql('postgres', qq{
		SELECT stacksaga.drop_subscription('$handler', true); TRUNCATE stacksaga.outbox_message});
	return ($result, $dead);
}

# From 18 on PostgreSQL plans a statement of an SQL function for its arguments five times before it keeps a plan for all.
my $plans = $node->major < 18 ? 4 : 9;
my @ten = ('x') x 10;
for my $handler ('atomic', 'in_text', 'in_plpgsql')
{
	my ($result, $dead) = deliver($handler, @ten, 'alter', @ten);
	is($result, join(',', map { "$_ planned" } @ten, 'alter', @ten), "$handler: every message is handled");
	is($dead, 0, "$handler: and no call met the table as it was");
	next if $handler eq 'in_plpgsql';
	cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM made'), '<=', $plans,
		"$handler: its statements are planned and kept, and planned once more after the change");
}
for my $handler ('fails', 'fails_atomic')
{
	my ($result, $dead) = deliver($handler, 'a', 'fail', 'b', 'fail', 'c');
	is($result, 'a,b,c', "$handler: a failed call leaves nothing behind, and the next ones succeed");
	is($dead, 2, "$handler: and only those that fail are dead");
}

$node->stop;
done_testing();
