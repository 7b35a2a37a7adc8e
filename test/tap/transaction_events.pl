# The users of the ends of transactions run at each event in the order of their table, and the table
# of the extension is called only in sessions that use it. test/module/table.cpp has users that
# write down when they run.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 2\n");
$node->start;
$node->safe_psql('postgres', q{
	CREATE FUNCTION note_events() RETURNS void LANGUAGE c AS 'stacksaga_testing', 'stacksaga_note_events';
	CREATE FUNCTION events() RETURNS text LANGUAGE c AS 'stacksaga_testing', 'stacksaga_events';
	CREATE TABLE written (number integer PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)});
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SELECT note_events()');

# What runs while the statements do, each line as "USER EVENT LEVEL"; the reading itself is a transaction.
sub runs
{
	my ($statements, $expected, $test) = @_;
	$session->query('SELECT events()');
	$session->query($statements);
	my $events = $session->query('SELECT events()');
	$events =~ s/^a before_commit\nb before_commit\na at_commit\na at_end\nb at_commit\nb at_end\n//
	  or die "the reading before is not among the events: $events";
	return is($events =~ s/\s+\z//r, join("\n", @$expected), $test);
}
my @commit = ('a before_commit', 'b before_commit', 'a at_commit', 'a at_end', 'b at_commit', 'b at_end');
my @abort = ('a at_abort', 'a at_end', 'b at_abort', 'b at_end');

runs('BEGIN; INSERT INTO written VALUES (1); COMMIT', [@commit], 'a commit');
runs('BEGIN; INSERT INTO written VALUES (2); ROLLBACK', [@abort], 'a rollback');
runs('BEGIN; INSERT INTO written VALUES (1); COMMIT', [@abort],
	'a commit that fails on a deferred constraint, before anything runs');
runs("BEGIN; INSERT INTO written VALUES (3); PREPARE TRANSACTION 'p'",
	[ 'a before_prepare', 'b before_prepare', 'a at_prepare', 'a at_end', 'b at_prepare', 'b at_end' ], 'PREPARE TRANSACTION');
runs("COMMIT PREPARED 'p'", [@commit], 'COMMIT PREPARED is a transaction of its own');
runs('BEGIN; SAVEPOINT s; SAVEPOINT t; RELEASE t; ROLLBACK TO s; COMMIT',
	[ 'a at_release 3', 'b at_release 3', 'a at_rollback 2', 'b at_rollback 2', 'a at_release 2', 'b at_release 2', @commit ],
	'savepoints: released, rolled back, released by the commit');
$session->quit;
$node->stop;
done_testing();
