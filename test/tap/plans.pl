# Plans depend on the statement alone: with empty, small and large tables, with statistics that are
# fresh, stale or missing, a session and a worker run every statement by the same plan. That such a plan
# goes by an index is checked wherever the tests run one (stacksaga.check_plans).
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('plans');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'stacksaga,auto_explain'
auto_explain.log_min_duration = 0
auto_explain.log_nested_statements = on
autovacuum = off
max_locks_per_transaction = 2000
stacksaga.retry_budget = -1
});
# From 16 on the values of parameters would be logged as a part of the plan.
$node->append_conf('postgresql.conf', "auto_explain.log_parameter_max_length = 0\n") if $node->major >= 16;
$node->start;
$node->create_extension('postgres');

$node->safe_psql('postgres', q{
CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS
	'BEGIN IF (call).input = ''"fail"'' THEN RAISE ''no''; END IF; RETURN ''1''; END';
CREATE FUNCTION handle(message stacksaga.message) RETURNS void LANGUAGE plpgsql AS
	'BEGIN IF (message).payload = ''"fail"'' THEN RAISE ''no''; END IF; END';
SELECT stacksaga.define_saga('charge', ARRAY[
	stacksaga.queue_step('reserve', 'stock', compensable => true),
	stacksaga.queue_step('charge', 'payments', compensable => true)]);
SELECT stacksaga.define_saga('backlog', ARRAY[stacksaga.queue_step('wait', 'backlog', compensable => true)]);
SELECT stacksaga.define_saga('local', ARRAY[
	stacksaga.sql_step('a', 'public.act(stacksaga.step_call)'),
	stacksaga.sql_step('b', 'public.act(stacksaga.step_call)', stage => 2),
	stacksaga.sql_step('c', 'public.act(stacksaga.step_call)', stage => 2),
	stacksaga.signal_step('s', 'go', stage => 3)], deadline => '1 hour');
SELECT stacksaga.define_saga('parent', ARRAY[
	stacksaga.timer_step('t', '1 millisecond'),
	stacksaga.message_step('m', 'told'),
	stacksaga.child_step('child', 'local')]);
SELECT stacksaga.create_subscription('service', 'orders*');
SELECT stacksaga.create_subscription('handler', 'orders*', 'public.handle(stacksaga.message)',
	retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '1 millisecond'));
});

my $workload = <<'SQL';
DO $$
DECLARE
	step record;
	call record;
	message record;
	id uuid;
	again uuid;
BEGIN
	PERFORM * FROM stacksaga.start_saga('charge', key => 'KEY');
	PERFORM * FROM stacksaga.start_sagas('charge', ARRAY['1', '2', '3', '4']::jsonb[]);
	FOR call IN SELECT (c).* FROM stacksaga.claim_steps('stock', 'till', 5) c ORDER BY saga_id LOOP
		PERFORM stacksaga.extend_step(call.saga_id, call.step, call.lease);
		PERFORM stacksaga.complete_step(call.saga_id, call.step, call.lease, '1');
	END LOOP;
	SELECT array_agg(saga_id) ids, array_agg(c.step) steps, array_agg(lease) leases INTO step
	  FROM stacksaga.claim_steps('payments', 'till', 2) c;
	PERFORM stacksaga.complete_steps(step.ids, step.steps, step.leases);
	FOR call IN SELECT (c).* FROM stacksaga.claim_steps('payments', 'till', 3) c LOOP
		PERFORM stacksaga.fail_step(call.saga_id, call.step, call.lease, 'no', 'retryable', '0');
	END LOOP;
	FOR call IN SELECT (c).* FROM stacksaga.claim_steps('payments', 'till', 3) c LOOP
		PERFORM stacksaga.fail_step(call.saga_id, call.step, call.lease, 'no', 'non_retryable');
	END LOOP;
	PERFORM stacksaga.saga_result(saga_id) FROM stacksaga.start_saga('charge', key => 'KEY');
