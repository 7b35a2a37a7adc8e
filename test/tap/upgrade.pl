# The extension is updated while transfers, a service and a consumer of messages go on: the library of the new version
# before its script, the script before its library, and then both. Nothing is lost or done twice, roles keep what they
# were granted, and the database is like a new one. test/tools/upgrade-pair installs the two versions.
use strict;
use warnings;

use File::Copy qw(copy);
use File::Find qw(find);
use File::Path qw(make_path);
use IPC::Run;
use PostgreSQL::Test::Utils;
use StacksagaBank;
use StacksagaCluster;
use Test::More;
use Time::HiRes qw(time);

my $versions = $ENV{STACKSAGA_VERSIONS} // '';
plan skip_all => 'test/tools/tap installs the versions' unless -d "$versions/old";
my $root = PostgreSQL::Test::Utils::tempdir_short() . '/root';

# As a package does it: each file is a new one, and what a server has loaded stays. Returns the version.
sub install_version
{
	my ($folder) = @_;
	my $version;
	find({ no_chdir => 1, wanted => sub {
		my $to = $root . substr($_, length "$versions/$folder");
		return make_path($to) if -d $_;
		copy($_, "$to.new") or die "$_: $!";
		rename "$to.new", $to or die "$to: $!";
		($version) = slurp_file($to) =~ /^default_version = '(.*)'/m if /\.control$/;
	} }, "$versions/$folder");
	return $version;
}

my $old = install_version('old');
my $node = StacksagaCluster->new('main');
$node->init(worker_databases => [ 'postgres' ]);
(my $settings = slurp_file($ENV{TEMP_CONFIG})) =~ s/\Q$ENV{STACKSAGA_DESTDIR}\E/$root/g;
# The workers start again where the server restarts; the bank's transfers meet each other.
$node->append_conf('postgresql.conf', "$settings\nmax_connections = 50\ndeadlock_timeout = '100ms'\n");
$node->start;
$node->create_extension('postgres');
StacksagaBank::open_bank($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE shop LOGIN;
	SELECT stacksaga.grant_usage('shop', 'service'), stacksaga.grant_usage('shop', 'operator');
	CREATE TABLE asked (saga_id uuid);
	CREATE TABLE served (saga_id uuid);
	CREATE TABLE sent (n bigint GENERATED ALWAYS AS IDENTITY);
	CREATE TABLE received (n bigint);
	GRANT ALL ON asked, served, sent, received TO shop;
	SET ROLE shop;
	SELECT stacksaga.define_saga('order', ARRAY[stacksaga.queue_step('pack', 'packing', compensable => true)]);
	RESET ROLE;
	SELECT stacksaga.create_subscription('audit', 'audit');
	CREATE FUNCTION serves() RETURNS bigint LANGUAGE sql AS $$
		WITH claimed AS MATERIALIZED (SELECT * FROM stacksaga.claim_steps('packing', 'shop', 100)),
			written AS (INSERT INTO served SELECT saga_id FROM claimed)
		SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM claimed $$;
	CREATE FUNCTION receives() RETURNS bigint LANGUAGE sql AS $$
		WITH message AS MATERIALIZED (SELECT * FROM stacksaga.receive_messages('audit', 'shop', 100)),
			written AS (INSERT INTO received SELECT payload::bigint FROM message)
		SELECT sum(stacksaga.ack_messages(batch_id)) FROM (SELECT DISTINCT batch_id FROM message) AS b $$;
	CREATE FUNCTION asks() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF pg_try_advisory_xact_lock(1) THEN
			PERFORM bank.ask(2, 100);
		END IF;
	END $$});

# What each of them does again and again, in a transaction.
my %load = (
	asks => [ undef, 'SELECT asks()' ],
	orders => [ 'shop', q{INSERT INTO asked SELECT saga_id FROM stacksaga.start_saga('order')} ],
	serves => [ 'shop', 'SELECT serves()' ],
	sends => [ 'shop', q{WITH new AS (INSERT INTO sent DEFAULT VALUES RETURNING n)
		SELECT stacksaga.publish('audit', to_jsonb(n), (n % 10)::text) FROM new} ],
	receives => [ 'shop', 'SELECT receives()' ]);

my %running;

sub start_load
{
	foreach my $name (sort keys %load)
	{
		my ($role, $sql) = @{ $load{$name} };
		$role //= $ENV{PGUSER} // scalar getpwuid $<;
		my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";
		append_to_file($file, "$sql;\n") unless -e $file;
		my $output = '';
		$running{$name} = { output => \$output, program => IPC::Run::start(
			[ 'pgbench', '-n', '-c', '1', '-T', '3600', '-R', '50', '-f', $file, '-U',
				$role, '-h', $node->host, '-p', $node->port, 'postgres' ],
			'<', \undef, '>', \$output, '2>&1') };
	}
	return;
}

