# What modules keep in a session is neither left by a handler nor found by one: connections of dblink, sessions of
# postgres_fdw, the seed of random(), open large objects, prepared statements and cursors; in a worker and in
# run_pending().
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('modules');
$node->init;
$node->append_conf('postgresql.conf', 'max_connections = 50');
$node->start;
if ($node->safe_psql('postgres', q{
	SELECT count(*) FROM pg_available_extensions WHERE name IN ('dblink', 'postgres_fdw')}) != 2)
{
	$node->stop;
	plan skip_all => 'dblink and postgres_fdw are not installed';
}
$node->create_extension('postgres');
my ($host, $port) = ($node->host, $node->port);
my $to_itself = "host=$host port=$port dbname=postgres";
$node->safe_psql('postgres', qq{
	CREATE EXTENSION dblink;
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
	CREATE USER MAPPING FOR PUBLIC SERVER itself OPTIONS (user 'postgres', password_required 'false');
	CREATE TABLE here (what text);
	CREATE FOREIGN TABLE there (what text) SERVER itself OPTIONS (table_name 'here');
	CREATE TABLE seen (what text);
	GRANT ALL ON here, there, seen TO PUBLIC});
foreach my $role ('alice', 'bob')
{
	$node->safe_psql('postgres', qq{
		CREATE ROLE $role;
		SELECT stacksaga.grant_usage('$role', 'operator');
		CREATE SCHEMA $role AUTHORIZATION $role;
		GRANT EXECUTE ON FUNCTION dblink_connect_u(text), dblink_connect_u(text, text) TO $role;
		GRANT EXECUTE ON FUNCTION pg_replication_origin_session_setup(text) TO $role;
		SET ROLE $role;
		SET search_path = $role, public;
		CREATE FUNCTION run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN
			EXECUTE call.input ->> 0;
			RETURN '1';
		END \$\$;
		CREATE FUNCTION run(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			EXECUTE m.payload ->> 0;
		END \$\$;
		CREATE FUNCTION connects(name text) RETURNS text LANGUAGE plpgsql AS \$\$
		DECLARE
			result text;
		BEGIN
			result := dblink_connect_u(name, '$to_itself');
			RETURN result;
		END \$\$;
		SELECT stacksaga.define_saga('$role', ARRAY[stacksaga.sql_step('only', 'run(stacksaga.step_call)',
			retry => stacksaga.retry_policy(max_attempts => 1))]);
		SELECT stacksaga.create_subscription('$role', '$role', 'run(stacksaga.message)',
			retry => stacksaga.retry_policy(max_attempts => 1), stop_on_first_failure => false)});
}

my $connect = "DO 'BEGIN PERFORM dblink_connect_u(''c'', ''$to_itself''); END'";
my $connect_unnamed = "DO 'BEGIN PERFORM dblink_connect_u(''$to_itself''); END'";
my $use = "INSERT INTO seen SELECT what FROM dblink('c', 'SELECT current_user::text') AS d (what text)";
my $use_unnamed = "INSERT INTO seen SELECT what FROM dblink('SELECT current_user::text') AS d (what text)";
my $random = "INSERT INTO seen SELECT 'random ' || random()";
# What handlers execute one after the other (the role, the statement), and the errors that are expected.
my @kept = (
	[ 'a connection that is used again', [ alice => "$connect; $use" ], [ alice => "$connect; $use" ] ],
	[ 'a connection of another role', [ alice => $connect ], [ bob => $use, 'password is required' ] ],
	[ 'an expression that is kept', map({ [ alice => q{SELECT alice.connects('c')} ] } 1 .. 4), [ bob => $use, 'password is required' ] ],
	[ 'one without a name', [ alice => $connect_unnamed ], [ bob => $use_unnamed, 'connection not available' ] ],
	[ 'one that is closed, and one for a statement', [ alice => "$connect; SELECT dblink_disconnect('c')" ],
		[ bob => "SELECT * FROM dblink('$to_itself user=nobody', 'SELECT 1') AS d (what text)", 'password is required' ] ],
	[ 'a connection of a handler that fails', [ alice => "$connect; SELECT 1 / 0", 'division by zero' ],
		[ bob => $use, 'password is required' ] ],
	[ 'a seed', [ alice => "SELECT setseed(0.5); $random" ], [ bob => $random ], [ alice => "SET seed = 0.5; $random" ], [ bob => $random ] ],
	[ 'a seed of a handler that fails', [ alice => 'SELECT setseed(0.5); SELECT 1 / 0', 'division by zero' ], [ bob => $random ] ],
	[ 'a large object', [ alice => "SELECT lo_open(lo_create(4711), 393216)" ],
		[ bob => "SELECT loread(0, 1)", 'invalid large-object descriptor: 0' ] ],
	[ 'a prepared statement', [ bob => 'EXECUTE of_caller', 'a handler must not execute EXECUTE' ],
		[ alice => 'CREATE TEMP TABLE t AS EXECUTE of_caller', 'a handler must not execute EXECUTE' ],
		[ bob => 'EXPLAIN EXECUTE of_caller', 'a handler must not execute EXECUTE' ] ],
	[ 'a library', [ alice => q{LOAD '$libdir/plugins/none'}, 'a handler must not execute LOAD' ] ],
	[ 'an origin', [ alice => q{SELECT pg_replication_origin_session_setup('o')},
		'a handler must not call pg_replication_origin_session_setup()' ] ]);

my $foreign_sessions = q{
	SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postgres_fdw' OR (backend_type = 'client backend'
		AND pid <> pg_backend_pid() AND query LIKE 'SELECT current_user%')};

