# Priorities, groups and limits where somebody has partitioned the table of due work, which is read by statements
# then: the tests of these come to the same, word for word, as with the table as it was created.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('partitioned');
$node->init;
$node->start;

# What a test of sql/ prints in a database of its own.
sub printed
{
	my ($test, $how) = @_;
	my $database = "${test}_$how";
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->create_extension($database);
	$node->safe_psql($database, q{
		ALTER TABLE stacksaga.work RENAME TO work_plain;
		CREATE TABLE stacksaga.work (LIKE stacksaga.work_plain INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY HASH (saga_id);
		CREATE TABLE stacksaga.work_0 PARTITION OF stacksaga.work FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE stacksaga.work_1 PARTITION OF stacksaga.work FOR VALUES WITH (MODULUS 2, REMAINDER 1)})
	  if $how eq 'partitioned';
	my $output = '';
	IPC::Run::run([ 'psql', '-X', '-a', '-q', '-d', $node->connstr($database), '-f', "sql/$test.sql" ], '>', \$output, '2>&1')
	  or die "psql fails: $output";
	return $output;
}

foreach my $test (qw(claim_order queue_limits pending_order adopt_limits))
{
	my $plain = printed($test, 'plain');
	unlike($plain, qr/ERROR:  .*does not exist/, "$test runs here");
	is(printed($test, 'partitioned'), $plain, "$test: the same with partitions");
}

# However many steps of one priority wait, longer than those of another.
my $database = 'claim_order_partitioned';
$node->safe_psql($database, q{
	SELECT stacksaga.define_saga('long line', ARRAY[stacksaga.queue_step('a', 'long line', compensable => true)]);
	SELECT count(*) FROM stacksaga.start_sagas('long line', array_fill('{}'::jsonb, ARRAY[9000]), priority => 5);
	SELECT stacksaga.start_saga('long line', priority => 1) FROM generate_series(1, 8)});
is($node->safe_psql($database, q{
	SELECT s.priority, count(*) FROM stacksaga.claim_steps('long line', 'w', 8) JOIN stacksaga.saga s USING (saga_id)
	 GROUP BY 1 ORDER BY 1}), "1|7\n5|1", 'those of a high priority are seen behind thousands of a low one');

$node->stop;
done_testing();
