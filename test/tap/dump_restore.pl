# pg_dump in the middle of running sagas, and a restore into another server: definitions, sagas,
# work, effects, grants and counters are there again, and every saga ends as it would have ended here.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

# What pg_dump keeps of the engine, and what grant_usage() remembers.
my @tables = qw(saga_definition definition_step saga saga_attribute work effect failure usage_grant
  ring_setting ring_epoch queue queue_claims schedule schedule_action operator_action saga_action);

my $before = StacksagaCluster->new('before');
$before->init;
$before->start;
$before->create_extension('postgres');
$before->safe_psql('postgres', q{
	CREATE ROLE owner;
	CREATE ROLE service;
	SELECT stacksaga.grant_usage('owner', 'operator'), stacksaga.grant_usage('service', 'service');
	CREATE SCHEMA shop AUTHORIZATION owner;
	SET ROLE owner;
	CREATE TABLE shop.done (saga_id uuid, step text, direction text, role name DEFAULT current_user);
	-- Does not find its table but by the search_path that the definition keeps.
	CREATE FUNCTION shop.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF call.input ->> 'busy' = call.step AND call.attempt = 1 THEN
			RAISE 'busy' USING ERRCODE = 'SR503';
		ELSIF call.input ->> 'stuck' = call.step AND call.direction = 'compensate' THEN
			RAISE 'stuck' USING ERRCODE = 'SG424';
		END IF;
		INSERT INTO done VALUES (call.saga_id, call.step, call.direction);
		RETURN to_jsonb(call.direction || ' ' || call.step);
	END
	$$;
	SET search_path = shop;
	SELECT stacksaga.define_saga('order', ARRAY[stacksaga.queue_step('old', 'q', compensable => true)]);
	SELECT stacksaga.define_saga('order', ARRAY[
		stacksaga.sql_step('reserve', 'act(stacksaga.step_call)', 'act(stacksaga.step_call)',
			retry => stacksaga.retry_policy(initial_interval => '5 minutes', jitter => 0)),
		stacksaga.queue_step('charge', 'bank', compensable => true, timeout => '12 hours'),
		stacksaga.sql_step('ship', 'act(stacksaga.step_call)')]);
	RESET ROLE;
	SELECT stacksaga.create_ring('north', 'one');
});

# What a node answers: to its superuser, and to the service.
sub query
{
	my ($node, $sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub as_service
{
	my ($node, $sql) = @_;
	return query($node, "SET ROLE service; $sql");
}

sub run_pending
{
	my ($node, $offset) = @_;
	return query($node, "SET stacksaga.clock_offset = '$offset'; SELECT stacksaga.run_pending()");
}

my (%id, %lease);

sub start_saga
{
	my ($key, $input, $options) = @_;
	$options //= '';
	$id{$key} = as_service($before,
		"SELECT saga_id FROM stacksaga.start_saga('order', '$input', '$key' $options)");
	return;
}

# Claims all that waits in the bank.
sub claim
{
	my %key = reverse %id;
	my $rows = as_service($before, q{
		SELECT saga_id, lease FROM stacksaga.claim_steps('bank', 'teller', 100, '1 day')});
	foreach my $row (split /\n/, $rows)
	{
		my ($id, $lease) = split /\|/, $row;
		$lease{ $key{$id} } = $lease;
	}
	return;
}

# The call that answers a claim, for the lease that was given or another one.
sub completion
{
	my ($key, $lease) = @_;
	$lease //= $lease{$key};
	return "SELECT stacksaga.complete_step('$id{$key}', 'charge', $lease, '\"paid\"')";
}

sub refuse
{
	my ($key) = @_;
	return as_service($before, qq{
		SELECT stacksaga.fail_step('$id{$key}', 'charge', $lease{$key}, 'no', 'non_retryable')});
}

# A database of another encoding, with a saga whose name, key and input are other bytes there.
$ENV{PGCLIENTENCODING} = 'UTF8';
my $accented = q{SELECT saga_id, token, created
	FROM stacksaga.start_saga('été', '{"café": "é"}', 'clé', attributes => '{"café": "é"}')};
my $found = q{SELECT key FROM stacksaga.find_sagas(attributes => '{"café": "é"}')};
query($before, q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'});
$before->safe_psql('latin', q{
	CREATE EXTENSION stacksaga;
	SELECT stacksaga.define_saga('été', ARRAY[stacksaga.queue_step('étape', 'café', compensable => true)])});
my $identity = $before->safe_psql('latin', $accented);
like($identity, qr/\|t$/, 'a saga in LATIN1');

# One saga in each state that there is; what is to stand still comes last.
start_saga($_, '{}') foreach qw(completed failed compensating claimed charged);
start_saga('parked', '{"stuck": "reserve"}');
start_saga('paused', '{"busy": "reserve"}');
run_pending($before, '0');
claim();
as_service($before, completion('completed'));
refuse($_) foreach qw(failed parked);
run_pending($before, '0');
as_service($before, completion('charged'));
refuse('compensating');
start_saga('pending', '{"n": 1}', q{, attributes => '{"n": 1}', priority => 2, group_key => 'tenant'});
start_saga('later', '{}', ", run_at => stacksaga.clock_now() + interval '1 day'");

is( query($before, q{
	SELECT key, status, current_step, attempt, paused_until IS NOT NULL
	  FROM stacksaga.sagas ORDER BY key}), 'charged|running|ship|0|f
claimed|running|charge|1|f
compensating|compensating|reserve|0|f
completed|completed|||f
failed|failed|||f
later|pending|reserve|0|t
parked|parked|||f
paused|running|reserve|1|t
pending|pending|reserve|0|f', 'a saga in each state');

# What operators have set and done: limits, of which a rate remembers its last claims, a pause, a schedule.
query($before, q{
	SELECT stacksaga.set_queue('limited', 2, 1, 3, '1 hour'), stacksaga.pause_queue('paused', 'moving house');
	-- Its claims do not time out while a slow machine dumps and restores.
	SELECT stacksaga.define_saga('limited', ARRAY[
		stacksaga.queue_step('q', 'limited', compensable => true, timeout => '12 hours'),
		stacksaga.queue_step('p', 'paused', compensable => true)]);
	SELECT stacksaga.create_schedule('nightly', 'limited', '30 2 * * *', '{"a": 1}', 'Europe/Berlin');
	SELECT stacksaga.pause_schedule('nightly', 'moving house')});
my $claim_limited = q{SELECT count(*) FROM stacksaga.claim_steps('limited', 'w', 10, '1 day')};
as_service($before, q{SELECT stacksaga.start_saga('limited', '{}', 'limited ' || n, priority => n % 5 + 1,
	group_key => 'tenant ' || n % 3, attributes => '{"limited": true}') FROM generate_series(1, 6) AS n});
is(as_service($before, $claim_limited), '2', 'two steps run in a limited queue');
query($before, q{
	SET ROLE owner;
	SET stacksaga.on_behalf_of = 'carol';
	SELECT stacksaga.suspend_saga(saga_id, 'moving house') FROM stacksaga.sagas WHERE key = 'limited 6'});

# The dump, and a restore into an empty database of another server.
my $dump = "$PostgreSQL::Test::Utils::tmp_check/sagas.dump";
$before->prepare_dump('postgres');
command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $before->connstr('postgres') ], 'pg_dump');
my $after = StacksagaCluster->new('after');
$after->init;
$after->start;
query($after, 'CREATE ROLE owner; CREATE ROLE service');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $after->connstr('postgres'), $dump ],
	'pg_restore');

