# Sessions that claim once and leave serve all groups alike: two of equal need get half of the claims each.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('groups');
$node->init;
$node->start;
$node->create_extension('postgres');
sub psql { return $node->safe_psql('postgres', @_) }

# Many more due steps than a claim reads at once (few_max in extension/src/work/claim_turns.cpp), so groups are visited.
# What comes behind the last group, and a group of which nothing is due, must not favour the group behind it.
psql(q{
	SELECT stacksaga.define_saga('s', ARRAY[stacksaga.queue_step('a', 'q', compensable => false)]);
	SELECT count(*) FROM generate_series(1, 1000) AS n,
	       LATERAL stacksaga.start_saga('s', group_key => 'group ' || chr(97 + n % 2));
	SELECT count(*) FROM generate_series(1, 20) AS n,
	       LATERAL stacksaga.start_saga('s', group_key => 'group c', run_at => now() + interval '1 day');
});
my $claim = $node->basedir . '/claim.sql';
append_to_file($claim, "SELECT count(*) FROM stacksaga.claim_steps('q', 'w', 1);\n");

# Half of them is 200, with a standard deviation of 10; a third was 133.
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	command_ok([ 'pgbench', '-n', '-C', '-c', 1, '-t', 400, '-f', $claim, 'postgres' ],
		'400 sessions claim one step each and leave');
}
my %claimed = map { split /\|/ } split /\n/,
  psql(q{SELECT group_key, count(*) FROM stacksaga.work WHERE lease_until IS NOT NULL GROUP BY 1});
is(($claimed{'group a'} // 0) + ($claimed{'group b'} // 0), 400, 'each got a step');
cmp_ok($claimed{'group a'}, '>=', 155, "the first group got its half: $claimed{'group a'} of 400");
cmp_ok($claimed{'group b'}, '>=', 155, "the second group got its half: $claimed{'group b'} of 400");

$node->stop;
done_testing();
