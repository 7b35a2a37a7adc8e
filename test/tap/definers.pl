# Whose functions run, where one session cannot show it: in a worker that knows the definition, after a
# restore into another cluster, and after pg_upgrade.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

my $node = StacksagaCluster->new('node');
$node->init(worker_databases => ['postgres'], allows_streaming => 1);
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE alice;
	CREATE ROLE bob;
	SELECT stacksaga.grant_usage('alice', 'operator'), stacksaga.grant_usage('bob', 'operator');
	CREATE TABLE ran (as_role name);
	GRANT INSERT, SELECT ON ran TO PUBLIC;
	CREATE FUNCTION act(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.ran VALUES (current_user) RETURNING to_jsonb(as_role) $$});

my $define = q{SELECT stacksaga.define_saga('order',
	ARRAY[stacksaga.sql_step('only', 'public.act(stacksaga.step_call)')])};

# Who runs the step of a new saga: a role, or how the saga ended.
sub runner
{
	my ($server) = @_;
	my $id = $server->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('order')});
	$server->poll_query_until('postgres', qq{
		SELECT status IN ('completed', 'failed', 'parked')
		  FROM stacksaga.saga_result('$id')})
	  or return 'nobody';
	return $server->safe_psql('postgres',
		qq{SELECT coalesce(output ->> 'only', status) FROM stacksaga.saga_result('$id')});
}

$node->safe_psql('postgres', "SET ROLE alice; $define");
is(runner($node), 'alice', 'a worker runs a step as its definer');
$node->safe_psql('postgres', 'DROP OWNED BY alice; DROP ROLE alice; CREATE ROLE alice');
unlike(runner($node), qr/alice/, 'and not as another role of that name');
$node->safe_psql('postgres', "SET ROLE bob; $define");
is(runner($node), 'bob', 'a worker hears of a new definer of a version that it knows');

# A restore goes by name, where oids are others. No worker serves the database before it is whole.
my $dump = "$PostgreSQL::Test::Utils::tmp_check/definers.dump";
$node->prepare_dump('postgres');
command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
my $after = StacksagaCluster->new('after');
$after->init;
$after->start;
$after->safe_psql('postgres', 'CREATE ROLE shift; CREATE ROLE alice; CREATE ROLE bob');
isnt($after->safe_psql('postgres', "SELECT 'bob'::regrole::oid"),
	$node->safe_psql('postgres', "SELECT 'bob'::regrole::oid"), 'bob has another oid there');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $after->connstr('postgres'), $dump ],
	'pg_restore');
$after->append_conf('postgresql.conf',
	"shared_preload_libraries = 'stacksaga'\nstacksaga.databases = 'postgres'\n");
$after->restart;
is(runner($after), 'bob', 'after a restore a definer is the role of its name');
is($after->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.doctor()
	WHERE check_name = 'definers' AND severity = 'error'}), '0', 'doctor() is content');

# pg_upgrade keeps the oids of roles, and begins at timeline 1 whatever the old server's was.
my $timeline = 'SELECT timeline_id FROM pg_control_checkpoint()';
$node->stop;
$node->set_standby_mode;
$node->start;
$node->promote;
$node->safe_psql('postgres', 'CHECKPOINT');
is($node->safe_psql('postgres', $timeline), 2, 'a promotion raises the timeline');
$node->stop;
my $upgraded = StacksagaCluster->new('upgraded');
$upgraded->init(worker_databases => ['postgres']);
$upgraded->upgrade_from($node);
$upgraded->start;
is($upgraded->safe_psql('postgres', $timeline), 1, 'pg_upgrade begins at the first one again');
is(runner($upgraded), 'bob', 'after pg_upgrade a definer is who it was');
is($upgraded->safe_psql('postgres', q{SELECT extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	WHERE d.classid = 'pg_namespace'::regclass AND d.objid = 'stacksaga'::regnamespace}),
	'stacksaga', 'and the schema still belongs to the extension');

done_testing();
