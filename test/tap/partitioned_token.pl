# Where somebody has partitioned the tables of sagas by token, what a saga's functions read and write of it is in one
# partition: they name its token beside its id.
use strict;
use warnings;

use StacksagaCluster;
use Test::More;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(qq{
	ALTER TABLE stacksaga.$_ RENAME TO ${_}_plain;
	CREATE TABLE stacksaga.$_ (LIKE stacksaga.${_}_plain INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY HASH (token);
	CREATE TABLE stacksaga.${_}_0 PARTITION OF stacksaga.$_ FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE stacksaga.${_}_1 PARTITION OF stacksaga.$_ FOR VALUES WITH (MODULUS 2, REMAINDER 1)})
  foreach qw(saga_attribute work effect failure);
sql(q{
	SELECT stacksaga.define_saga('order', ARRAY[stacksaga.queue_step('pay', 'payments', compensable => true,
		retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '1 hour', max_interval => '1 hour')),
		stacksaga.signal_step('wait', 'sent')]);
	-- The partitions of each table of which this transaction has scanned something: "0", "1" or both.
	CREATE FUNCTION scanned() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(DISTINCT right(t.relname, 1), ' and ')
		  FROM pg_class t, LATERAL (SELECT t.oid UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = t.oid) AS r
		 WHERE t.relispartition AND t.relkind = 'r' AND t.relnamespace = 'stacksaga'::regnamespace
		   AND t.relname ~ '^(saga_attribute|work|effect|failure)_' AND pg_stat_get_xact_numscans(r.oid) > 0 $$});

my %calls = (
	failing => [
		q{stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable')},
		q{stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable')},
		q{stacksaga.cancel_saga(saga_id, 'enough')} ],
	claimed => [
		q{stacksaga.extend_step(saga_id, step, lease, '1 minute')},
		q{stacksaga.complete_step(saga_id, step, lease)},
		q{stacksaga.complete_step(saga_id, step, lease)},
		q{stacksaga.signal_saga(saga_id, 'sent')} ]);
foreach my $table (sort keys %calls)
{
	sql(q{SELECT stacksaga.start_saga('order', attributes => '{"n": 1}') FROM generate_series(1, 12)});
	sql("CREATE TABLE $table AS SELECT saga_id, step, lease FROM stacksaga.claim_steps('payments', 'me', 12)");
	foreach my $call (@{ $calls{$table} })
	{
		my %seen = map { $_ => 1 } map {
			sql(qq{BEGIN; SELECT $call FROM $table WHERE saga_id = '$_' \\g /dev/null\nSELECT scanned(); COMMIT})
		} split /\n/, sql("SELECT saga_id FROM $table");
		is(join(', ', sort keys %seen), '0, 1', "$call reads one partition or the other");
	}
}

$node->stop;
done_testing();