# What ended by itself met an error.
sub ended
{
	$_->{program}->pump_nb foreach values %running;
	return join ', ', map { "$_: ${ $running{$_}{output} }" } grep { !$running{$_}{program}->pumpable } sort keys %running;
}

sub stop_load
{
	my ($test) = @_;
	is(ended(), '', "nobody met an error $test");
	foreach my $name (sort keys %running)
	{
		$running{$name}{program}->kill_kill(grace => 30) if $running{$name}{program}->pumpable;
		$running{$name}{program}->finish;
	}
	%running = ();
	return;
}

# Everything that goes on has gone on since.
my $progress = q{SELECT (SELECT count(*) FROM stacksaga.sagas WHERE saga = 'transfer' AND status = 'completed'),
	(SELECT count(*) FROM served), (SELECT count(*) FROM received)};
sub goes_on
{
	my ($test) = @_;
	my @before = split /\|/, $node->safe_psql('postgres', $progress);
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my @now;
	while (time < $deadline and ended() eq '')
	{
		@now = split /\|/, $node->safe_psql('postgres', $progress);
		return pass("transfers, a service and messages go on $test")
		  unless grep { $now[$_] < $before[$_] + 10 } 0 .. 2;
	}
	return fail("transfers, a service and messages go on $test: from @before to @now") || diag(ended());
}

sub answers
{
	my ($sql, $expected, $test) = @_;
	return is($node->safe_psql('postgres', $sql), $expected, $test);
}
my $is_here = q{SELECT extversion, stacksaga_internal.library_version() FROM pg_extension WHERE extname = 'stacksaga'};
my $advice = q{SELECT fix FROM stacksaga.doctor() WHERE check_name = 'version'};

start_load();
goes_on("with version $old");

# The files are there, and the server has not been restarted: the script without its library.
my $new = install_version('new');
isnt($new, $old, "from $old to $new");
$node->safe_psql('postgres', 'CREATE DATABASE early');
foreach my $case ([ 'early', 'CREATE EXTENSION stacksaga' ], [ 'postgres', 'ALTER EXTENSION stacksaga UPDATE' ])
{
	my ($database, $sql) = @$case;
	my (undef, undef, $errors) = $node->psql($database, "\\set VERBOSITY verbose\n$sql");
	like($errors, qr/ERROR:\s+55000: version \Q$new\E of the extension needs its library, and this server runs that of version \Q$old\E/,
		"$sql before the restart is refused");
	like($errors, qr/HINT:\s+Restart the server/, 'with what to do');
}
goes_on('meanwhile');
stop_load("while the files of $new are there");

# The library without its script.
$node->restart;
start_load();
answers($is_here, "$old|$new", "the library is $new, the extension $old");
answers($advice, 'ALTER EXTENSION stacksaga UPDATE;', 'doctor() knows what to do');
goes_on('in between');

# A transaction that has written and stays open does not keep it waiting. One that reads views can, or meet it in a
# deadlock, which ends one of the two: then it is done again.
my $open = $node->background_psql('postgres');
$open->query_safe("BEGIN; $load{orders}[1]; SELECT serves(); $load{sends}[1]");
my ($code, $errors, $tries, $took);
for ($tries = 1; $tries <= 10; ++$tries)
{
	my $before = time;
	($code, undef, $errors) = $node->psql('postgres', q{SET lock_timeout = '2s'; ALTER EXTENSION stacksaga UPDATE});
	$took = time - $before;
	last if $code == 0 or $errors !~ /deadlock detected|lock timeout/;
}
is($code, 0, "the extension is updated under load") or diag($errors);
note(sprintf 'in %.2f s, at attempt %d', $took, $tries);
answers($is_here, "$new|$new", "both are $new");
$open->query_safe('COMMIT');
$open->quit;
answers($advice, '', 'doctor() has nothing to say of it');
goes_on("with version $new");
stop_load('in the update');

# Grants: roles keep theirs, also in a dump, and get what is new when they are granted again.
answers(q{SELECT count(*) FROM pg_proc WHERE pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace) AND provolatile <> 'i'
	AND EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE grantee = 0)},
	0, 'no new function is left to PUBLIC');