sub check_random
{
	my ($name, $seeded) = @_;
	my @random = split(/\n/, $node->safe_psql('postgres', q{SELECT what FROM seen WHERE what LIKE 'random%'}));
	my %once = map { $_ => 1 } grep { $_ ne $seeded } @random;
	# The handlers that have set the seed see what it gives; no other one does.
	is(scalar(keys %once) + grep({ $_ eq $seeded } @random), scalar(@random), "$name: no random number comes twice");
	return;
}
my $seeded = 'random ' . $node->safe_psql('postgres', 'SELECT setseed(0.5); SELECT random()') =~ s/^\n//r;
my $follower = $node->safe_psql('postgres', 'SELECT setseed(0.5); SELECT random(); SELECT random()') =~ s/.*\n//sr;

# Each list as steps and as messages, one after the other in one session.
sub check_kept
{
	my ($where, $run) = @_;
	foreach my $kept (@kept)
	{
		my ($name, @handlers) = @$kept;
		foreach my $kind ('a step', 'a message')
		{
			$node->safe_psql('postgres', 'TRUNCATE seen; SELECT lo_unlink(4711) FROM pg_largeobject_metadata WHERE oid = 4711');
			my $n = 0;
			my $statements = join(";\n", map {
				my ($role, $statement) = @$_;
				++$n;
				$kind eq 'a step'
				  ? "SELECT stacksaga.start_saga('$role', to_jsonb(ARRAY[\$s\$$statement\$s\$]), '$where: $name: $kind $n')"
				  : "SELECT stacksaga.publish('$role', to_jsonb(ARRAY[\$s\$$statement\$s\$]), key => '$where: $name: $kind $n')" } @handlers);
			$run->($statements);
			$node->poll_query_until('postgres', q{
				SELECT NOT EXISTS (SELECT FROM stacksaga.sagas WHERE status NOT IN ('completed', 'failed'))
				   AND NOT EXISTS (SELECT FROM stacksaga.subscriptions WHERE lag_messages <> 0)}) or die "$where: $name does not end";
			my $expected = join("\n", map { $_->[2] // '' } @handlers);
			my $of = join(', ', map { "'$where: $name: $kind $_'" } 1 .. $n);
			my $errors = $node->safe_psql('postgres', qq{
				SELECT coalesce((SELECT last_error FROM stacksaga.sagas WHERE key = k),
					(SELECT last_error FROM stacksaga.dead_messages WHERE key = k), '')
				  FROM unnest(ARRAY[$of]) WITH ORDINALITY AS k (k, n) ORDER BY n});
			my @got = split(/\n/, $errors, -1);
			my @all = map { my $e = $handlers[$_][2]; defined $e && index($got[$_] // '', $e) >= 0 ? $e : $got[$_] // '' } 0 .. $n - 1;
			is(join("\n", @all), $expected, "$where: $name: $kind");
			check_random("$where: $name: $kind", $seeded) if $name =~ /seed/;
			is($node->safe_psql('postgres', "SELECT count(*) FROM seen WHERE what = 'random $follower'"), 0,
				"$where: no handler goes on with the seed of another") if $name =~ /seed/;
		}
	}
	return;
}

check_kept('run_pending()', sub {
	my ($statements) = @_;
	my $output = $node->safe_psql('postgres', qq{
		\\o /dev/null
		PREPARE of_caller AS SELECT 'of the caller';
		$statements;
		SELECT stacksaga.run_pending();
		\\o
		SELECT dblink_get_connections() IS NULL;
		SELECT random() <> $follower});
	is($output, "t\nt", 'run_pending(): its caller finds no connection and no seed of a handler');
});

# What the caller has: its connection is not a handler's, nor its seed or its cursor.
my ($status, $output, $error) = $node->psql('postgres', qq{
	SELECT dblink_connect('c', '$to_itself');
	SELECT stacksaga.start_saga('bob', to_jsonb(ARRAY[\$s\$$use\$s\$]), 'of the caller');
	SELECT stacksaga.run_pending();
	SELECT what FROM dblink('c', 'SELECT ''still there''') AS d (what text)});
like($error, qr/the session may have connections of dblink/, 'a handler does not use its caller\'s connection');
like($output, qr/^0$/m, 'it is left to a worker');
like($output, qr/^still there$/m, 'and the caller keeps it');
($status, $output, $error) = $node->psql('postgres', qq{
	BEGIN;
	SELECT stacksaga.start_saga('alice', '["SELECT alice.connects(''c'')"]');
	SELECT stacksaga.run_pending();
	SELECT dblink_connect('d', '$to_itself');
	SELECT stacksaga.start_saga('alice', '["SELECT alice.connects(''c'')"]');
	SELECT stacksaga.run_pending();
	ROLLBACK});
like($error, qr/the session may have connections of dblink/, 'nor one that was opened in the same transaction');
foreach my $statement ('FETCH of_caller', 'MOVE ALL IN of_caller', 'CLOSE of_caller', 'CLOSE ALL', 'DECLARE of_caller CURSOR FOR SELECT 1')
{
	($status, $output, $error) = $node->psql('postgres', qq{
		UPDATE stacksaga.work SET due_at = 'infinity' WHERE false;
		BEGIN;
		DECLARE of_caller CURSOR FOR SELECT 'of the caller' || n FROM generate_series(1, 2) AS n;
		SELECT stacksaga.start_saga('bob', '["$statement"]');
		SELECT stacksaga.run_pending();
		FETCH of_caller;
		ROLLBACK});
	like($error, qr/the handler uses a cursor that the session had before/, "a handler does not $statement");
	like($output, qr/^of the caller1$/m, 'and the cursor is where it was');
}
is($node->safe_psql('postgres', qq{
	\\o /dev/null
	SELECT stacksaga.start_saga('alice', to_jsonb(ARRAY[\$s\$$random\$s\$]));
	TRUNCATE seen;
	SELECT setseed(0.5);
	SELECT stacksaga.run_pending();
	\\o
	SELECT what = '$seeded' FROM seen}), 'f', 'a handler draws no number from the seed of its caller');

# A worker runs what was left.
$node->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()');
$node->poll_query_until('postgres', q{
	SELECT last_error LIKE 'password is required%' FROM stacksaga.sagas WHERE key = 'of the caller'})
  or die 'the worker does not run it';
check_kept('a worker', sub { $node->safe_psql('postgres', $_[0]) });

# A foreign server's session ends with the transaction that used it.
$node->safe_psql('postgres', q{
	SELECT stacksaga.start_saga('alice', '["INSERT INTO there VALUES (''of alice'')"]');
	SELECT stacksaga.start_saga('bob', '["INSERT INTO there VALUES (''of bob'')"]')});
$node->poll_query_until('postgres', 'SELECT count(*) = 2 FROM here') or die 'the rows do not come';
$node->poll_query_until('postgres', q{
	SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'postgres_fdw'}) or die 'the session stays';
pass('a worker keeps no session of postgres_fdw');
is($node->safe_psql('postgres', q{
	BEGIN;
	SELECT count(*) FROM there;
	COMMIT;
	SELECT count(*) FROM postgres_fdw_get_connections();
	\o /dev/null
	BEGIN;
	SELECT stacksaga.start_saga('alice', '["INSERT INTO there VALUES (''again'')"]');
	SELECT stacksaga.run_pending();
	COMMIT;
	\o
	SELECT count(*) FROM postgres_fdw_get_connections();
	SELECT count(*) FROM here}), "2\n1\n0\n3", 'nor does run_pending()');

$node->stop;
done_testing();
