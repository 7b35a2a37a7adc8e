# What a worker finds to do: by the index without a statement, in time, past rows that others are changing, and
# also where somebody has partitioned the table.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

# An item a search, and no polling to speak of.
my $node = StacksagaCluster->new('search');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'stacksaga,auto_explain'
auto_explain.log_min_duration = 0
auto_explain.log_nested_statements = on
stacksaga.poll_interval = '60s'
stacksaga.batch_size = 1
});
$node->start;
$node->create_extension('postgres');
wait_until_works($node, 'postgres', 1);
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('later', ARRAY[stacksaga.timer_step('wait', '500 ms')]);
	-- Ids of sagas in one slot.
	CREATE FUNCTION id_in_slot() RETURNS uuid LANGUAGE sql AS $$
		SELECT id FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 10000)) AS i
		 WHERE stacksaga.slot(stacksaga.token_uuid(id)) = 7 LIMIT 1 $$;});

sub sql { return $node->safe_psql('postgres', @_) }

sub await_completed
{
	my ($id) = @_;
	return $node->poll_query_until('postgres',
		"SELECT status = 'completed' FROM stacksaga.sagas WHERE saga_id = '$id'");
}

# Many at once and a timer; in whatever slots.
sub completes
{
	my ($what) = @_;
	my $offset = -s $node->logfile;
	sql("SELECT stacksaga.start_saga('answer') FROM generate_series(1, 100)");
	ok($node->poll_query_until('postgres', q{
		SELECT count(*) = 0 FROM stacksaga.sagas WHERE status NOT IN ('completed', 'suspended')}), "$what: all is done");
	my $id = sql(q{SELECT saga_id FROM stacksaga.start_saga('later')});
	await_completed($id);
	is(sql("SELECT finished_at - created_at < '30 s' FROM stacksaga.saga WHERE saga_id = '$id'"), 't',
		"$what: a worker looks again when something falls due");
	return scalar(() = slurp_file($node->logfile, $offset) =~ /Query Text: SELECT w\.\* FROM \(SELECT slot/g);
}

is(completes('a plain table'), 0, 'the table is searched without a statement');

# The first rows of a slot are due, and a transaction that stays open is changing them.
my @busy = split /\n/, sql(q{
	SELECT (stacksaga.start_saga('answer', saga_id => id_in_slot(), run_at => clock_timestamp() + interval '1 hour')).saga_id
	  FROM generate_series(1, 3)});
is(scalar(keys %{{ map { $_ => 1 } @busy }}), 3, 'there are three');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
$session->query_safe("SELECT stacksaga.suspend_saga('$_', 'for a while')") for @busy;
$node->append_conf('postgresql.conf', "stacksaga.clock_offset = '2 hours'");
$node->reload;
$node->poll_query_until('postgres', "SELECT stacksaga.clock_now() > clock_timestamp() + interval '1 hour'");
my $behind = sql(q{SELECT saga_id FROM stacksaga.start_saga('answer', saga_id => id_in_slot())});
ok(await_completed($behind), 'rows that others are changing do not keep those behind them waiting');
$session->query_safe('ROLLBACK');
$session->quit;
sql(q{SELECT FROM stacksaga.start_saga('answer')}); # which wakes the worker
ok(await_completed($_), 'and are found again after a rollback') for @busy;

# A table that somebody has changed is not accessed directly.
sql(q{
	CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(new, old); END';
	CREATE TRIGGER keep BEFORE INSERT OR UPDATE OR DELETE ON stacksaga.work FOR EACH ROW EXECUTE FUNCTION keep()});
cmp_ok(completes('a table with a trigger'), '>', 0, 'a table with a trigger is searched by a statement');
sql('DROP TRIGGER keep ON stacksaga.work');
is(completes('a table without the trigger'), 0, 'and without one when the trigger is gone');

# As where tables are distributed.
sql(q{
	BEGIN;
	ALTER TABLE stacksaga.work RENAME TO old_work;
	ALTER TABLE stacksaga.old_work RENAME CONSTRAINT work_pkey TO old_work_pkey;
	ALTER INDEX stacksaga.work_for_workers RENAME TO old_work_for_workers;
	ALTER INDEX stacksaga.work_for_services RENAME TO old_work_for_services;
	CREATE TABLE stacksaga.work (LIKE stacksaga.old_work INCLUDING DEFAULTS,
		PRIMARY KEY (saga_id, purpose, step_no, direction, token)) PARTITION BY HASH (saga_id);
	CREATE TABLE stacksaga.work_0 PARTITION OF stacksaga.work FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE stacksaga.work_1 PARTITION OF stacksaga.work FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	CREATE INDEX work_for_workers ON stacksaga.work (ring_id, slot, due_at)
		WHERE queue IS NULL OR verifying OR lease_until IS NOT NULL;
	CREATE INDEX work_for_services ON stacksaga.work (ring_id, queue, due_at)
		WHERE queue IS NOT NULL AND NOT verifying;
	COMMIT});
cmp_ok(completes('a partitioned table'), '>', 0, 'a partitioned table is searched by a statement');

$node->stop;
done_testing();
