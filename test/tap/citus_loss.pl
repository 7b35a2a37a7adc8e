# On Citus: a node is killed under load. Keys of the other nodes go on, its own are refused until it is back, and then
# each has had its effect once. Runs where Citus is installed.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCitus;
use Test::More;

StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(2);
my $main = $cluster->coordinator;
my $lost = $cluster->worker(1);
# The effect of a key is on another node than the key, as often as not.
$main->safe_psql('postgres', q{
	SELECT stacksaga.citus_enable(shard_count => 8);
	CREATE TABLE job_done (id text);
	SELECT create_distributed_table('job_done', 'id', colocate_with => 'none', shard_count => 8);
	CREATE FUNCTION once(id text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		begun record;
	BEGIN
		SELECT * INTO begun FROM stacksaga.idempotency_begin('job', id);
		IF begun.outcome = 'new' THEN
			INSERT INTO job_done VALUES (id);
			PERFORM stacksaga.idempotency_finish('job', id, begun.lease);
		END IF;
		RETURN begun.outcome;
	END $$;
	SELECT create_distributed_function('once(text)')});

# Which messages are of that node.
my $port = $lost->port;
my @messages = map { [ split /\|/ ] } split /\n/, $main->safe_psql('postgres', qq{
	BEGIN; SELECT count(stacksaga.accept_message('c', i::text)) FROM generate_series(1, 20) AS i \\g /dev/null
	SELECT message_id, nodeport = $port FROM stacksaga.accepted_message, pg_dist_shard_placement
	 WHERE shardid = get_shard_id_for_distribution_column('stacksaga.accepted_message', token);
	ROLLBACK});

my $jobs = 400;
my @sessions;
my $file = PostgreSQL::Test::Utils::tempdir() . '/jobs.sql';
append_to_file($file, join('', map { "SELECT once('$_');\n" } 1 .. $jobs));
for my $node ($main, $cluster->worker(0))
{
	my ($output, $errors) = ('', '');
	push @sessions, { output => \$output, errors => \$errors, program => IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $file ], '<', \undef, '>', \$output, '2>', \$errors) };
}
sub answered { return scalar(() = ${ $_[0]{output} } =~ /^(new|replay)$/mg) }

sub wait_for
{
	my ($condition, $what) = @_;
	for (my $i = 0; $i < 10 * $PostgreSQL::Test::Utils::timeout_default; ++$i)
	{
		$_->{program}->pump_nb for @sessions;
		return pass($what) if $condition->();
		select undef, undef, undef, 0.1;
	}
	return fail($what);
}
wait_for(sub { !grep { answered($_) < 20 } @sessions }, 'two nodes answer');
$lost->stop('immediate');
my %before = map { $_ => answered($sessions[$_]) } 0 .. $#sessions;
wait_for(sub { !grep { ${ $sessions[$_]{errors} } !~ /connection/ || answered($sessions[$_]) < $before{$_} + 5 } keys %before },
	'keys of the lost node are refused, and the others go on');

for my $node ($main, $cluster->worker(0))
{
	my %answers;
	foreach my $message (@messages)
	{
		my ($id, $is_lost) = @$message;
		my ($code, $answer) = $node->psql('postgres', "BEGIN; SELECT stacksaga.accept_message('c', '$id'); ROLLBACK");
		++$answers{"$is_lost: " . ($code == 0 ? $answer : 'refused')};
	}
	is(join(', ', sort keys %answers), 'f: t, t: refused', $node->name . ' accepts messages of live nodes, and of no other');
}
like($main->safe_psql('postgres', 'SELECT problem FROM stacksaga.citus_check()'), qr/node_unreachable/, 'the check names the node');

$lost->start;
wait_for(sub { !grep { $_->{program}->pumpable } @sessions }, 'both come to their end');
$_->{program}->finish for @sessions;
$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_prepared_xacts') for $main, $lost, $cluster->worker(0);
is($main->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM job_done'),
	$main->safe_psql('postgres', q{SELECT count(*), count(*) FROM stacksaga.idempotency_key WHERE scope = 'job'}),
	'each key has its effect, and each effect its key');
is($main->safe_psql('postgres', "SELECT once(i::text) FROM generate_series(1, $jobs) AS i") =~ s/new|replay|\n//gr, '',
	'who repeats them is answered');
is($main->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM job_done'), "$jobs|$jobs", 'nothing is lost, and nothing twice');
is($main->safe_psql('postgres', 'SELECT severity, problem FROM stacksaga.citus_check()'), '', 'the check finds nothing');
done_testing();
