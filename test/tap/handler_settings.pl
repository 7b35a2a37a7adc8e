# A handler in run_pending() has the settings that a new session of its definer has, whatever its caller, the
# caller's role and the caller's client have set; and the caller has its own again afterwards.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('settings');
$node->init;
$node->append_conf('postgresql.conf', q{
	datestyle = 'german'
	shop.of_file = 'file'
	bytea_output = 'escape'});
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	SELECT stacksaga.grant_usage('alice', 'operator');
	SELECT stacksaga.grant_usage('bob', 'operator'), stacksaga.grant_usage('bob', 'service');
	-- A role's, in the order in which they count; the others have something else.
	ALTER ROLE alice IN DATABASE postgres SET intervalstyle = 'iso_8601';
	ALTER ROLE alice SET intervalstyle = 'sql_standard';
	ALTER DATABASE postgres SET intervalstyle = 'postgres_verbose';
	ALTER ROLE alice SET timezone = 'Asia/Tokyo';
	ALTER DATABASE postgres SET timezone = 'Europe/Rome';
	ALTER DATABASE postgres SET lc_monetary = 'C';
	ALTER ROLE ALL SET lc_numeric = 'C';
	ALTER ROLE ALL SET array_nulls = off;
	ALTER ROLE alice SET shop.tenant = 'alice';
	ALTER ROLE alice SET work_mem = '1MB';
	ALTER ROLE alice SET session_replication_role = 'local';
	ALTER ROLE bob SET datestyle = 'sql, dmy';
	ALTER ROLE bob SET bytea_output = 'hex';
	ALTER ROLE bob SET intervalstyle = 'postgres_verbose';
	ALTER ROLE bob SET shop.tenant = 'bob';
	ALTER ROLE bob SET shop.of_file = 'bob';
	CREATE SCHEMA a AUTHORIZATION alice;
	SET ROLE alice;
	SET search_path = a, public;
	-- What can be set, without what stays the caller's.
	CREATE VIEW of_session AS SELECT name, setting FROM pg_settings
	 WHERE context IN ('user', 'superuser') AND name !~ '^(stacksaga\.|shop\.|transaction_)'
	   AND name NOT IN ('lock_timeout', 'statement_timeout', 'work_mem', 'search_path', 'client_encoding',
	                    'max_stack_depth', 'temp_buffers');
	GRANT USAGE ON SCHEMA a TO PUBLIC;
	GRANT SELECT ON of_session TO PUBLIC;
	CREATE TABLE seen (name text, setting text);
	GRANT SELECT ON seen TO PUBLIC;
	CREATE FUNCTION see() RETURNS void LANGUAGE sql AS $$
		TRUNCATE a.seen;
		INSERT INTO a.seen SELECT name, setting FROM a.of_session
			UNION ALL SELECT n, current_setting(n, true) FROM unnest(ARRAY['shop.tenant', 'shop.of_file', 'shop.set', 'work_mem']) AS n;
	$$;
	CREATE FUNCTION see(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM a.see();
		-- What it sets is not the caller's either.
		SET timezone = 'America/Lima';
		PERFORM set_config('shop.set', 'handler', false), set_config('extra_float_digits', '-15', false);
		IF call.input ->> 0 = 'fails' THEN
			RAISE 'it fails' USING ERRCODE = 'P0001';
		END IF;
		RETURN '1';
	END $$;
	CREATE FUNCTION asked(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM a.see();
		RETURN 'done';
	END $$;
	CREATE FUNCTION raises(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE 'who knows' USING ERRCODE = 'SR504';
	END $$;
	CREATE FUNCTION see(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM a.see();
	END $$;
	SELECT stacksaga.define_saga('see', ARRAY[stacksaga.sql_step('only', 'see(stacksaga.step_call)',
		retry => stacksaga.retry_policy(max_attempts => 1))]);
	SELECT stacksaga.define_saga('ask', ARRAY[stacksaga.sql_step('only', 'raises(stacksaga.step_call)',
		verify => 'asked(stacksaga.step_call)')]);
	SELECT stacksaga.create_subscription('see', 'see', 'see(stacksaga.message)')});

# What a new session of the definer has, and what was seen.
my $fresh_settings = q{
	DO 'BEGIN END'; -- which loads plpgsql
	SELECT string_agg(name || '=' || coalesce(setting, 'NULL'), E'\n' ORDER BY name) FROM (
		SELECT name, setting FROM a.of_session
		UNION ALL SELECT n, coalesce(current_setting(n, true), '') FROM unnest(ARRAY['shop.tenant', 'shop.of_file', 'shop.set']) AS n) AS f};
my $seen_settings = q{
	SELECT string_agg(name || '=' || coalesce(setting, ''), E'\n' ORDER BY name) FROM a.seen WHERE name <> 'work_mem'};
my $fresh = $node->safe_psql('postgres', $fresh_settings, extra_params => [ '-U', 'alice' ]);
like($fresh, qr/^IntervalStyle=iso_8601$/m, 'a new session of the definer has what its role says');
like($fresh, qr/^DateStyle=German, /m, 'and what the server says');

# Every setting that a role may set, to something else. What breaks the session itself is left out.
my $set_all = q{
	DO $$
	DECLARE
		s record;
	BEGIN
		FOR s IN SELECT * FROM pg_settings WHERE context = ANY (CASE WHEN current_setting('is_superuser')::boolean
				THEN '{user,superuser}'::text[] ELSE '{user}' END)
			AND name IN (SELECT name FROM a.of_session) AND name !~ '^(debug|trace|log)_|^(backtrace_functions|exit_on_error)$'
		LOOP
			BEGIN
				PERFORM set_config(s.name, CASE
					WHEN s.vartype = 'bool' THEN CASE s.setting WHEN 'on' THEN 'off' ELSE 'on' END
					WHEN s.vartype = 'enum' THEN (SELECT max(v) FROM unnest(s.enumvals) AS v WHERE v <> s.setting)
					WHEN s.vartype IN ('integer', 'real') AND s.setting = s.min_val THEN s.max_val
					WHEN s.vartype IN ('integer', 'real') THEN s.min_val
					WHEN s.name = 'DateStyle' THEN 'postgres, ymd'
					WHEN s.name = 'TimeZone' THEN 'Pacific/Apia'
					WHEN s.name = 'application_name' THEN 'a caller'
					WHEN s.name = 'default_text_search_config' THEN 'pg_catalog.dutch'
					WHEN s.name LIKE 'lc%' THEN 'POSIX'
					ELSE s.setting END, false);
			EXCEPTION WHEN OTHERS THEN
				NULL;
			END;
		END LOOP;
	END $$;
	SET shop.tenant = 'caller';
	SET shop.set = 'caller';
	SET shop.of_file = 'caller';
	SET work_mem = '7MB';
};
my $all_settings = q{
	SELECT string_agg(name || '=' || setting, ',' ORDER BY name) || concat_ws(',', nullif(current_setting('shop.tenant', true), ''),
		nullif(current_setting('shop.set', true), ''), current_setting('work_mem')) FROM a.of_session WHERE name NOT LIKE 'plpgsql%'};
my %work = (
	'a step' => q{SELECT stacksaga.start_saga('see', '["works"]')},
	'a step that fails' => q{SELECT stacksaga.start_saga('see', '["fails"]')},
	'a verify function' => q{SELECT stacksaga.start_saga('ask')},
	'a message' => q{SELECT stacksaga.publish('see', '1')});

# One call, in a session of this role; the caller's settings before and after it.
sub seen_by
{
	my ($role, $set, $work, %options) = @_;
	local $ENV{PGOPTIONS} = $options{client} if defined $options{client};
	my $output = $node->safe_psql('postgres', qq{
		BEGIN READ WRITE;
		$set;
		\\o /dev/null
		$work;
		\\o
		$all_settings;
		SAVEPOINT s;
		SELECT 'ran ' || stacksaga.run_pending() + stacksaga.run_pending();
		$all_settings;
		$seen_settings;
		COMMIT}, extra_params => [ '-U', $role ]);
	my ($before, $ran, $after, $seen) = split(/\n/, $output, 4);
	return ($before, $after, $seen);
}

sub check_call
{
	my ($name, $role, $set, $work, %options) = @_;
	my ($before, $after, $seen) = seen_by($role, $set, $work, %options);
	is($seen, $fresh, "$name: the handler has the settings of a new session of its definer");
	is($after, $before, "$name: the caller has its own again");
}

my $owner = getpwuid($<);
check_call('nothing is set', $owner, 'SELECT 1 WHERE false', $work{'a step'});
check_call("the caller's role has other settings", 'bob', 'SELECT 1 WHERE false', $work{'a step'});
check_call("the caller's client has other settings", 'bob', 'SELECT 1 WHERE false', $work{'a step'},
	client => '-c standard_conforming_strings=off -c datestyle=iso -c shop.set=client -c timezone=UTC');
foreach my $what (sort keys %work)
{
	# A failed attempt's own table is rolled back with it.
	next if $what eq 'a step that fails';
	check_call("$what of a superuser who has set all", $owner, $set_all, $work{$what});
	check_call("$what of a role that has set all", 'bob', $set_all, $work{$what});
	(my $set_local = $set_all) =~ s/, false\)/, true)/;
	$set_local =~ s/SET (shop|work)/SET LOCAL $1/g;
	check_call("$what of a role that has set all for its transaction", 'bob', $set_local, $work{$what});
}
my ($before, $after) = seen_by('bob', $set_all, $work{'a step that fails'});
is($after, $before, 'a handler fails: the caller has its own again');
is($node->safe_psql('postgres', q{SELECT setting FROM a.seen WHERE name = 'work_mem'}), '7MB', 'work_mem is the caller\'s');