$node->prepare_dump('postgres');
my ($dump) = run_command([ 'pg_dump', '--schema-only', '-d', $node->connstr('postgres') ]);
like($dump, qr/GRANT (ALL|EXECUTE) ON FUNCTION stacksaga\.claim_steps\(.*\) TO shop/, 'a dump has the grants');
my $fixes = $node->safe_psql('postgres', q{SELECT fix FROM stacksaga.doctor() WHERE check_name = 'grants'});
unless ($ENV{STACKSAGA_UPGRADE_FROM})
{
	like($fixes, qr/^SELECT stacksaga\.grant_usage\('shop', 'service'\);$/m, 'doctor() says who lacks what is new');
	$node->safe_psql('postgres', $fixes);
	answers(q{SET ROLE shop; SELECT stacksaga.next_answer()}, 42, 'then they may use it');
}
answers(q{SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'grants'}, 0, 'nobody lacks anything');

# Nothing is lost, and nothing done twice.
$node->poll_query_until('postgres', "SELECT serves() = 0 AND $_") foreach
	'(SELECT count(*) FROM served) >= (SELECT count(*) FROM asked)',
	'coalesce(receives(), 0) = 0 AND (SELECT count(*) FROM received) >= (SELECT count(*) FROM sent)';
StacksagaBank::wait_until_settled($node, 'postgres');
answers(q{SELECT count(*) FROM (SELECT n FROM sent EXCEPT ALL SELECT n FROM received) AS lost}, 0, 'no message is lost');
answers(q{SELECT count(*) FROM (SELECT n FROM received EXCEPT ALL SELECT n FROM sent) AS twice}, 0, 'none came twice');
answers(q{SELECT count(*) FROM (SELECT saga_id FROM asked EXCEPT ALL SELECT saga_id FROM served) AS lost},
	0, 'no order is lost');
answers(q{SELECT count(*) FROM (SELECT saga_id FROM served EXCEPT ALL SELECT saga_id FROM asked) AS twice},
	0, 'none was served twice');
answers(q{SELECT count(*) FROM stacksaga.sagas WHERE saga = 'order' AND status <> 'completed'}, 0, 'all are completed');
# The proof wants no other sagas.
$node->safe_psql('postgres', q{DELETE FROM stacksaga.saga s USING stacksaga.saga_definition d
	WHERE d.definition_id = s.definition_id AND d.saga = 'order'});
StacksagaBank::prove($node, 'postgres');

# The updated database is like a new one, the order of its objects apart.
my $catalog = q{
	SET search_path = pg_catalog;
	WITH member AS (
		SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'stacksaga')
	SELECT pg_describe_object(classid, objid, 0), obj_description(objid, classid::regclass::name),
		   CASE classid
		   WHEN 'pg_proc'::regclass THEN (SELECT concat_ws('|', prosrc, probin, provolatile, proparallel, prosecdef, proconfig,
				pg_get_function_arguments(oid), pg_get_function_result(oid),
				-- Roles were granted something in one of the two only.
				(SELECT string_agg(privilege_type, ',') FROM aclexplode(coalesce(proacl, acldefault('f', proowner)))
				  WHERE grantee = 0)) FROM pg_proc WHERE oid = objid)
		   WHEN 'pg_class'::regclass THEN concat_ws('|',
				CASE WHEN (SELECT relkind FROM pg_class WHERE oid = objid) = 'v' THEN pg_get_viewdef(objid) END,
				(SELECT concat_ws('|', relkind, relpersistence, reloptions) FROM pg_class WHERE oid = objid),
				(SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull,
						pg_get_expr(adbin, adrelid), col_description(objid, attnum)), ', ' ORDER BY attnum)
				   FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
				  WHERE attrelid = objid AND attnum > 0),
				(SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY conname) FROM pg_constraint WHERE conrelid = objid),
				(SELECT string_agg(pg_get_indexdef(indexrelid), ', ' ORDER BY indexrelid::regclass::text) FROM pg_index
				  WHERE indrelid = objid),
				(SELECT string_agg(pg_get_triggerdef(oid), ', ' ORDER BY tgname) FROM pg_trigger
				  WHERE tgrelid = objid AND NOT tgisinternal))
		   END
	  FROM member
	UNION ALL
	SELECT 'kept by pg_dump', c.oid::regclass::text, condition
	  FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS k(oid, condition) JOIN pg_class c ON c.oid = k.oid
	 WHERE e.extname = 'stacksaga'
	 ORDER BY 1, 2, 3};
$node->safe_psql('early', 'CREATE EXTENSION stacksaga');
my @updated = split /\n/, $node->safe_psql('postgres', $catalog);
my @created = split /\n/, $node->safe_psql('early', $catalog);
my (%updated, %created);
++$updated{$_} foreach @updated;
++$created{$_} foreach @created;
is(join("\n", grep { !$created{$_} } @updated), '', 'the update leaves nothing that a new database does not have');
is(join("\n", grep { !$updated{$_} } @created), '', 'and nothing is missing');
cmp_ok(scalar @created, '>', 300, 'of all objects');

$node->stop;
done_testing();
