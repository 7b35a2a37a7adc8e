# A rolling restart of three services: each leaves, comes back and is left alone for a while. The ring is never
# without an owner for longer than two seconds, though its windows are a minute long, and nothing is done twice.
use strict;
use warnings;

use List::Util qw(max);
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use StacksagaPrograms;
use Test::More;
use Time::HiRes qw(time);

my ($program) = grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH};
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{stacksaga.coordination = 'coordinator'});
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE coordinator LOGIN;
	SELECT stacksaga.grant_usage('coordinator', 'coordinator');
	CREATE TABLE done (saga_id uuid);
	CREATE TABLE running (node text PRIMARY KEY, incarnation bigint NOT NULL);
	SELECT stacksaga.define_saga('one', ARRAY[stacksaga.queue_step('act', 'work', compensable => true)]);
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('publish_lead', '500 ms'), ('window_length', '1 second'),
				   ('heartbeat_interval', '1 second')) AS s(setting, value);
	-- It has an effect for each step that it claims.
	CREATE FUNCTION effects_of(service text) RETURNS SETOF stacksaga.claimed_step LANGUAGE plpgsql AS $$
	DECLARE
		step stacksaga.claimed_step;
	BEGIN
		FOR step IN SELECT * FROM stacksaga.claim_steps('work', service, 10) LOOP
			INSERT INTO done VALUES (step.saga_id);
			RETURN NEXT step;
		END LOOP;
	END $$;
	-- What a service does again and again: it beats, and in another transaction claims a step and does it.
	CREATE PROCEDURE serve(service text) LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM FROM running r, stacksaga.heartbeat_node(r.node, r.incarnation) WHERE r.node = service;
		COMMIT;
		PERFORM stacksaga.complete_step(c.saga_id, c.step, c.lease)
		   FROM effects_of(service) AS c;
		COMMIT;
	END $$});

my $programs = StacksagaPrograms->new;
my $connection = $node->connstr('postgres');
$programs->add('master', sub {
	return ($program, 'master', '--name', 'master', '--http', '', '-d', "$connection user=coordinator");
});
$programs->keep_running;

# The services are sessions.
my @names = qw(east north west);
my %session = map { $_ => $node->background_psql('postgres') } @names;
# A node that holds nothing yet is told so by a warning.
$_->query_safe('SET client_min_messages = error') foreach values %session;
sub start_service
{
	my ($name) = @_;
	return $session{$name}->query_safe(
		"INSERT INTO running VALUES ('$name', stacksaga.register_node('$name'))");
}

sub end_service
{
	my ($name) = @_;
	return $session{$name}->query_safe(qq{
		WITH ended AS (DELETE FROM running WHERE node = '$name' RETURNING *)
		SELECT stacksaga.leave_ring(node, incarnation) FROM ended});
}

my $session = $node->background_psql('postgres');
my ($uncovered_since, $longest, $observations) = (undef, 0, 0);

# Reads the ring once, while every service serves once and work comes in.
sub observe
{
	my $before = time;
	my ($coverage, $nodes) = split /\|/, $session->query_safe(q{
		SELECT coverage, (SELECT string_agg(format('%s %s %s', node, state, share > 0.3), ', ' ORDER BY node)
							FROM stacksaga.nodes)
		  FROM stacksaga.ring_status WHERE region = 'default' AND cluster = 'default'});
	++$observations;
	$session->query_safe(q{SELECT FROM stacksaga.start_sagas('one', '{"{}", "{}", "{}"}')});
	my %runs = map { $_ => 1 } split /\n/, $session->query_safe('SELECT node FROM running');
	$session{$_}->query_safe("CALL serve('$_')") foreach grep { $runs{$_} } @names;
	$uncovered_since //= $before if $coverage < 1;
	$longest = max($longest, time - $uncovered_since) if defined $uncovered_since;
	$uncovered_since = undef if $coverage == 1;
	return $nodes // '';
}

sub observe_until
{
	my ($condition, $test) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	while (time < $deadline)
	{
		return pass($test) if $condition->(observe());
		StacksagaPrograms::pause(0.05);
	}
	return fail($test);
}

start_service($_) foreach @names;
observe_until(sub { $_[0] eq 'east active t, north active t, west active t' }, 'three nodes share the ring');
$longest = 0;

# From here on a window is of no help for at least half a minute after each change.
$node->safe_psql('postgres', q{
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('window_length', '60 seconds'), ('publish_lead', '30 seconds')) AS s(setting, value)});

for my $name (@names)
{
	end_service($name);
	observe_until(sub { $_[0] !~ /$name/ }, "$name leaves");
	my $left_at = time;
	observe_until(sub { time - $left_at > 3 }, 'the others hold the ring');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.slot s
			WHERE NOT EXISTS (SELECT FROM stacksaga.node n WHERE n.incarnation = s.owner)}),
		0, 'every slot has an owner that is there');
	start_service($name);
	observe_until(sub { $_[0] =~ /$name active/ }, "$name is back");
}
cmp_ok($longest, '<', 2, "the ring is covered at all times but for at most 2 s, in $observations observations");
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'coverage'}),
	0, 'doctor() has nothing to say of it');
observe_until(sub { $session->query_safe(
		q{SELECT count(*) < 10 FROM stacksaga.sagas WHERE status <> 'completed'}) eq 't' }, 'work is done');
is($node->safe_psql('postgres', q{
		SELECT count(*) = count(DISTINCT saga_id) AND count(*) >=
			   (SELECT count(*) FROM stacksaga.sagas WHERE status = 'completed') FROM done}),
	't', 'each piece of it once');

# None of what two have stays behind when they leave; the last one leaves it to nobody.
end_service($_) foreach @names[ 0, 1 ];
my $status = q{SELECT coverage, total_nodes FROM stacksaga.ring_status WHERE region = 'default' AND cluster = 'default'};
is($node->safe_psql('postgres', $status), '1|1', 'two that leave, leave the ring to the third');
end_service($names[2]);
is($node->safe_psql('postgres', $status), '0|0', 'and that one to nobody');
$_->quit foreach $session, values %session;
$programs->stop_all;
is_deeply([ $programs->unexpected ], [], 'the master ended as it was told');

done_testing();
