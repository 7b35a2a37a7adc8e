# Thousands of sagas whose leases ran out are held by another session's transaction: a worker passes over them, and does
# what fell due later at once. doctor() names the transaction. When it ends, those sagas go on.
use strict;
use warnings;

use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

# A turn does ten items, and of most slots more than that are locked: a worker that tries them in vain finds nothing
# else to do, and would wait for its next look.
my $node = StacksagaCluster->new('locked');
$node->init(worker_databases => ['postgres']);
$node->append_conf('postgresql.conf', "stacksaga.batch_size = 10\nstacksaga.poll_interval = '60s'\nstacksaga.workers = 0\n"
	  . "max_prepared_transactions = 5\n");
$node->start;
$node->create_extension('postgres');
my $held = 6000;
$node->safe_psql('postgres', qq{
	CREATE FUNCTION act(step stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS \$\$SELECT '1'::jsonb\$\$;
	SELECT stacksaga.define_saga('served', ARRAY[stacksaga.queue_step('work', queue => 'q', compensable => false)]);
	SELECT stacksaga.define_saga('local', ARRAY[stacksaga.sql_step('a', 'act(stacksaga.step_call)')]);
	SELECT count(*) FROM (SELECT stacksaga.start_saga('served') FROM generate_series(1, $held)) AS s});
1 while $node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.claim_steps('q', 'lost', 1000, lease => '8 s')}) > 0;
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.work WHERE lease_until IS NOT NULL}), $held, 'all steps are claimed');
my $holder = $node->background_psql('postgres');
$holder->query_safe(q{SET application_name = 'holder'; BEGIN; SAVEPOINT s;
	SELECT count(*) FROM (SELECT FROM stacksaga.saga FOR UPDATE) AS s});
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM stacksaga.work WHERE due_at > clock_timestamp() - interval '1 s'});

$node->append_conf('postgresql.conf', 'stacksaga.workers = 1');
$node->reload;
wait_until_works($node, 'postgres', 1);
$node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT stacksaga.start_saga('local') FROM generate_series(1, 1000)) AS s});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1000 FROM stacksaga.saga WHERE status = 'completed'}),
	'sagas that fell due later are done');
my ($severity, $detail, $fix) = split /\|/, $node->safe_psql('postgres',
	q{SELECT severity, detail, fix FROM stacksaga.doctor() WHERE check_name = 'locked_sagas'});
like($detail // '', qr/^process $pid \(holder, role "\w+"\) holds 1000 or more sagas whose work is due, in a transaction since \d{4}-/,
	'doctor() names the transaction that holds the others');
like($fix // '', qr/^SELECT pg_terminate_backend\($pid\);/, 'and what ends it');

# Prepared, it is named by its identifier.
$holder->query_safe("PREPARE TRANSACTION 'held'");
like($node->safe_psql('postgres', q{SELECT detail FROM stacksaga.doctor() WHERE check_name = 'locked_sagas'}),
	qr/^prepared transaction 'held' holds 1000 or more sagas/, 'prepared as well');
$holder->quit;
$node->safe_psql('postgres', "COMMIT PREPARED 'held'");
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'locked_sagas'}), 0, 'it ends');
$node->append_conf('postgresql.conf', "stacksaga.poll_interval = '100ms'");
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM stacksaga.work WHERE lease_until IS NOT NULL}),
	'and the leases of those sagas are ended');
$node->stop;
done_testing();
