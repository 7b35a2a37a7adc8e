# Background workers serve every ring of their database, or those that stacksaga.worker_rings lists. doctor() names a
# ring that none serves, and a region and cluster that name no ring.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

my $node = StacksagaCluster->new('rings');
$node->init(worker_databases => [ 'postgres' ]);
$node->start;
$node->create_extension('postgres');
define_answer($node, 'postgres');
$node->safe_psql('postgres', q{
	SELECT stacksaga.define_saga('pause', ARRAY[stacksaga.timer_step('wait', '1 second'), stacksaga.sql_step('only', 'public.answer(stacksaga.step_call)')])});
wait_until_works($node, 'postgres', 1);

sub start_in
{
	my ($region, $cluster, $saga) = @_;
	return $node->safe_psql('postgres', qq{
		SET stacksaga.region = '$region'; SET stacksaga.cluster = '$cluster';
		SELECT saga_id FROM stacksaga.start_saga('$saga')});
}

sub ends_as
{
	my ($id) = @_;
	return $node->safe_psql('postgres', "SELECT stacksaga.await_saga('$id', '60 s')");
}

sub set
{
	my ($line) = @_;
	$node->append_conf('postgresql.conf', $line);
	$node->reload;
}

my $served = q{SELECT string_agg(r.region || '/' || r.cluster, ' ' ORDER BY r.ring_id) FROM stacksaga.ring r
	WHERE EXISTS (SELECT FROM stacksaga.node n WHERE n.ring_id = r.ring_id AND n.pid IS NOT NULL)};
my $finding = q{SELECT fix FROM stacksaga.doctor() WHERE check_name = 'rings'};

# Rings that are created while workers run.
$node->safe_psql('postgres', q{
	SELECT stacksaga.create_ring('eu', 'blue'); SELECT stacksaga.create_ring('eu west, 2', 'green', slots => 64)});
is(ends_as(start_in('eu', 'blue', 'pause')), 'completed', 'a timer and a step of another region');
is(ends_as(start_in('eu west, 2', 'green', 'answer')), 'completed', 'a third ring');
is(ends_as(start_in('default', 'default', 'pause')), 'completed', 'and the own one');
is($node->safe_psql('postgres', $finding), '', 'doctor() finds nothing');

# Schedules of a ring other than the own one.
$node->safe_psql('postgres', q{
	SET stacksaga.region = 'eu'; SET stacksaga.cluster = 'blue';
	SELECT stacksaga.create_schedule('each second', 'answer', '* * * * * *')});
ok($node->poll_query_until('postgres', q{SELECT count(*) >= 3 FROM stacksaga.sagas WHERE key LIKE 'each second@%' AND status = 'completed'}),
	'its schedules fire');
$node->safe_psql('postgres', q{SELECT stacksaga.drop_schedule('each second')});

# Only some of them.
set(q{stacksaga.worker_rings = 'eu/blue, "eu west, 2/green"'});
ok($node->poll_query_until('postgres', $served, 'eu/blue eu west, 2/green'), 'the ring that is not listed is left');
is(ends_as(start_in('eu west, 2', 'green', 'answer')), 'completed', 'a name in quotes is one name');
my $waits = start_in('default', 'default', 'answer');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($finding) AS d"), 'doctor() names the ring that none serves');
is($node->safe_psql('postgres', "SELECT status FROM stacksaga.sagas WHERE saga_id = '$waits'"), 'pending', 'whose work waits');
my $fix = $node->safe_psql('postgres', $finding);
like($fix, qr{ALTER SYSTEM SET stacksaga.worker_rings = 'eu/blue, "eu west, 2/green", "default/default"'}, 'with a fix');
$node->safe_psql('postgres', $fix);
$node->reload;
is(ends_as($waits), 'completed', 'that works');
is($node->safe_psql('postgres', $finding), '', 'then doctor() finds nothing');
$node->safe_psql('postgres', q{ALTER SYSTEM SET stacksaga.worker_rings = ''});

# What is no list of rings is refused.
for my $value ('eu', 'eu/', '/blue', 'eu/blue,', '"eu/blue')
{
	my ($status, undef, $error) = $node->psql('postgres', "ALTER SYSTEM SET stacksaga.worker_rings = '$value'");
	like($error, qr/invalid value for parameter "stacksaga.worker_rings"/, "refused: $value");
}

# A region that names no ring.
my $start = -s $node->logfile;
set("stacksaga.region = 'nowhere'");
$node->wait_for_log(qr/database "postgres" has no ring with region "nowhere" and cluster "default"/, $start);
my (undef, undef, $error) = $node->psql('postgres', "SELECT stacksaga.start_saga('answer')");
like($error, qr/SG404|ring does not exist/, 'no work can be started there');
like($error, qr/HINT:  Correct the settings stacksaga.region and stacksaga.cluster/, 'and the hint names the settings');
like($node->safe_psql('postgres', $finding), qr/^SELECT stacksaga.create_ring\('nowhere', 'default'\); -- or correct/, 'so does doctor()');
$node->safe_psql('postgres', $node->safe_psql('postgres', $finding));
is(ends_as(start_in('nowhere', 'default', 'answer')), 'completed', 'whose fix works');

$node->stop;
done_testing();