# The command line of the server, under what the client says.
$node->stop;
system_or_bail('pg_ctl', '-w', '-s', '-D', $node->data_dir, '-l', $node->logfile,
	'-o', '-c timezone=Africa/Cairo --datestyle=iso -c bytea_output=hex -c bytea_output=escape', 'start');
$node->_update_pid(1);
$node->safe_psql('postgres', 'ALTER ROLE alice RESET timezone; ALTER DATABASE postgres RESET timezone');
$fresh = $node->safe_psql('postgres', $fresh_settings, extra_params => [ '-U', 'alice' ]);
like($fresh, qr/^TimeZone=Africa\/Cairo$/m, 'the command line of the server counts');
check_call('what the command line says', 'bob', 'SELECT 1 WHERE false', $work{'a step'},
	client => '-c timezone=UTC -c datestyle=german');

# A file that is read again.
$node->safe_psql('postgres', q{ALTER SYSTEM SET extra_float_digits = 2});
$node->safe_psql('postgres', q{SELECT pg_reload_conf()});
$node->poll_query_until('postgres', q{SELECT current_setting('extra_float_digits') = '2'});
$fresh = $node->safe_psql('postgres', $fresh_settings, extra_params => [ '-U', 'alice' ]);
check_call('a file that was read again', 'bob', 'SELECT 1 WHERE false', $work{'a step'},
	client => '-c extra_float_digits=0');

$node->stop;
done_testing();