END $$;
SELECT saga_id AS local FROM stacksaga.start_saga('local', key => 'KEY local') \gset
SELECT * FROM stacksaga.start_saga('local', '"fail"', key => 'KEY fails');
SELECT saga_id AS parent FROM stacksaga.start_saga('parent', key => 'KEY parent') \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT stacksaga.suspend_saga(:'local', 'a look');
SELECT stacksaga.resume_saga(:'local', 'looked');
SELECT stacksaga.signal_saga(:'local', 'go', message_id => 'once');
SELECT stacksaga.cancel_saga(:'parent', 'not wanted');
SELECT stacksaga.run_pending();
SELECT stacksaga.publish('orders.new', '1', key => 'KEY');
SELECT stacksaga.publish('orders.new', '"fail"', key => 'KEY');
SELECT stacksaga.publish('orders.new', '3', deliver_at => stacksaga.clock_now() + interval '1 ms');
SELECT * FROM stacksaga.publish_batch('orders.batch', ARRAY['1', '2']::jsonb[], ARRAY['KEY', 'b']);
SELECT min(batch_id) AS batch, min(message_id::text) AS message
  FROM stacksaga.receive_messages('service', 'consumer') \gset
SELECT stacksaga.extend_batch(:batch);
SELECT stacksaga.fail_message(:batch, :'message', 'no', 'retryable', '0');
SELECT stacksaga.ack_messages(:batch);
SELECT min(batch_id) AS batch, min(message_id::text) AS message
  FROM stacksaga.receive_messages('service', 'consumer') \gset
SELECT stacksaga.fail_message(:batch, :'message', 'no', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SELECT stacksaga.redrive_message('service', :'message');
SELECT stacksaga.run_pending();
SELECT lease FROM stacksaga.idempotency_begin('pay', 'KEY', '1') \gset
SELECT stacksaga.idempotency_checkpoint('pay', 'KEY', :lease, 'half');
SELECT stacksaga.idempotency_finish('pay', 'KEY', :lease, '"paid"');
SELECT * FROM stacksaga.idempotency_begin('pay', 'KEY', '1');
SELECT lease FROM stacksaga.idempotency_begin('pay', 'KEY 2') \gset
SELECT stacksaga.idempotency_release('pay', 'KEY 2', :lease);
SELECT stacksaga.accept_message('consumer', 'KEY');
SELECT stacksaga.accept_sequence('KEY', 1, 1);
SELECT stacksaga.accept_sequence('KEY', 1, 2);
SELECT stacksaga.compare_and_set('scope', 'KEY', NULL, '1');
SELECT stacksaga.compare_and_set('scope', 'KEY', 1, '2');
SELECT * FROM stacksaga.read_value('scope', 'KEY');
SELECT count(*) FROM stacksaga.find_sagas('charge', 'pending', 'KEY', '{"a": 1}');
SELECT count(*) FROM stacksaga.find_sagas('charge');
SELECT stacksaga.create_schedule('KEY', 'charge', '@yearly', overlap => 'skip');
SELECT stacksaga.create_schedule('KEY', 'charge', '@yearly', overlap => 'skip');
SELECT stacksaga.pause_schedule('KEY', 'a look');
SELECT stacksaga.resume_schedule('KEY', 'looked');
BEGIN;
SET LOCAL stacksaga.clock_offset = '366 days';
SELECT stacksaga.fire_schedules();
SET LOCAL stacksaga.clock_offset = '732 days';
SELECT stacksaga.fire_schedules();
ROLLBACK;
SELECT stacksaga.drop_schedule('KEY');
SELECT stacksaga.expire_dedupe();
SELECT stacksaga.expire_sagas();
SELECT stacksaga.maintain_outbox(true);
SQL

# The plans of what has run since, by the text of the statement. Only the extension's own statements
# have parameters by number and name its tables.
sub plans_since
{
	my ($offset) = @_;
	my $log = slurp_file($node->logfile, $offset);
	my %plans;
	while ($log =~ /LOG:  duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)/g)
	{
		my $lines = $1;
		my ($text, $plan) = $lines =~ /^\tQuery Text: (.*?)\n\t([A-Z].*)/s or next;
		next unless $text =~ /^(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b.*stacksaga\.\w+.*\$\d/s;
		next if $text =~ /FROM (?:pg_catalog|stacksaga\.metrics)/;
		$plan =~ s/\s+\(cost=[^)]*\)//g;
		$plans{$text}->{$plan} = 1;
	}
	return \%plans;
}

