# 64 sessions on one key, one message, one producer, one value, all at the same instant.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $clients = 64;
my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_connections = 80\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE gate ();
	CREATE TABLE effect (what text);
	CREATE TABLE outcome (outcome text);
	CREATE SEQUENCE tries;
	CREATE FUNCTION once(on_locked text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		RETURN outcome FROM stacksaga.idempotency_begin('sessions', 'error', on_locked => on_locked);
	EXCEPTION WHEN SQLSTATE 'SR409' THEN
		RETURN SQLSTATE;
	END $$;
	CREATE FUNCTION increment() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		seen record;
	BEGIN
		LOOP
			SELECT * INTO seen FROM stacksaga.read_value('sessions', 'counter');
			BEGIN
				RETURN stacksaga.compare_and_set('sessions', 'counter', seen.version,
					to_jsonb(coalesce(seen.value::int, 0) + 1));
			EXCEPTION WHEN SQLSTATE 'SG412' THEN -- somebody was faster
			END;
		END LOOP;
	END $$;
});

# Every client runs the script once; they are let go together, when all of them are there. Returns
# how often each outcome was, by outcome.
my $scripts = 0;
sub together
{
	my ($script) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/together" . ++$scripts;
	PostgreSQL::Test::Utils::append_to_file($file, "SELECT count(*) FROM gate;\n$script");
	$node->safe_psql('postgres', 'TRUNCATE outcome, effect');
	my $keeper = $node->background_psql('postgres');
	$keeper->query_safe('BEGIN; LOCK TABLE gate');
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my $output = '';
	my $run = IPC::Run::start(
		[ 'pgbench', '-n', '-c', $clients, '-j', 2, '-t', 1, '-f', $file, 'postgres' ],
		'>', \$output, '2>&1', IPC::Run::timeout(180));
	$node->poll_query_until('postgres', qq{
		SELECT count(*) = $clients FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted})
	  or die 'the clients do not come to the gate';
	$keeper->query_safe('COMMIT');
	$keeper->quit;
	$run->finish;
	like($output, qr/number of transactions actually processed: $clients\/$clients\b/,
		'every client got an answer');
	return $node->safe_psql('postgres',
		q{SELECT string_agg(n || ' ' || outcome, ', ' ORDER BY outcome)
		  FROM (SELECT outcome, count(*) AS n FROM outcome GROUP BY outcome) AS o});
}

# All wait for the one that does it; the first five of those roll back.
is(together(q{
BEGIN;
SELECT (outcome = 'new')::int AS is_new, coalesce(lease, 0) AS lease FROM stacksaga.idempotency_begin('sessions', 'wait', '1', on_locked => 'wait') \gset
\if :is_new
INSERT INTO effect VALUES ('wait');
SELECT (nextval('tries') <= 5)::int AS fails \gset
\if :fails
ROLLBACK;
\else
INSERT INTO outcome VALUES ('new');
SELECT stacksaga.idempotency_finish('sessions', 'wait', :lease, '1');
COMMIT;
\endif
\else
INSERT INTO outcome VALUES ('replay');
COMMIT;
\endif
}), '1 new, 58 replay', 'after each rollback one of those who wait does it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), 1, 'one effect');

# Nobody waits: as long as the holder is open, all the others are told.
my $holder = $node->background_psql('postgres');
my $lease = $holder->query_safe(
	"BEGIN; SELECT lease FROM stacksaga.idempotency_begin('sessions', 'error')");
my $once = "INSERT INTO outcome SELECT once('error');";
is(together($once), '64 SR409', 'while the holder is open, everybody else is told at once');
$holder->query_safe("SELECT stacksaga.idempotency_finish('sessions', 'error', $lease); COMMIT");
$holder->quit;
is(together($once), '64 replay', 'and everybody gets the answer when it has committed');

is(together(q{
BEGIN;
INSERT INTO outcome SELECT stacksaga.accept_message('sessions', 'm');
COMMIT;
}), '63 false, 1 true', 'one session accepts a message');

# Everybody sends the same twenty messages of one producer.
my $sends = join '', map { "INSERT INTO outcome SELECT stacksaga.accept_sequence('sessions', 1, $_);\n" } 1 .. 20;
is(together($sends), sprintf('20 accepted, %d duplicate', 20 * ($clients - 1)), 'each message of a sequence counts once');

is(together("INSERT INTO outcome SELECT 'version ' || count(increment());"), '64 version 1', 'everybody increments a value');
is($node->safe_psql('postgres', q{SELECT * FROM stacksaga.read_value('sessions', 'counter')}),
	"$clients|$clients", 'no update is lost: as many versions as successes');

$node->stop;
done_testing();
