# Logical replication beside the extension. A subscriber of the users' own tables needs no stacksaga; a publication of
# all tables holds nothing up on its server; a copy for reports answers as the original does and has no work; and a
# database moves to another server, whose timeline and oids are others: its own tables by replication, those of
# stacksaga by pg_dump while nobody works. Each effect happens once, and fencing tokens only rise.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my $tmp = $PostgreSQL::Test::Utils::tmp_check;

sub timeline
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT timeline_id FROM pg_control_checkpoint()');
}

# A clean stop, a start as the standby of nobody, a promotion: the next timeline.
sub raise_timeline
{
	my ($node) = @_;
	$node->stop;
	$node->set_standby_mode;
	$node->start;
	$node->promote;
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

sub count
{
	my ($node, $database, $rows) = @_;
	return $node->safe_psql($database, "SELECT count(*) FROM $rows");
}

# The server that is left has been promoted twice, so that the timeline of a new one is smaller.
my $one = StacksagaCluster->new('one');
$one->init(worker_databases => ['shop'], allows_streaming => 'logical');
plan skip_all => 'FOR TABLES IN SCHEMA is of PostgreSQL 15' if $one->major < 15;
$one->append_conf('postgresql.conf', "stacksaga.saga_retention = '-1'");
$one->start;
raise_timeline($one) for 1 .. 2;
is(timeline($one), 3, 'the first server is on its third timeline');
$one->safe_psql('postgres', $_) for 'CREATE ROLE owner', 'CREATE ROLE service', 'CREATE DATABASE shop';
$one->create_extension('shop');
$one->safe_psql('shop', q{
	SELECT stacksaga.grant_usage('owner', 'operator'), stacksaga.grant_usage('service', 'service');
	CREATE SCHEMA shop AUTHORIZATION owner;
	SET ROLE owner;
	CREATE TABLE shop.booking (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, idempotency_key text NOT NULL);
	CREATE TABLE shop.mail (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id uuid NOT NULL);
	CREATE FUNCTION shop.book(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO shop.booking (idempotency_key) VALUES (call.idempotency_key) RETURNING to_jsonb(current_user) $$;
	CREATE FUNCTION shop.mail(message stacksaga.message) RETURNS void LANGUAGE sql AS $$
		INSERT INTO shop.mail (message_id) VALUES (message.message_id) $$;
	-- A trigger of the users' own that publishes.
	CREATE FUNCTION shop.booked() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM stacksaga.publish('booked', '{}', NEW.idempotency_key); RETURN NEW; END $$;
	CREATE TRIGGER booked AFTER INSERT ON shop.booking FOR EACH ROW EXECUTE FUNCTION shop.booked();
	SELECT stacksaga.define_saga('order', ARRAY[
		stacksaga.sql_step('book', 'shop.book(stacksaga.step_call)'),
		stacksaga.queue_step('charge', 'bank', compensable => true, retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '1 ms')),
		stacksaga.sql_step('ship', 'shop.book(stacksaga.step_call)')]);
	SELECT stacksaga.create_subscription('mailer', 'booked', handler => 'shop.mail(stacksaga.message)')});

# Starts so many sagas, and answers for the bank until they end.
sub order
{
	my ($node, $first, $last) = @_;
	$node->safe_psql('shop', "SET ROLE service; SELECT stacksaga.start_saga('order', '{}', 'order ' || n)
		FROM generate_series($first, $last) AS n");
	return;
}

my $answer = q{SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('bank', 'teller', 10)};

sub wait_until
{
	my ($node, $database, $condition, $test) = @_;
	return ok($node->poll_query_until($database, "SELECT $condition"), $test);
}

sub finish
{
	my ($node, $test) = @_;
	return ok($node->poll_query_until('shop', "$answer \\g /dev/null\nSELECT count(*) = 0 FROM stacksaga.sagas
		WHERE status <> 'completed'"), $test);
}

my $two = StacksagaCluster->new('two');
$two->init(allows_streaming => 'logical');
$two->start;
$two->safe_psql('postgres', $_)
  for 'CREATE ROLE shift', 'CREATE ROLE owner', 'CREATE ROLE service', map { "CREATE DATABASE $_" } qw(plain report shop);
my $from = $one->connstr('shop');

sub subscribe
{
	my ($database, $publication) = @_;
	return $two->psql($database,
		"CREATE SUBSCRIPTION $publication CONNECTION \$\$$from\$\$ PUBLICATION $publication");
}

# A publication of all tables has those of stacksaga in it. They can be changed and deleted all the same, and a
# subscriber without them is refused.
$one->safe_psql('shop', q{
	CREATE PUBLICATION everything FOR ALL TABLES;
	CREATE PUBLICATION own FOR TABLES IN SCHEMA shop;
	SELECT pg_create_logical_replication_slot(s, 'pgoutput') FROM unnest(ARRAY['all_changes', 'own_changes']) AS s});
order($one, 1, 10);
finish($one, 'sagas end while all tables are published');
wait_until($one, 'shop', '(SELECT count(*) FROM shop.mail) = 20', 'and messages are handled');
$one->safe_psql('shop', 'SELECT stacksaga.maintain_outbox(true)') for 1 .. 3;
is($one->safe_psql('shop', q{SET stacksaga.clock_offset = '60 days';
	SELECT stacksaga.expire_actions() > 0;
	SELECT count(*) FROM stacksaga.operator_action}),
	"t\n0", 'records of actions can be removed where deletes are published');

# Relations of stacksaga in the stream, relations, truncations.
my $stream = q{SELECT count(*) FILTER (WHERE kind = 'R' AND position('stacksaga'::bytea IN data) = 6) > 0,
	count(*) FILTER (WHERE kind = 'R') > 0, count(*) FILTER (WHERE kind = 'T') > 0
	FROM pg_logical_slot_get_binary_changes('%s_changes', NULL, NULL, 'proto_version', '1', 'publication_names', '%s'),
	     substr(data, 1, 1) AS kind};
is($one->safe_psql('shop', sprintf $stream, 'own', 'own'), 'f|t|f', 'nothing of stacksaga comes with own tables');
is($one->safe_psql('shop', sprintf $stream, 'all', 'everything'), 't|t|t', 'all tables are those of stacksaga too, truncations with them');
$one->safe_psql('shop', q{SELECT pg_drop_replication_slot(s) FROM unnest(ARRAY['all_changes', 'own_changes']) AS s});

$two->safe_psql('plain', q{
	CREATE SCHEMA shop;
	CREATE TABLE shop.booking (id bigint PRIMARY KEY, idempotency_key text NOT NULL);
	CREATE TABLE shop.mail (id bigint PRIMARY KEY, message_id uuid NOT NULL)});
my (undef, undef, $refusal) = subscribe('plain', 'everything');
like($refusal, qr/schema "stacksaga" does not exist/, 'a subscriber of all tables needs the extension');
$one->safe_psql('shop', 'DROP PUBLICATION everything');
subscribe('plain', 'own');
order($one, 11, 20);
finish($one, 'more sagas end');
wait_until($two, 'plain', '(SELECT count(*) = 40 AND count(DISTINCT idempotency_key) = 40 FROM shop.booking)',
	'a subscriber without stacksaga has each effect once');
$two->safe_psql('plain', 'DROP SUBSCRIPTION own');

# A copy for reports: all that the views of sagas read, but for the work.
my $read = join ', ', map { "stacksaga.$_" } qw(saga_definition definition_step saga saga_attribute effect failure
  saga_signal saga_action);
$two->create_extension('report');
$two->safe_psql('report', q{CREATE ROLE reader; SELECT stacksaga.grant_usage('reader', 'monitor')});
$one->safe_psql('shop', q{SELECT stacksaga.create_ring('north', 'one')});
$one->safe_psql('shop', "CREATE PUBLICATION report FOR TABLE $read, stacksaga.ring WHERE (ring_id <> 1)");
subscribe('report', 'report');
order($one, 21, 25);
finish($one, 'sagas end while they are copied');
$one->wait_for_catchup('report');
wait_until($two, 'report', q{(SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel)}, 'the copy is there');
for my $question ('SELECT * FROM stacksaga.sagas ORDER BY saga_id',
	'SELECT * FROM stacksaga.saga_history ORDER BY saga_id, started_at, step, direction',
	q{SELECT key FROM stacksaga.find_sagas(status => 'completed') ORDER BY key})
{
	my $known = $one->safe_psql('shop', $question);
	isnt($known, '', 'there is an answer');
	is($two->safe_psql('report', "SET ROLE reader; $question"), $known, "the copy has the same: $question");
}
$one->safe_psql('shop', q{SELECT stacksaga.redact_saga(saga_id, 'asked for') FROM stacksaga.sagas WHERE key = 'order 1'});
$one->wait_for_catchup('report');
is($two->safe_psql('report', q{SELECT input FROM stacksaga.sagas WHERE key = 'order 1'}), '{"redacted": true}', 'what is erased is erased in the copy');
order($one, 26, 27);
wait_until($two, 'report', q{(SELECT count(*) = 27 FROM stacksaga.sagas)}, 'live sagas are copied');
is($two->safe_psql('report', 'SELECT stacksaga.run_pending()'), 0, 'and a worker of the copy finds no work');
is($two->safe_psql('report', q{SELECT string_agg(region, ' ' ORDER BY ring_id) FROM stacksaga.ring}), 'default north', 'rings are copied');
like($two->safe_psql('report', q{SELECT detail FROM stacksaga.doctor() WHERE check_name = 'definers' AND severity = 'error'}),
	qr/role "?owner/, 'its definers have the oids of the other server');
# What it must not have: with the work, it does the steps again.
$one->safe_psql('shop', 'ALTER PUBLICATION report ADD TABLE stacksaga.work');
$two->safe_psql('report', 'ALTER SUBSCRIPTION report REFRESH PUBLICATION');
wait_until($two, 'report', q{(SELECT count(*) FROM stacksaga.work) >= 2}, 'with its work the copy');
is($two->safe_psql('report', q{SELECT count(*) FROM stacksaga.claim_steps('bank', 'thief', 10)}), 2,
	'gives steps to services that the original gives to others');
# What is written there conflicts with what comes.
my $start = q{SELECT stacksaga.start_saga('order', '{}', 'order 28')};
$two->safe_psql('report', $start);
$one->safe_psql('shop', $start);
wait_until($two, 'report', q{(SELECT apply_error_count > 0 FROM pg_stat_subscription_stats WHERE subname = 'report')},
	'a saga that was started in the copy stops the replication');
$two->safe_psql('report', 'DROP SUBSCRIPTION report');

# The move. First the definitions of all, and the rows of the users' own tables, while everything runs.
my ($schema, $rows) = ("$tmp/schema.sql", "$tmp/rows.sql");
command_ok([ 'pg_dump', '--schema-only', '--no-publications', '-f', $schema, '-d', $from ],
	'the definitions are dumped');
command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', $two->connstr('shop'), '-f', $schema ], 'and restored');
is(count($two, 'shop', 'stacksaga.saga_definition'), 0, 'without the rows of stacksaga');
subscribe('shop', 'own');
order($one, 29, 40);
$one->safe_psql('shop', 'SELECT stacksaga.publish($$booked$$, $${}$$) FROM generate_series(1, 5)');
wait_until($one, 'shop', q{(SELECT count(*) = 65 FROM shop.booking)}, 'steps are done while rows are copied');
my $claim = q{SELECT saga_id, lease, stacksaga.fencing_token(lease) FROM stacksaga.claim_steps('bank', 'teller', 1, '10 minutes')};
my ($claimed, $lease, $token) = split /\|/, $one->safe_psql('shop', $claim);

# Then nobody works, what was written arrives, and the rows of stacksaga follow.
$one->safe_psql('postgres', 'ALTER SYSTEM SET stacksaga.workers = 0');
$one->reload;
wait_until($one, 'postgres', q{NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'stacksaga worker')}, 'no worker works');
$one->safe_psql('postgres', 'ALTER DATABASE shop SET default_transaction_read_only = on');
$one->raises_sqlstate('shop', $start =~ s/28/29 too late/r, '25006');
$one->wait_for_catchup('own');
is(count($two, 'shop', 'shop.booking'), count($one, 'shop', 'shop.booking'), 'the rows have arrived');
is(count($two, 'shop', 'stacksaga.outbox_message'), 0, 'and triggers have not published them again');
$two->safe_psql('shop', 'DROP SUBSCRIPTION own');
command_ok([ 'pg_dump', '--data-only', '-n', 'stacksaga', '--extension=stacksaga', '-f', $rows, '-d', $from ],
	'the rows of stacksaga are dumped');
command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', $two->connstr('shop'), '-f', $rows ], 'and restored');
my $sequences = $one->safe_psql('shop', q{
	SELECT format('SELECT setval(%L, %s);', format('%I.%I', schemaname, sequencename), last_value)
	  FROM pg_sequences WHERE schemaname NOT LIKE 'stacksaga%' AND last_value IS NOT NULL});
$two->safe_psql('shop', $sequences);
is($two->safe_psql('shop', q{SELECT * FROM stacksaga.sagas ORDER BY saga_id}),
	$one->safe_psql('shop', q{SELECT * FROM stacksaga.sagas ORDER BY saga_id}), 'all sagas are there');

# The timeline rises above that of the old server, before anybody works.
cmp_ok(timeline($two), '<', timeline($one), 'the new server begins at an earlier timeline');
my $again = q{SELECT stacksaga.fencing_token(%s)};
cmp_ok($two->safe_psql('shop', sprintf $again, $lease), 'lt', $token, 'where its tokens would be smaller');
raise_timeline($two) while timeline($two) <= timeline($one);
$one->stop;
$two->append_conf('postgresql.conf', "shared_preload_libraries = 'stacksaga'\nstacksaga.databases = 'shop'\nstacksaga.saga_retention = '-1'");
$two->restart;

is($two->safe_psql('shop', qq{SET ROLE service; SELECT stacksaga.complete_step('$claimed', 'charge', $lease)}), 'running',
	'an answer to a claim of before counts');
cmp_ok($two->safe_psql('shop', q{SELECT stacksaga.fencing_token(lease) FROM stacksaga.claim_steps('bank', 'teller', 1, '1 s')}), 'gt', $token,
	'fencing tokens are greater than before');
order($two, 1, 50);
finish($two, 'all sagas end on the new server');
is($two->safe_psql('shop', 'SELECT count(*), count(DISTINCT idempotency_key) FROM shop.booking'), '100|100', 'each step was done once');
wait_until($two, 'shop', '(SELECT count(*) = 105 AND count(DISTINCT message_id) = 105 FROM shop.mail)', 'each message was handled once');
done_testing();
