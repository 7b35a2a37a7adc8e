# On Citus: a table that it manages keeps its rows in shards, on other nodes too, and its own pages are empty. The
# extension notices that, does not read the pages, and makes its plans anew. Runs where Citus is installed.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCitus;
use Test::More;

plan skip_all => 'its module is installed by test/tools/tap' if !defined $ENV{STACKSAGA_DESTDIR};
StacksagaCitus::skip_without_citus();
my $cluster = StacksagaCitus->new(1);
my $main = $cluster->coordinator;
$main->safe_psql('postgres', slurp_file('test/module/thing.sql'));
$main->safe_psql('postgres', q{
	CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'});

# A unique index without the token is one that Citus refuses.
my $distribute = q{DROP INDEX stacksaga.thing_note;
	SELECT create_distributed_table('stacksaga.thing', 'token', shard_count => 4) \g /dev/null
};
my $obstacle = "SELECT access.obstacle();\n";
my $access = q{
	SELECT access.insert_if_absent(thing(i, 10)) FROM generate_series(1, 3) AS i;
	SELECT access.insert_if_absent(thing(2, 20));
	SELECT changed(thing(2), thing(0, 30), '{5}'), removed(thing(3));
	SELECT found(0, thing(i), 4) FROM generate_series(1, 3) AS i;
	SELECT access.remove(thing(i), 'update', NULL) FROM generate_series(1, 2) AS i;
};
my $other = $main->background_psql('postgres');
my $session = $main->background_psql('postgres');
is($other->query_safe($obstacle), '', 'a table of this node is accessed directly');
my $direct = $session->query_safe($access);
is($session->query_safe("BEGIN;\n$distribute;\n$obstacle ROLLBACK;\n$obstacle"), "Citus manages it\n",
	'the session that distributes it notices, also that it is rolled back');

# Statements of this session that have plans, as they are without Citus.
$main->safe_psql('postgres', 'CREATE TRIGGER keep BEFORE INSERT ON stacksaga.thing FOR EACH ROW EXECUTE FUNCTION keep()');
is($session->query_safe($obstacle), 'it has a trigger', 'a table of this node that has a trigger');
is($session->query_safe($access), $direct, 'is accessed by statements');
$main->safe_psql('postgres', 'DROP TRIGGER keep ON stacksaga.thing');
$main->safe_psql('postgres', $distribute);
is($other->query_safe($obstacle), 'Citus manages it', 'another session notices that it is distributed');
is($session->query_safe($access), $direct, 'statements that had plans get others, and do the same');
is($other->query_safe($access), $direct, 'so do those of a session that had none');
$session->query_safe(q{SELECT access.insert_if_absent(thing(i, 10)) FROM generate_series(1, 3) AS i});
is($main->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.thing'), 3, 'Citus finds the rows');
is($main->safe_psql('postgres', q{
	SELECT sum(result::int) FROM run_command_on_shards('stacksaga.thing', 'SELECT count(*) FROM %s')}), 3, 'which are in shards');
$_->quit for $session, $other;
done_testing();
