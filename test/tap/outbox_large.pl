# A batch that is larger than an array can be is handed over in halves.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('outbox_large');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.max_payload = '100MB'\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE handled (at bigint GENERATED ALWAYS AS IDENTITY, n int);
	CREATE FUNCTION handle(m stacksaga.message[]) RETURNS void LANGUAGE sql AS $$
		INSERT INTO handled (n) SELECT (headers -> 'n')::int FROM unnest(m) $$;
	SELECT stacksaga.create_subscription('large', 'large', 'handle(stacksaga.message[])')});
wait_until_works($node, 'postgres', 1);
# A value of more than 1 GB: eleven of 99 MB, which are small where they are stored.
$node->safe_psql('postgres', q{
	SELECT count(stacksaga.publish('large', payload, 'k', headers => jsonb_build_object('n', n)))
	  FROM (SELECT to_jsonb(repeat('x', 99000000)) AS payload) AS p, generate_series(1, 11) AS n});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 11 FROM handled}), 'all are handled');
is($node->safe_psql('postgres', q{SELECT string_agg(n::text, ' ' ORDER BY at) FROM handled}),
	join(' ', 1 .. 11), 'once and in order');
$node->stop;
done_testing();
