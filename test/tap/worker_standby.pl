# A standby has no workers and can start none; promotion starts those of a server that preloads.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $primary = StacksagaCluster->new('primary');
$primary->init(worker_databases => [ 'postgres' ], allows_streaming => 1);
$primary->start;
$primary->create_extension('postgres');
define_answer($primary, 'postgres');
is(run_saga($primary, 'postgres', 'answer'), 'completed', 'the primary works');

$primary->backup('base');
my $standby = StacksagaCluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
my $id = $primary->safe_psql('postgres',
	q{SELECT saga_id FROM stacksaga.start_saga('answer', run_at => stacksaga.clock_now() + '1 hour')});
$primary->wait_for_catchup($standby);

is( $standby->safe_psql('postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'stacksaga%'}),
	0, 'a standby has neither launcher nor worker');
my (undef, undef, $errors) = $standby->psql('postgres', 'SELECT stacksaga.worker_ensure()',
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($errors, qr/ERROR:  25006: workers cannot run on a standby/, 'and refuses to start one');
like($errors, qr/HINT:  Call worker_ensure\(\) on the primary/, 'and says where to');
$standby->raises_sqlstate('postgres', $_, '25006')
  for q{SELECT stacksaga.claim_steps('nothing', 'w')}, q{SELECT stacksaga.receive_messages('nothing', 'c')},
  q{CALL stacksaga.wait_for_steps('nothing', '1 second')}, q{CALL stacksaga.wait_for_messages('nothing', '1 second')},
  qq{SELECT stacksaga.release_step('$id', 'a', 1)};
is($standby->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.worker_stats'),
	0, 'the view of the workers is readable there, and empty');

$primary->stop;
$standby->append_conf('postgresql.conf', "stacksaga.clock_offset = '2 hours'");
$standby->reload;
$standby->promote;
is($standby->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '120 seconds')"),
	'completed', 'after promotion it does the work that it got from the primary');
is($standby->safe_psql('postgres', 'SELECT stacksaga.worker_ensure()'), 1, 'one worker runs');

$standby->stop;
done_testing();
