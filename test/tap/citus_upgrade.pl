# On Citus: ALTER EXTENSION UPDATE on the coordinator updates each node, and the distributed tables keep their rows.
# test/tools/upgrade-pair installs the two versions. Runs where Citus is installed.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCitus;
use Test::More;

my $versions = $ENV{STACKSAGA_VERSIONS} // '';
plan skip_all => 'test/tools/tap installs the versions' unless -d "$versions/old";
StacksagaCitus::skip_without_citus();
my $root = PostgreSQL::Test::Utils::tempdir_short() . '/root';

# What a server has loaded stays: each file is a new one.
sub install_version { return system_or_bail('cp', '-r', '--remove-destination', "$_[0]/.", $root) }
system_or_bail('cp', '-r', $ENV{STACKSAGA_DESTDIR}, $root);
install_version("$versions/old");
(my $settings = slurp_file($ENV{TEMP_CONFIG})) =~ s/\Q$ENV{STACKSAGA_DESTDIR}\E/$root/g;

my $cluster = StacksagaCitus->new(2, $settings);
my $main = $cluster->coordinator;
my @nodes = ($main, $cluster->worker(0), $cluster->worker(1));
my $is_here = q{SELECT extversion, stacksaga_internal.library_version() FROM pg_extension WHERE extname = 'stacksaga'};
$main->safe_psql('postgres', q{
	SELECT stacksaga.citus_enable(shard_count => 8);
	SELECT count(stacksaga.accept_message('c', i::text)) FROM generate_series(1, 100) AS i});
my ($old) = split /\|/, $main->safe_psql('postgres', $is_here);

install_version("$versions/new");
my (undef, undef, $errors) = $main->psql('postgres', 'ALTER EXTENSION stacksaga UPDATE');
like($errors, qr/needs its library/, 'the update before the restart is refused');
$cluster->worker(1)->restart;
$main->restart;
($errors) = ($main->psql('postgres', 'ALTER EXTENSION stacksaga UPDATE'))[2];
like($errors, qr/needs its library/, 'also where one node has not been restarted');
is($_->safe_psql('postgres', $is_here) =~ s/\|.*//r, $old, $_->name . ' has the version of before') for @nodes;

$cluster->worker(0)->restart;
$main->safe_psql('postgres', 'ALTER EXTENSION stacksaga UPDATE');
my ($new) = split /\|/, $main->safe_psql('postgres', $is_here);
isnt($new, $old, "from $old to $new");
is($_->safe_psql('postgres', $is_here), "$new|$new", $_->name . ' is updated') for @nodes;
for my $node (@nodes)
{
	is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE a) FROM (
		SELECT stacksaga.accept_message('c', i::text) AS a FROM generate_series(1, 100) AS i) AS m}), 0, $node->name . ' knows what was accepted');
}
is($main->safe_psql('postgres', 'SELECT severity, problem FROM stacksaga.citus_check()'), '', 'the check finds nothing');
# A node that joins later gets the new version, and what is distributed.
is($cluster->add_worker->safe_psql('postgres', q{SELECT stacksaga.accept_message('c', '1')}), 'f', 'a new node knows it as well');
$main->safe_psql('postgres', 'SELECT stacksaga.citus_disable(); DROP EXTENSION stacksaga CASCADE');
done_testing();
