# A worker's retention passes over a saga that cannot be removed, since a deferred foreign key refers to it: the others are
# removed, and the log says so once.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('retention');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION act(step stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$SELECT '1'::jsonb$$;
	SELECT stacksaga.define_saga('short', ARRAY[stacksaga.sql_step('a', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.start_saga('short') FROM generate_series(1, 60)});
$node->poll_query_until('postgres', q{SELECT count(*) = 60 FROM stacksaga.saga
	WHERE finished_at < clock_timestamp() - interval '2 s'});
$node->safe_psql('postgres', q{
	CREATE TABLE invoice (saga_id uuid, token stacksaga.ring_token, FOREIGN KEY (saga_id, token)
		REFERENCES stacksaga.saga (saga_id, token) DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO invoice SELECT saga_id, token FROM stacksaga.saga ORDER BY saga_id LIMIT 2});
$node->append_conf('postgresql.conf', "stacksaga.saga_retention = '1s'");
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM stacksaga.saga}), "the others are removed") or diag(slurp_file($node->logfile));
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.kept_row}), 2, 'those that stay are known');
$node->reload;
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'retention'}), 1, 'doctor() names them');
my $log = slurp_file($node->logfile);
is(scalar(() = $log =~ /the retention cannot remove a row of stacksaga\.saga/g), 1, 'the log says so once');
unlike($log, qr/recovered/, 'and nothing of an error');
$node->stop;
done_testing();
