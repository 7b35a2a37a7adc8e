# A paused definition and workers: they hold back what waits before claims meet it, bring all of it back when the pause
# ends by its instant or by hand, also over a crash, and forget the pause then.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('pauses');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.workers = 2\nstacksaga.poll_interval = '1s'");
$node->start;
$node->create_extension('postgres');
sub psql { return $node->safe_psql('postgres', @_) }

sub wait_for
{
	my ($condition, $what) = @_;
	ok($node->poll_query_until('postgres', "SELECT $condition"), $what);
	return;
}

# The pause comes first for some, last for others.
psql(q{
	CREATE TABLE done (saga_id uuid);
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO done VALUES (call.saga_id) RETURNING '{}'::jsonb $$;
	SELECT stacksaga.define_saga('paused', ARRAY[stacksaga.queue_step('a', 'q', compensable => false),
		stacksaga.sql_step('b', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('paused sql', ARRAY[stacksaga.sql_step('a', 'act(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('other', ARRAY[stacksaga.queue_step('a', 'q', compensable => false)]);
	SELECT count(*) FROM stacksaga.start_sagas('paused', array_fill('{}'::jsonb, ARRAY[4000]));
});
psql(q{SELECT stacksaga.pause_definition('paused', 'a test'), stacksaga.pause_definition('paused sql', 'a test')});
psql(q{SELECT count(*) FROM stacksaga.start_sagas('paused sql', array_fill('{}'::jsonb, ARRAY[1000]))});
psql(q{SELECT count(*) FROM stacksaga.start_saga('other')});
wait_for(q{count(*) = 4000 FROM stacksaga.work WHERE paused_saga = 'paused' AND due_at = 'infinity'},
	'workers hold back what waits for services');
is(psql(q{SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 10)}), 1, 'a claim finds the step behind them at once');
is(psql(q{SELECT count(*) FROM done}), 0, 'no step of a paused definition was run');

# A crash in the middle of bringing back, and the end by an instant.
psql(q{SELECT stacksaga.resume_definition('paused', 'a test')});
$node->stop('immediate');
$node->start;
wait_for(q{NOT EXISTS (SELECT FROM stacksaga.work WHERE paused_saga = 'paused')}, 'all came back, over a crash');
wait_for(q{NOT EXISTS (SELECT FROM stacksaga.definition_pause WHERE saga = 'paused')}, 'the pause is forgotten');
is(psql(q{SELECT count(*) FROM stacksaga.definitions WHERE paused}), 1, 'the other definition is still paused');
is(psql(q{SELECT count(*) FROM stacksaga.work WHERE queue = 'q' AND due_at <= now() AND lease_until IS NULL}), 4000, 'each is due');
is(psql(q{SELECT count(*) FROM done}), 0, 'the other one was not run');
psql(q{SELECT stacksaga.resume_definition('paused sql', 'a test'),
	stacksaga.pause_definition('paused sql', 'twice', stacksaga.clock_now() + interval '2 seconds')});
wait_for(q{count(*) = 1000 FROM done}, 'workers run all of it behind the end of the pause');
wait_for(q{NOT EXISTS (SELECT FROM stacksaga.definition_pause)}, 'no pause is left');
is(psql(q{SELECT count(*) FROM (SELECT FROM done GROUP BY saga_id HAVING count(*) > 1) AS twice}), 0, 'each once');

# While it is paused, started, answered and resumed all the time nothing is lost.
psql(q{SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease)) FROM stacksaga.claim_steps('q', 'w', 1000) AS c})
  for 1 .. 2;
foreach my $round (1 .. 10)
{
	psql(q{SELECT stacksaga.pause_definition('paused', 'a test')});
	psql(q{SELECT count(*) FROM stacksaga.start_sagas('paused', array_fill('{}'::jsonb, ARRAY[20]))});
	psql(q{SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease)) FROM stacksaga.claim_steps('q', 'w', 100) AS c});
	psql(q{SELECT stacksaga.resume_definition('paused', 'a test')});
	psql(q{SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease)) FROM stacksaga.claim_steps('q', 'w', 50) AS c});
}
$node->poll_query_until('postgres', q{SELECT count(c.saga_id) = 0 FROM stacksaga.claim_steps('q', 'w', 1000) AS c
	WHERE stacksaga.complete_step(c.saga_id, c.step, c.lease) IS NOT NULL}) or die 'claims have no end';
wait_for(q{NOT EXISTS (SELECT FROM stacksaga.sagas WHERE saga = 'paused' AND status <> 'completed')}, 'every saga completes');

$node->stop;
done_testing();
