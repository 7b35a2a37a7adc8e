# On Citus: sagas on one node, whose tables are distributed all the same. Each kind of step, answers, operators'
# calls, children, retention, and the way there and back with sagas that run. Runs where Citus is installed.
use strict;
use warnings;

use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(0, 'citus.shard_replication_factor = 1');
my $main = $cluster->coordinator;
sub sql { return $main->safe_psql('postgres', $_[0]) }
sub status { return sql("SELECT status FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('$_[0]', '$_[1]')") }

sub is_soon
{
	my ($query, $expected, $what) = @_;
	$main->poll_query_until('postgres', $query, $expected) or diag("it is: " . sql($query));
	return is(sql($query), $expected, $what);
}
my $port = $main->port;
sql(qq{SELECT citus_set_node_property('127.0.0.1', $port, 'shouldhaveshards', true)});
sql(q{
	CREATE TABLE done (saga text, step text, direction text);
	SELECT citus_add_local_table_to_metadata('done') \g /dev/null
	CREATE FUNCTION note(step stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO done VALUES (step.input ->> 'id', step.step, step.direction);
		IF step.direction = 'act' AND step.step = step.input ->> 'fails' THEN
			RAISE 'as it is told' USING ERRCODE = 'SG424';
		END IF;
		RETURN jsonb_build_object('did', step.step);
	END $$;
	SELECT stacksaga.define_saga('plain', ARRAY[
		stacksaga.sql_step('a', 'note(stacksaga.step_call)', compensation => 'note(stacksaga.step_call)'),
		stacksaga.sql_step('b', 'note(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('served', ARRAY[
		stacksaga.queue_step('pay', 'pay', compensable => true), stacksaga.signal_step('paid', 'paid', timeout => '1 hour')]);
	SELECT stacksaga.define_saga('parent', ARRAY[
		stacksaga.sql_step('a', 'note(stacksaga.step_call)', compensation => 'note(stacksaga.step_call)'),
		stacksaga.child_step('child', 'plain')]);
	SELECT count(*) FROM generate_series(1, 5) AS i,
		stacksaga.start_saga('served', jsonb_build_object('id', i), key => 'before ' || i)});

# The way there: what runs goes on.
sql('SELECT stacksaga.citus_enable(shard_count => 4, sagas => true)');
is(sql('SELECT severity, problem FROM stacksaga.citus_check()'), '', 'the check finds nothing');
is(sql(q{SELECT count(*) FROM stacksaga.work}), 5, 'sagas of before are there');
is(sql(q{SELECT count(*) FROM stacksaga.claim_steps('pay', 'w', 10) AS s,
	stacksaga.complete_step(s.saga_id, s.step, s.lease, '{"paid": true}')}), 5, 'and are claimed and answered');
is(sql(q{SELECT count(*) FROM stacksaga.claim_steps('pay', 'w', 10)}), 0, 'once');

# SQL steps, by a worker.
sql(q{SELECT count(*) FROM generate_series(1, 50) AS i, stacksaga.start_saga('plain', jsonb_build_object('id', 'p' || i), key => i::text)});
is_soon(q{SELECT count(*) FROM stacksaga.saga s JOIN stacksaga.saga_definition d USING (definition_id)
	WHERE d.saga = 'plain' AND status = 'completed'}, 50, 'a worker runs sagas of all shards');
is(sql(q{SELECT count(*), count(DISTINCT (saga, step)) FROM done WHERE saga LIKE 'p%'}), '100|100', 'each step once');
is(sql(q{SELECT created FROM stacksaga.start_saga('plain', '{"id": "p1"}', key => '1')}), 'f', 'a key stands for its saga');
$main->raises_sqlstate('postgres', q{SELECT * FROM stacksaga.start_saga('plain', '{"id": "other"}', key => '1')}, 'SG422');

# One that fails is compensated, and its key restarts.
sql(q{SELECT * FROM stacksaga.start_saga('plain', '{"id": "f", "fails": "b"}', key => 'f')});
is_soon(q{SELECT status FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('plain', 'f')}, 'failed', 'a failed step is compensated');
is(sql(q{SELECT string_agg(step || ' ' || direction, ',' ORDER BY step, direction) FROM done WHERE saga = 'f'}),
	'a act,a compensate', 'by what it did');
is(sql(q{SELECT created FROM stacksaga.start_saga('plain', '{"id": "f", "fails": "b"}', key => 'f', on_conflict => 'restart_if_failed')}),
	't', 'a failed saga is started again');
is_soon(q{SELECT status FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('plain', 'f', 1)}, 'failed', 'and fails again');

# Signals, a step that fails, operators.
is(sql(q{SELECT stacksaga.signal_saga(stacksaga.saga_id_of('served', 'before ' || i), 'paid', '{}') FROM generate_series(1, 2) AS i}),
	"t\nt", 'signals are accepted');
is_soon(q{SELECT count(*) FROM stacksaga.saga WHERE status = 'completed' AND saga_id IN (
	stacksaga.saga_id_of('served', 'before 1'), stacksaga.saga_id_of('served', 'before 2'))}, 2, 'and their sagas complete');
sql(q{SELECT stacksaga.suspend_saga(stacksaga.saga_id_of('served', 'before 3'), 'wait')});
is(status('served', 'before 3'), 'suspended', 'a saga is suspended');
sql(q{SELECT stacksaga.resume_saga(stacksaga.saga_id_of('served', 'before 3'), 'go on')});
sql(q{SELECT stacksaga.cancel_saga(stacksaga.saga_id_of('served', 'before 3'), 'no more')});
is(sql(q{SELECT count(*) FROM stacksaga.claim_steps('pay', 'w', 10) AS s,
	stacksaga.complete_step(s.saga_id, s.step, s.lease) WHERE s.direction = 'compensate'}), 1, 'a service compensates');
is_soon(q{SELECT status FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('served', 'before 3')}, 'failed', 'and cancelled');
sql(q{SELECT stacksaga.redact_saga(stacksaga.saga_id_of('served', 'before 3'), 'asked to')});
is(sql(q{SELECT input FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('served', 'before 3')}), '{"redacted": true}', 'and redacted');

# Children, whose ids follow from their parents'.
sql(q{SELECT count(*) FROM generate_series(1, 10) AS i,
	stacksaga.start_saga('parent', jsonb_build_object('id', 'c' || i, 'fails', CASE WHEN i > 8 THEN 'b' END), key => i::text)});
is_soon(q{SELECT count(*) FILTER (WHERE status = 'completed') || ' ' || count(*) FILTER (WHERE status = 'failed')
	FROM stacksaga.saga JOIN stacksaga.saga_definition d USING (definition_id) WHERE d.saga = 'parent'}, '8 2',
	'parents end as their children do');

# Retention.
my $left = sql(q{SELECT count(*) FROM stacksaga.saga WHERE finished_at IS NULL});
sql(q{SELECT stacksaga.define_saga('kept', ARRAY[stacksaga.timer_step('now', delay => '0')], keep => '1 day')});
sql(q{SELECT stacksaga.start_saga('kept', key => 'kept')});
is_soon(q{SELECT status FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('kept', 'kept')}, 'completed', 'one that is kept for a day ends');
$main->append_conf('postgresql.conf', "stacksaga.saga_retention = 0\nstacksaga.failed_saga_retention = 0");
$main->reload;
is_soon(q{SELECT stacksaga.expire_sagas(1000) * 0 + count(*) FROM stacksaga.saga}, $left + 1, 'what has finished is removed, but not what its definition keeps');
is_soon(q{SET stacksaga.clock_offset = '25 hours'; SELECT stacksaga.expire_sagas(1000) * 0 + count(*) FROM stacksaga.saga}, $left, 'which goes by itself');
is(sql('SELECT count(*) FROM stacksaga.effect'), sql('SELECT count(*) FROM stacksaga.effect e WHERE saga_id IN (SELECT saga_id FROM stacksaga.saga)'),
	'with its effects');

# And back.
sql('SELECT stacksaga.citus_disable()');
is(sql('SELECT count(*) FROM stacksaga.saga'), $left, 'sagas come back');
is(sql(q{SELECT stacksaga.signal_saga(stacksaga.saga_id_of('served', 'before 4'), 'paid', '{}')}), 't', 'and go on');
is_soon(q{SELECT status FROM stacksaga.saga WHERE saga_id = stacksaga.saga_id_of('served', 'before 4')}, 'completed', 'to their end');
is(sql(q{SELECT count(*) FROM pg_dist_partition WHERE logicalrelid::text LIKE 'stacksaga.%'}), 0, 'Citus knows of none of the tables');
$main->raises_sqlstate('postgres', q{UPDATE stacksaga.saga SET status = 'running' WHERE status = 'completed'}, 'SG409');
sql('DROP EXTENSION stacksaga CASCADE');
is(sql(q{SELECT count(*) FROM pg_class WHERE relname ~ '^(saga|work|effect|failure|idempotency_key|definition_step)'}), 0, 'nothing is left');
done_testing();
