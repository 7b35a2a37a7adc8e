# pg_upgrade in the middle of everything: sagas in each state, timers, messages read and unread, keys, limits, schedules.
# Every row is what it was, and all of it goes on in the new cluster.
use strict;
use warnings;

use StacksagaCluster;
use Test::More;

my $old = StacksagaCluster->new('old');
$old->init;
$old->start;
$old->create_extension('postgres');

sub query
{
	my ($node, $sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# What a session at another time says.
sub at
{
	my ($node, $offset, $sql) = @_;
	return query($node, "SET stacksaga.clock_offset = '$offset'; $sql");
}

query($old, q{
	CREATE ROLE service;
	SELECT stacksaga.grant_usage('service', 'service');
	CREATE TABLE done (key text, step text, direction text);
	CREATE TABLE bank AS SELECT false AS is_open;
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF call.input ->> 'busy' = call.step AND call.attempt = 1 THEN
			RAISE 'busy' USING ERRCODE = 'SR503';
		ELSIF call.input ? 'stuck' AND call.direction = 'compensate' AND NOT (SELECT is_open FROM public.bank) THEN
			RAISE 'the bank is closed' USING ERRCODE = 'SG424';
		END IF;
		INSERT INTO public.done SELECT key, call.step, call.direction FROM stacksaga.sagas s WHERE s.saga_id = call.saga_id;
		RETURN to_jsonb(call.step);
	END $$;
	SELECT stacksaga.define_saga('order', ARRAY[
		stacksaga.sql_step('reserve', 'act(stacksaga.step_call)', 'act(stacksaga.step_call)',
			retry => stacksaga.retry_policy(initial_interval => '5 minutes', jitter => 0)),
		stacksaga.queue_step('charge', 'bank', compensable => false, timeout => '12 hours'),
		stacksaga.signal_step('packed', 'packed', timeout => '2 hours'),
		stacksaga.sql_step('ship', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('parent', ARRAY[
		stacksaga.child_step('order', 'order', timeout => '12 hours'), stacksaga.sql_step('close', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('limited', ARRAY[stacksaga.queue_step('q', 'limited', compensable => true, timeout => '12 hours')]);
	SELECT stacksaga.define_saga('nightly', ARRAY[stacksaga.sql_step('only', 'act(stacksaga.step_call)')]);
	CREATE TABLE heard (id bigserial, n int);
	CREATE FUNCTION hear(message stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.heard (n) VALUES ((message.payload ->> 'n')::int);
	END $$;
	SELECT stacksaga.create_subscription('handled', 't', 'hear(stacksaga.message)'), stacksaga.create_subscription('received', 't')});

# Sagas in each state. What stands still at charge is claimed for a day.
my %lease;

sub start_sagas
{
	my ($input, @keys) = @_;
	query($old, "SELECT stacksaga.start_saga('order', '$input', '$_')") foreach @keys;
	return;
}

sub claim
{
	%lease = (%lease, map { split /\|/ } split /\n/, query($old, q{
		SELECT s.key, format('%L, %L, %s', s.saga_id, c.step, c.lease)
		  FROM stacksaga.claim_steps('bank', 'teller', 100, '1 day') AS c JOIN stacksaga.sagas s USING (saga_id)}));
	return;
}

sub signal
{
	my ($node, $key) = @_;
	return query($node, "SELECT stacksaga.signal_saga(saga_id, 'packed') FROM stacksaga.sagas WHERE key = '$key'");
}

sub states
{
	my ($node) = @_;
	return query($node, q{SELECT string_agg(format('%s: %s', key, status), ', ' ORDER BY key) FROM stacksaga.sagas
		WHERE saga IN ('order', 'parent') AND parent_id IS NULL});
}

start_sagas('{}', qw(completed waiting signalled claimed failed));
start_sagas('{"stuck": true}', 'parked');
query($old, q{SELECT stacksaga.start_saga('parent', '{}', 'parent')});
query($old, 'SELECT stacksaga.run_pending()') for 1 .. 3;
claim();
is(signal($old, 'signalled'), 't', 'a signal comes before its step');
query($old, "SELECT stacksaga.complete_step($lease{$_})") foreach qw(completed waiting);
query($old, "SELECT stacksaga.fail_step($lease{$_}, 'no', 'non_retryable')") foreach qw(failed parked);
query($old, 'SELECT stacksaga.run_pending()');
signal($old, 'completed');
query($old, 'SELECT stacksaga.run_pending()') for 1 .. 2;
start_sagas('{"busy": "reserve"}', 'paused');
query($old, 'SELECT stacksaga.run_pending()');
start_sagas('{}', 'pending');
query($old, q{SELECT stacksaga.start_saga('order', '{}', 'later', run_at => stacksaga.clock_now() + interval '1 hour')});
is(states($old), 'claimed: running, completed: completed, failed: failed, later: pending, parent: running, parked: parked, '
	  . 'paused: running, pending: pending, signalled: running, waiting: running', 'a saga in each state');

# Limits, of which the rate remembers claims; a paused queue; a schedule.
query($old, q{
	SELECT stacksaga.set_queue('limited', max_running => 4, rate => 3, rate_interval => '1 hour'),
	       stacksaga.pause_queue('closed', 'moving house');
	SELECT count(*) FROM generate_series(1, 6) AS n, LATERAL stacksaga.start_saga('limited', key => 'limited ' || n);
	SELECT count(*) FROM stacksaga.claim_steps('limited', 'w', 2, '1 day');
	SELECT stacksaga.create_schedule('nightly', 'nightly', '*/10 * * * *')});

# Messages: read and acknowledged, waiting for a retry, dead, delayed, leased, unread.
sub put
{
	my ($node, $key, @numbers) = @_;
	query($node, qq{SELECT stacksaga.publish('t', '{"n": $_}', '$key')}) foreach @numbers;
	return;
}

# The numbers that a subscription gives now; the batch is acknowledged unless something else is to be done with it.
sub take
{
	my ($node, $offset, $instead) = @_;
	my $rows = at($node, $offset, q{SELECT payload -> 'n', batch_id, message_id FROM stacksaga.receive_messages('received', 'c', lease => '1 day')});
	my ($batch, $message) = $rows =~ /\|(\d+)\|(.*)/;
	at($node, $offset, sprintf 'SELECT ' . ($instead // 'stacksaga.ack_messages(%s)'), $batch, $message) if defined $batch;
	return join ' ', sort { $a <=> $b } $rows =~ /^(\d+)\|/mg;
}

sub fail_all
{
	my ($rest) = @_;
	return "stacksaga.fail_message(%1\$s, '%2\$s', $rest), stacksaga.ack_messages(%1\$s)";
}

put($old, 'a', 1, 2);
is(take($old, '0'), '1 2', 'messages are read');
put($old, 'a', 3);
is(take($old, '0', fail_all(q{'not now', retry_after => '30 minutes'})), '3', 'one waits for a retry');
put($old, 'b', 4);
is(take($old, '0', fail_all(q{'never', 'non_retryable'})), '4', 'one is dead');
query($old, q{SELECT stacksaga.publish('t', '{"n": 5}', deliver_at => stacksaga.clock_now() + interval '30 minutes')});
query($old, 'SELECT stacksaga.maintain_outbox(true)');
put($old, 'c', 6);
is(take($old, '0', q{set_config('test.batch', '%s', false)}), '6', 'one is leased');
put($old, $_->[0], $_->[1]) foreach [ 'a', 7 ], [ 'b', 8 ], [ 'c', 9 ], [ 'd', 10 ];
my $leased = query($old, 'SELECT max(batch_id) FROM stacksaga.message_batch');

# What is remembered of keys.
my $key_lease = query($old, q{
	SELECT lease FROM stacksaga.idempotency_begin('shop', 'held', '{"n": 1}', lease => '1 day')});
query($old, q{
	SELECT stacksaga.idempotency_finish('shop', 'done', lease, '"answer"')
	  FROM stacksaga.idempotency_begin('shop', 'done', '{"n": 1}');
	SELECT stacksaga.accept_message('shop', 'm'), stacksaga.accept_sequence('producer', 1, 1),
	       stacksaga.compare_and_set('shop', 'value', NULL, '"value"')});
my $token = query($old, "SELECT stacksaga.fencing_token(lease) FROM stacksaga.work WHERE lease IS NOT NULL ORDER BY lease LIMIT 1");

# What all tables of the extension hold, byte for byte; pg_upgrade keeps the oids of roles.
my @tables = split /\n/, query($old, q{
	SELECT c.oid::regclass FROM pg_class c WHERE relnamespace::regnamespace::text LIKE 'stacksaga%' AND relkind = 'r' ORDER BY 1});
cmp_ok(scalar(@tables), '>', 30, 'tables are compared');

sub contents
{
	my ($node) = @_;
	return query($node, join ' UNION ALL ', map {
		"SELECT '$_ ' || count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM $_ t" } @tables);
}
my $contents = contents($old);
my $sequences = q{SELECT schemaname, sequencename, last_value FROM pg_sequences WHERE schemaname LIKE 'stacksaga%' ORDER BY 1, 2};
my $numbers = query($old, $sequences);
my $questions = q{
	SELECT * FROM stacksaga.sagas ORDER BY saga_id; SELECT * FROM stacksaga.saga_history ORDER BY saga_id, started_at, step, attempt;
	SELECT to_jsonb(q) - '{completed,failed}'::text[] FROM stacksaga.queues q ORDER BY queue; SELECT * FROM stacksaga.schedules;
	SELECT * FROM stacksaga.dead_messages; SELECT * FROM stacksaga.definitions ORDER BY saga;
	SELECT DISTINCT severity, check_name FROM stacksaga.doctor() ORDER BY 1, 2};
my $answers = query($old, $questions);
$old->stop;

my $new = StacksagaCluster->new('new');
$new->init;
$new->upgrade_from($old);
$new->start;
is(contents($new), $contents, 'every row of every table is what it was');
is(query($new, $sequences), $numbers, 'so are sequences');
is(query($new, $questions), $answers, 'and what views and doctor() answer');

# Messages go on where each subscription was: each once, a key in order.
put($new, 'd', 11);
is(take($new, '0'), '10 11', 'what was not read is given, and what is new');
is(query($new, "SELECT stacksaga.ack_messages($leased)"), 1, 'a batch of before is acknowledged');
is(take($new, '0'), '9', 'then its key goes on');
is(take($new, '31 minutes'), '3 5', 'a retry and a delayed message come in their time');
is(take($new, '31 minutes'), '7', 'what waited for the retry follows');
query($new, 'SELECT stacksaga.redrive_message(subscription, message_id) FROM stacksaga.dead_messages');
is(take($new, '31 minutes') . ' ' . take($new, '31 minutes'), '4 8', 'a dead message is delivered again, then what it held');
is(take($new, '31 minutes'), '', 'and nothing twice');

# Keys and fences.
is(query($new, q{SELECT outcome, response FROM stacksaga.idempotency_begin('shop', 'done', '{"n": 1}')}), 'replay|"answer"', 'a key is replayed');
$new->raises_sqlstate('postgres', q{SELECT stacksaga.idempotency_begin('shop', 'done', '{"n": 2}')}, 'SG422');
$new->raises_sqlstate('postgres', q{SELECT stacksaga.idempotency_begin('shop', 'held', '{"n": 1}')}, 'SR409');
query($new, "SELECT stacksaga.idempotency_finish('shop', 'held', $key_lease)");
is(query($new, q{SELECT stacksaga.accept_message('shop', 'm'), stacksaga.accept_sequence('producer', 1, 1)}), 'f|duplicate', 'what was accepted is known');
is(query($new, q{SELECT * FROM stacksaga.read_value('shop', 'value')}), '"value"|1', 'a value has its version');

# Limits count what was claimed before.
is(query($new, q{SELECT count(*) FROM stacksaga.claim_steps('limited', 'w', 10)}), '1', 'the rate knows the claims of before');
is(query($new, q{SELECT paused, pause_reason FROM stacksaga.queues WHERE queue = 'closed'}), 't|moving house', 'a paused queue is paused');

# Timers fall due; answers of before count; a parked saga is retried; each saga ends as it would have.
at($new, '61 minutes', 'SELECT stacksaga.run_pending(1000)') for 1 .. 2;
like(query($new, q{SELECT count(*), max(status) FROM stacksaga.sagas WHERE saga = 'nightly'}), qr/^[12]\|completed$/,
	'a schedule fires for the last instant that it missed, and for one that is just past');
query($new, q{SELECT stacksaga.complete_step(saga_id, 'charge', lease) FROM stacksaga.work WHERE queue = 'bank' AND lease IS NOT NULL});
at($new, '61 minutes', q{SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('bank', 'teller', 100)});
query($new, q{UPDATE bank SET is_open = true; SELECT stacksaga.retry_saga(saga_id, 'it is open') FROM stacksaga.parked_sagas});
signal($new, $_) foreach qw(claimed paused later pending);
query($new, q{SELECT stacksaga.signal_saga(saga_id, 'packed') FROM stacksaga.sagas WHERE parent_id IS NOT NULL});
at($new, '61 minutes', 'SELECT stacksaga.run_pending(1000)') for 1 .. 4;
is(states($new), 'claimed: completed, completed: completed, failed: failed, later: completed, parent: completed, parked: failed, '
	  . 'paused: completed, pending: completed, signalled: completed, waiting: running', 'sagas end');
at($new, '4 hours', 'SELECT stacksaga.run_pending(1000)') for 1 .. 2;
like(states($new), qr/waiting: failed/, 'and a signal that does not come ends its time');
is(query($new, q{SELECT count(*), count(DISTINCT (key, step, direction)) FROM done WHERE key IN ('claimed', 'later', 'parked', 'waiting')}),
	'8|8', 'each step and compensation happened once');
is(query($new, q{SELECT count(*), count(DISTINCT n) FROM heard}), '11|11', 'a handler got each message once');

# Workers take over.
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'stacksaga'\nstacksaga.databases = 'postgres'\n");
$new->restart;
query($new, q{SELECT stacksaga.start_saga('nightly', '{}', 'by a worker')});
ok($new->poll_query_until('postgres', q{SELECT status = 'completed' FROM stacksaga.sagas WHERE key = 'by a worker'}),
	'a worker does what is started after it');
$new->stop;
done_testing();