# Everything is as it was, but for the oids of roles, which another cluster numbers anew.
foreach my $table (@tables)
{
	my $row = "(to_jsonb(t) - '{definer_oid,role_oid}'::text[])::text";
	my $rows = "SELECT count(*), md5(string_agg($row, ',' ORDER BY $row)) FROM stacksaga.$table t";
	is(query($after, $rows), query($before, $rows), "table $table is kept");
}
foreach my $question (
	'SELECT * FROM stacksaga.sagas ORDER BY saga_id',
	'SELECT * FROM stacksaga.saga_history ORDER BY saga_id, started_at, step, attempt',
	'SELECT s.key, l FROM stacksaga.sagas s, stacksaga.saga_timeline(s.saga_id) l ORDER BY 1, 2',
	'SELECT s.key, r.* FROM stacksaga.sagas s, stacksaga.saga_result(s.saga_id) r ORDER BY 1',
	'SELECT * FROM stacksaga.find_sagas()',
	# What was counted is the old server's.
	q{SELECT to_jsonb(q) - '{completed,failed}'::text[] FROM stacksaga.queues q ORDER BY queue},
	'SELECT * FROM stacksaga.schedules',
	'SELECT * FROM stacksaga.operator_actions ORDER BY at, object',
	'SELECT count(*) > 5 FROM stacksaga.operator_actions',
	q{SELECT * FROM stacksaga.find_sagas(attributes => '{"limited": true}')},
	q{SELECT * FROM stacksaga.find_sagas(status => 'pending', attributes => '{"n": 1}')})
{
	is(query($after, $question), query($before, $question), "same answer: $question");
}

# Nor does the encoding of the database change who a saga is.
my $latin = "$PostgreSQL::Test::Utils::tmp_check/latin.dump";
$before->prepare_dump('latin');
command_ok([ 'pg_dump', '-Fc', '-f', $latin, '-d', $before->connstr('latin') ], 'pg_dump of LATIN1');
query($after, q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'UTF8'});
command_ok([ 'pg_restore', '--exit-on-error', '-d', $after->connstr('latin'), $latin ],
	'pg_restore into UTF8');
is($after->safe_psql('latin', $accented), $identity =~ s/t$/f/r, 'the same saga in UTF8');
is($after->safe_psql('latin', $found), 'clé', 'found by its attribute in UTF8');
$before->stop;

