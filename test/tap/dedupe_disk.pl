# A disk that is really full: the calls of the dedupe ladder fail with 53100, neither the marker nor the
# effect is there, and when there is room the same key does the effect once.
use strict;
use warnings;

use SmallDisk size => '48m';

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
SmallDisk::start_with_shop($node);

# What fits into no free space that a page may have left, and does not compress.
my $large = q{(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3000) AS n)};
my $tables = q{
	CREATE TABLE effect (key text PRIMARY KEY, what text);
	ALTER TABLE effect ALTER what SET STORAGE external;
};
$node->safe_psql('shop', $tables);

# The transaction of a request, with an effect and a response.
sub request
{
	my ($key, $effect, $response) = @_;
	return qq{
		BEGIN;
		SELECT lease FROM stacksaga.idempotency_begin('disk', '$key', '{"n": 1}') \\gset
		INSERT INTO effect VALUES ('$key', $effect);
		SELECT stacksaga.idempotency_finish('disk', '$key', :lease, $response);
		COMMIT;
	};
}

# The first error of a script; what follows it in its transaction is ignored.
sub first_error
{
	my ($server, $database, $script) = @_;
	my (undef, undef, $errors) = $server->psql($database, $script,
		on_error_stop => 0, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	my ($sqlstate) = $errors =~ /ERROR:\s+(\w{5})$/m;
	return $sqlstate // ($errors || 'none');
}

# Everything that a call might have left behind.
my $traces = q{
	SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM stacksaga.idempotency_key),
	       (SELECT count(*) FROM stacksaga.accepted_message), (SELECT count(*) FROM stacksaga.producer_sequence),
	       (SELECT count(*) FROM stacksaga.versioned_value)};

# None of the tables has a page yet, so the very first call finds no room.
my %calls = (
	'a request' => request('empty', q{'small'}, q{'1'}),
	'a message' => q{
		BEGIN;
		SELECT stacksaga.accept_message('disk', 'm');
		INSERT INTO effect VALUES ('message', 'small');
		COMMIT;},
	'a sequence' => q{
		BEGIN;
		SELECT stacksaga.accept_sequence('disk', 1, 1);
		INSERT INTO effect VALUES ('sequence', 'small');
		COMMIT;},
	'a value' => q{
		BEGIN;
		SELECT stacksaga.compare_and_set('disk', 'v', NULL, '1');
		INSERT INTO effect VALUES ('value', 'small');
		COMMIT;});
SmallDisk::fill();
for my $what (sort keys %calls)
{
	is(first_error($node, 'shop', $calls{$what}), '53100', "$what finds the disk full");
}
is($node->safe_psql('shop', $traces), '0|0|0|0|0', 'nothing was recorded and nothing was done');

SmallDisk::make_room();
for my $what (sort keys %calls)
{
	is(first_error($node, 'shop', $calls{$what}), 'none', "$what succeeds when there is room");
}
is($node->safe_psql('shop', $traces), '4|1|1|1|1', 'once');

# There is room for the marker, but none for the effect; then for both, but not for the response.
my %larger = (
	effect => [ $large, q{'1'} ],
	response => [ q{'small'}, "to_jsonb($large)" ]);
for my $what (sort keys %larger)
{
	SmallDisk::fill();
	my $script = request($what, @{ $larger{$what} });
	is(first_error($node, 'shop', $script), '53100', "there is no room for the $what");
	is($node->safe_psql('shop', $traces), '4|1|1|1|1', 'neither it nor its marker is there');
	SmallDisk::make_room();
	is( $node->safe_psql('shop',
			"BEGIN; SELECT outcome FROM stacksaga.idempotency_begin('disk', '$what', '{\"n\": 1}'); ROLLBACK"),
		'new', 'the key is free');
	is(first_error($node, 'shop', $script), 'none', 'and does it when there is room');
	is( $node->safe_psql('shop', qq{
			SELECT outcome FROM stacksaga.idempotency_begin('disk', '$what', '{"n": 1}');
			DELETE FROM effect WHERE key = '$what' RETURNING 'one effect';
			DELETE FROM stacksaga.idempotency_key WHERE key = '$what'}),
		"replay\none effect", 'once');
}

# Work outside: what was begun stays in progress under its lease, and is finished when there is room.
my $lease = $node->safe_psql('shop', q{SELECT lease FROM stacksaga.idempotency_begin('disk', 'outside')});
my $finish = "SELECT stacksaga.idempotency_finish('disk', 'outside', $lease, to_jsonb($large))";
SmallDisk::fill();
is(first_error($node, 'shop', $finish), '53100', 'there is no room for the answer of work outside');
is(first_error($node, 'shop', q{SELECT stacksaga.idempotency_begin('disk', 'outside')}),
	'SR409', 'its key is still in progress');
SmallDisk::make_room();
is(first_error($node, 'shop', $finish), 'none', 'and its owner can finish');
$node->stop;

# WAL on the small disk: when it is full, the server ends in the middle of what it does. What was
# acknowledged is whole, and of all else marker and effect are both there or neither is.
my $wal = SmallDisk::folder() . '/wal';
my $second = StacksagaCluster->new('wal');
$second->init(extra => [ '--waldir', $wal, '--wal-segsize', '1' ]);
$second->append_conf('postgresql.conf', "autovacuum = off\nmin_wal_size = 2MB\n");
$second->start;
$second->create_extension('postgres');
$second->safe_psql('postgres', $tables);
$second->safe_psql('postgres', 'CHECKPOINT');

my @keys = map { "k-$_" } 1 .. 200;
my $script = join '', map { request($_, $large, q{'1'}) . "\\echo acknowledged $_\n" } @keys;
SmallDisk::fill();
my (undef, $output, $errors) = $second->psql('postgres', $script);
like($errors, qr/server closed the connection|connection to server was lost/, 'the disk of WAL is full');
like(slurp_file($second->logfile), qr/PANIC: .*No space left on device/, 'so the server stops');
my @acknowledged = $output =~ /^acknowledged (\S+)$/mg;
cmp_ok(scalar(@acknowledged), '>', 0, 'some requests were acknowledged');
cmp_ok(scalar(@acknowledged), '<', scalar(@keys), 'others were not');
$second->stop('immediate', fail_ok => 1);

SmallDisk::make_room();
$second->start;
my $whole = q{
	SELECT coalesce(string_agg(key, ' ' ORDER BY length(key), key), '')
	  FROM effect FULL JOIN stacksaga.idempotency_key USING (key)
	 WHERE effect.key IS NOT NULL AND completed_at IS NOT NULL};
my $torn = q{
	SELECT count(*) FROM effect FULL JOIN stacksaga.idempotency_key USING (key)
	 WHERE effect.key IS NULL OR completed_at IS NULL};
is($second->safe_psql('postgres', $torn), 0, 'no marker without effect, no effect without marker');
my @done = split ' ', $second->safe_psql('postgres', $whole);
is_deeply([ @done[ 0 .. $#acknowledged ] ], \@acknowledged, 'what was acknowledged is there');
# The last commit may have been written without its answer.
cmp_ok(scalar(@done), '<=', @acknowledged + 1, 'and nothing but the one on its way');
my $next = $keys[ scalar(@done) ];
is(first_error($second, 'postgres', request($next, q{'small'}, q{'1'})), 'none', 'the next key works');
is( $second->safe_psql('postgres', qq{
		SELECT outcome FROM stacksaga.idempotency_begin('disk', '$next', '{"n": 1}');
		SELECT count(*) FROM effect WHERE key = '$next'}),
	"replay\n1", 'once');
$second->stop;
done_testing();