my $run = 0;
sub plans_with
{
	my ($what) = @_;
	$run++;
	$node->restart; # a worker and sessions that have planned nothing yet
	my $offset = -s $node->logfile;
	(my $sql = $workload) =~ s/KEY/run $run/g;
	$node->safe_psql('postgres', $sql);
	$node->safe_psql('postgres', "SELECT * FROM stacksaga.start_saga('local')");
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM stacksaga.work
		WHERE queue IS NULL AND due_at <= stacksaga.clock_now()});
	return plans_since($offset);
}

my $first;
sub same_plans
{
	my ($what) = @_;
	my $plans = plans_with($what);
	cmp_ok(scalar(keys %$plans), '>', 40, "$what: statements were planned");
	$first //= $plans;
	my @several = grep { keys %{ $plans->{$_} } > 1 } sort keys %$plans;
	is(join("\n", @several), '', "$what: one plan for each statement");
	my @differ;
	for my $text (grep { exists $first->{$_} } sort keys %$plans)
	{
		my ($before) = keys %{ $first->{$text} };
		my ($now) = keys %{ $plans->{$text} };
		push @differ, "$text\n$before\n$now\n" if $before ne $now;
	}
	is(join("\n", @differ), '', "$what: the plans of an empty database");
	return;
}

my $forget = q{
	DELETE FROM pg_statistic WHERE starelid IN
		(SELECT oid FROM pg_class WHERE relnamespace = 'stacksaga'::regnamespace);
	UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0
	 WHERE relnamespace = 'stacksaga'::regnamespace AND relkind IN ('r', 'i')};

same_plans('empty, no statistics');
$node->safe_psql('postgres', 'ANALYZE');
same_plans('small, fresh statistics');
$node->safe_psql('postgres', q{
	SELECT count(*) FROM generate_series(1, 3) n,
		LATERAL stacksaga.start_sagas('backlog', array_fill(to_jsonb(n), ARRAY[10000]));
	SELECT count(*) FROM generate_series(1, 20000) n,
		LATERAL stacksaga.idempotency_begin('filled', n::text);
	SELECT count(*) FROM generate_series(1, 20000) n,
		LATERAL (SELECT stacksaga.accept_message('filled', n::text)) a;
	SELECT count(*) FROM generate_series(1, 5) n,
		LATERAL stacksaga.publish_batch('other', array_fill(to_jsonb(n), ARRAY[10000]));
	SELECT stacksaga.create_schedule('filled', 'charge', '@yearly');
	INSERT INTO stacksaga.schedule SELECT (s).* FROM generate_series(1, 20000) n,
		LATERAL (SELECT jsonb_populate_record(s, jsonb_build_object('schedule', n::text, 'token', n)) AS s
		           FROM stacksaga.schedule s WHERE schedule = 'filled') AS s;
});
same_plans('large, stale statistics');
$node->safe_psql('postgres', 'VACUUM ANALYZE');
same_plans('large, fresh statistics');
$node->safe_psql('postgres', $forget);
same_plans('large, no statistics');
$node->safe_psql('postgres', 'ANALYZE; TRUNCATE stacksaga.work, stacksaga.idempotency_key');
same_plans('small again, stale statistics');

# What a session says of the planner is for its own statements.
my $offset = -s $node->logfile;
(my $sql = $workload) =~ s/KEY/odd session/g;
$node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_nestloop = off;
	SET random_page_cost = 100; $sql");
my $odd = plans_since($offset);
my @differ = grep { exists $first->{$_} && join('', keys %{ $first->{$_} }) ne join('', keys %{ $odd->{$_} }) }
  sort keys %$odd;
is(join("\n", @differ), '', 'the settings of a session do not matter');

is(scalar(() = slurp_file($node->logfile) =~ /not planned by an index/g), 0, 'every plan by an index');

$node->stop;
done_testing();
