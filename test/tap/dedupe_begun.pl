# Keys that are begun and not written yet, where one session does not show it: PREPARE TRANSACTION, the
# extension dropped before the commit, and what other sessions may do to the table meanwhile.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 4\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE ROLE service LOGIN;
	SELECT stacksaga.grant_usage('service', 'service');
	CREATE TABLE effect (key text);
});

# What a session of the service is answered: the outcome, or its SQLSTATE.
sub begins
{
	my ($key, $options) = @_;
	my ($status, $output, $errors) = $node->psql('postgres', "\\set VERBOSITY sqlstate
		SELECT concat_ws(' ', outcome, attempt, response) FROM stacksaga.idempotency_begin('begun', '$key'" .
		($options // '') . ')', extra_params => [ '-U', 'service' ]);
	return $status == 0 ? $output : $errors =~ /ERROR:\s+(\w{5})/ ? $1 : $errors;
}

sub finish
{
	my ($key) = @_;
	return "SELECT stacksaga.idempotency_finish('begun', '$key', :lease, '\"done\"');";
}

sub begin
{
	my ($key) = @_;
	return "SELECT lease FROM stacksaga.idempotency_begin('begun', '$key') \\gset\n";
}

sub rows
{
	return $node->safe_psql('postgres', q{
		SELECT string_agg(key || CASE WHEN completed_at IS NULL THEN ' open' ELSE ' done' END, ', ' ORDER BY key)
		  FROM stacksaga.idempotency_key});
}

# A prepared transaction keeps the key from others, also over a crash, and leaves it as a committed one would.
for my $end ('COMMIT', 'ROLLBACK')
{
	$node->safe_psql('postgres', 'BEGIN;' . begin("open $end") . "PREPARE TRANSACTION 'open'");
	$node->safe_psql('postgres', 'BEGIN;' . begin("done $end") . "SAVEPOINT s;" . finish("done $end") .
		"RELEASE s; INSERT INTO effect VALUES ('$end'); PREPARE TRANSACTION 'done'");
	is(begins("open $end"), 'SR409', "$end: a prepared begin holds its key");
	is(begins("done $end"), 'SR409', "$end: and so does a prepared finish");
	$node->stop('immediate');
	$node->start;
	is(begins("open $end"), 'SR409', "$end: after a crash it still holds its key");
	$node->safe_psql('postgres', "$end PREPARED 'open'");
	$node->safe_psql('postgres', "$end PREPARED 'done'");
	my $committed = $end eq 'COMMIT';
	is(begins("open $end"), $committed ? 'SR409' : 'new 1', "$end: a begin that was prepared");
	is(begins("done $end"), $committed ? 'replay 1 "done"' : 'new 1', "$end: a finish that was prepared");
}
# The session that prepared it begins the next transaction with nothing in mind.
$node->safe_psql('postgres', 'BEGIN;' . begin('first') . "PREPARE TRANSACTION 'first'; BEGIN;" . begin('second') .
	finish('second') . 'COMMIT;');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'first'");
is(begins('first') . ', ' . begins('second'), 'new 1, replay 1 "done"', 'what is prepared belongs to its transaction alone');

# A session that waits for the lock looks at the key again when it has it.
$node->safe_psql('postgres', 'TRUNCATE stacksaga.idempotency_key');
my $holder = $node->background_psql('postgres', on_error_stop => 0);
my $other = $node->background_psql('postgres', on_error_stop => 0);
$holder->query_safe('BEGIN;' . begin('waited for'));
$other->{stdin} .= "SELECT concat_ws(' ', outcome, response) FROM stacksaga.idempotency_begin('begun', 'waited for',
	on_locked => 'wait');\n\\echo it has waited\n";
$other->{run}->pump_nb;
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'userlock' AND NOT granted")
  or die 'nobody waits for the key';
$holder->query_safe(finish('waited for') . 'COMMIT;');
like($other->query('SELECT 1'), qr/replay "done"\s.*it has waited/s, 'who has waited for the key replays');

# Until its row is written nobody adds what would change how that is done; who may, finds it done through SQL.
$holder->query_safe('SET ROLE service; BEGIN;' . begin('kept'));
for my $change (
	'CREATE TRIGGER own BEFORE INSERT ON stacksaga.idempotency_key FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()',
	'CREATE INDEX own ON stacksaga.idempotency_key (key)',
	'TRUNCATE stacksaga.idempotency_key')
{
	my (undef, undef, $errors) = $node->psql('postgres', "SET lock_timeout = '10ms'; $change");
	like($errors, qr/lock timeout/, "not meanwhile: $change");
}
$node->safe_psql('postgres', 'CREATE TABLE child () INHERITS (stacksaga.idempotency_key)');
$holder->query_safe('COMMIT');
is(rows(), 'kept open, waited for done', 'a service commits a key of a table that has a child by now');
$holder->query_safe('BEGIN;' . begin('through SQL') . 'SAVEPOINT s;' . finish('through SQL') . 'ROLLBACK TO s;' .
	finish('through SQL') . 'COMMIT');
is(rows(), 'kept open, through SQL done, waited for done', 'and finishes one');
$node->safe_psql('postgres', 'DROP TABLE child');
$holder->quit;
$other->quit;

# Without the extension, and with a new one, there is nothing to write.
$node->safe_psql('postgres', 'BEGIN;' . begin('dropped') . 'DROP EXTENSION stacksaga; COMMIT;');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'stacksaga'"), '0', 'it is dropped');
$node->safe_psql('postgres', 'CREATE EXTENSION stacksaga; BEGIN;' . begin('dropped') .
	"DO 'BEGIN DROP EXTENSION stacksaga; END'; CREATE EXTENSION stacksaga; COMMIT;");
is(rows(), '', 'what was begun before goes with the extension');

$node->stop;
done_testing();