# Identity is kept: keys, fingerprints, versions; numbers go on after the largest.
my $again = q{SELECT saga_id, created FROM stacksaga.start_saga('order', '{"n": 1}', 'pending')};
is(as_service($after, $again), "$id{pending}|f", 'a key stands for the saga that it stood for');
$after->raises_sqlstate('postgres',
	q{SELECT stacksaga.start_saga('order', '{"n": 2}', 'pending')}, 'SG422');

sub define
{
	my ($steps) = @_;
	return query($after, qq{
		SET ROLE owner; SET search_path = shop;
		SELECT stacksaga.define_saga('order', ARRAY[$steps])});
}

is(define(q{stacksaga.queue_step('old', 'q', compensable => true)}), '1', 'old content has its version');
is( define(q{
	stacksaga.sql_step('reserve', 'act(stacksaga.step_call)', 'act(stacksaga.step_call)',
		retry => stacksaga.retry_policy(initial_interval => '5 minutes', jitter => 0)),
	stacksaga.queue_step('charge', 'bank', compensable => true, timeout => '12 hours'),
	stacksaga.sql_step('ship', 'act(stacksaga.step_call)')}),
	'2', 'so has the content that was current');
is(define(q{stacksaga.queue_step('new', 'q', compensable => true)}), '3', 'new content has the next version');
is(query($after, "SELECT stacksaga.create_ring('south', 'one')"), '3', 'rings count on');

# What was forbidden is forbidden.
$after->raises_sqlstate('postgres', q{
	UPDATE stacksaga.saga SET status = 'running', direction = 'act' WHERE key = 'compensating'},
	'SG409');
$after->raises_sqlstate('postgres', 'SET ROLE service; SELECT stacksaga.run_pending()', '42501');

# The claim of before the dump still holds, and no other lease does.
is(as_service($after, "SELECT count(*) FROM stacksaga.claim_steps('bank', 'another')"),
	'0', 'a claimed step is still claimed');
$after->raises_sqlstate('postgres', completion('claimed', $lease{claimed} + 1), 'SG412');
$after->raises_sqlstate('postgres', completion('compensating'), 'SG409');
is(as_service($after, completion('claimed')), 'running', 'its answer counts');
is(as_service($after, completion('completed')),
	'completed', 'an answer of before is the same answer again');

# Limits hold as before, for what was claimed before as well.
is(as_service($after, $claim_limited), '0', 'as many run as may');
query($after, q{SELECT stacksaga.set_queue('limited', 4, NULL, 3, '1 hour')});
is(as_service($after, $claim_limited), '1', 'the rate knows of the claims of before');
query($after, q{DELETE FROM stacksaga.work WHERE saga_id IN (SELECT saga_id FROM stacksaga.saga WHERE key LIKE 'limited %');
	DELETE FROM stacksaga.saga WHERE key LIKE 'limited %'});

# Every saga ends as it would have ended: what is due is done once, as the role that defined it.
run_pending($after, '10 minutes');
is( query($after, q{
	SET stacksaga.clock_offset = '10 minutes';
	SELECT stacksaga.complete_step(saga_id, step, lease)
	  FROM stacksaga.claim_steps('bank', 'teller', 100)}),
	"running\nrunning", 'steps that are claimed after the restore');
run_pending($after, '10 minutes');
is(query($after, 'SELECT key, status FROM stacksaga.sagas ORDER BY key'), 'charged|completed
claimed|completed
compensating|failed
completed|completed
failed|failed
later|pending
parked|parked
paused|completed
pending|completed', 'the end of each saga');
is( query($after, q{
	SELECT key, string_agg(format('%s %s by %s', direction, step, role), ', '
	                       ORDER BY direction, step DESC)
	  FROM shop.done JOIN stacksaga.sagas USING (saga_id) GROUP BY key ORDER BY key}),
	'charged|act ship by owner, act reserve by owner
claimed|act ship by owner, act reserve by owner
compensating|act reserve by owner, compensate reserve by owner
completed|act ship by owner, act reserve by owner
failed|act reserve by owner, compensate reserve by owner
parked|act reserve by owner
paused|act ship by owner, act reserve by owner
pending|act ship by owner, act reserve by owner', 'each step and compensation happened once');

# The workers of the restored server take up what is due there.
$after->append_conf('postgresql.conf',
	"shared_preload_libraries = 'stacksaga'\nstacksaga.databases = 'postgres'\n");
query($after, "UPDATE stacksaga.work SET due_at = now() WHERE saga_id = '$id{later}'");
$after->restart;
ok( $after->poll_query_until('postgres',
		"SELECT EXISTS (SELECT FROM shop.done WHERE saga_id = '$id{later}')"),
	'a worker runs a step of before');
ok( $after->poll_query_until('postgres', qq{
	SELECT bool_and(stacksaga.complete_step(saga_id, step, lease) = 'running')
	  FROM stacksaga.claim_steps('bank', 'teller') WHERE saga_id = '$id{later}'}),
	'a service its next');
is(as_service($after, "SELECT stacksaga.await_saga('$id{later}')"), 'completed', 'the saga ends');

done_testing();
