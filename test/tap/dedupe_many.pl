# Many keys in one transaction: a thousand of each kind with default settings, and beyond the room that
# the lock table has an error that says so, with nothing recorded.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
is($node->safe_psql('postgres', 'SHOW max_locks_per_transaction'), 64, 'the default');

# The same transaction again replays, and needs no lock.
my $begin = q{
	SELECT begun.outcome, count(*) FROM generate_series(1, 1000) AS n,
	       LATERAL stacksaga.idempotency_begin('many', 'key-' || n, '{}') AS begun GROUP BY 1};
my $locks = q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid()};
is($node->safe_psql('postgres', qq{
	BEGIN;
	CREATE TEMPORARY TABLE begun AS
	SELECT 'key-' || n AS key, b.* FROM generate_series(1, 1000) AS n,
	       LATERAL stacksaga.idempotency_begin('many', 'key-' || n, '{}') AS b;
	SELECT outcome, count(*) FROM begun GROUP BY 1;
	SELECT count(stacksaga.idempotency_finish('many', key, lease)) FROM begun;
	$locks;
	COMMIT;
	$locks;
	BEGIN;
	$begin;
	$locks;
	COMMIT}), "new|1000\n1000\n1000\n0\nreplay|1000\n0", 'a thousand keys in one transaction');
is($node->safe_psql('postgres', q{
	BEGIN;
	SELECT count(stacksaga.compare_and_set('many', 'key-' || n, NULL, '1')) FROM generate_series(1, 1000) AS n;
	SELECT count(*) FROM generate_series(1, 1000) AS n WHERE stacksaga.accept_sequence('producer-' || n, 1, 1) = 'accepted';
	COMMIT}), "1000\n1000", 'a thousand values and a thousand producers');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM generate_series(1, 100000) AS n WHERE stacksaga.accept_message('many', 'message-' || n)}),
	100000, 'messages need no lock');

for my $call (
	q{SELECT stacksaga.idempotency_begin('more', 'key-' || n)},
	q{SELECT stacksaga.compare_and_set('more', 'key-' || n, NULL, '1')},
	q{SELECT stacksaga.accept_sequence('more-' || n, 1, 1)})
{
	my (undef, undef, $errors) = $node->psql('postgres',
		"$call FROM generate_series(1, 100000) AS n",
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	like($errors, qr/ERROR: +53200: out of shared memory/, "too many: $call");
	like($errors, qr/HINT: +A transaction holds a lock on each key that it writes.* a thousand keys in each, or raise max_locks_per_transaction: it is 64, which makes room for about \d{4,} locks/, 'what to do');
}
is($node->safe_psql('postgres', q{
	SELECT (SELECT count(*) FROM stacksaga.idempotency_key WHERE scope = 'more'),
	       (SELECT count(*) FROM stacksaga.versioned_value WHERE scope = 'more'),
	       (SELECT count(*) FROM stacksaga.producer_sequence WHERE producer LIKE 'more%')}),
	'0|0|0', 'nothing was recorded');
is($node->safe_psql('postgres', q{SELECT outcome FROM stacksaga.idempotency_begin('more', 'key-1')}),
	'new', 'and the room is there again');

$node->stop;
done_testing();
