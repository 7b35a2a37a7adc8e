# Direct access to tables (extension/pg/table/table.hpp) by several sessions: locks, snapshots, inserts of one
# row, SERIALIZABLE, and a table that is changed meanwhile. test/module/thing.sql has the table.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
$node->safe_psql('postgres', slurp_file('test/module/thing.sql'));
$node->safe_psql('postgres', q{
	CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE FUNCTION wide(seed integer) RETURNS jsonb LANGUAGE sql AS $$
		SELECT to_jsonb(string_agg(md5((seed * 1000 + i)::text), '')) FROM generate_series(1, 2000) AS i
	$$;
});

sub sql
{
	my ($statement) = @_;
	return $node->safe_psql('postgres', $statement);
}

my $other = $node->background_psql('postgres');
my $same = $node->background_psql('postgres');

# Under a snapshot that is older than the row.
my $create_trigger = 'CREATE TRIGGER keep BEFORE INSERT OR UPDATE ON stacksaga.thing FOR EACH ROW EXECUTE FUNCTION keep()';
for my $way ('directly', 'through SQL')
{
	sql($create_trigger) if $way eq 'through SQL';
	sql('TRUNCATE stacksaga.thing; SELECT access.insert(ARRAY[thing(1), thing(2), thing(3), thing(4)])');
	my $refused = '40001: could not serialize access due to concurrent update';
	my $old = sub {
		my ($statement) = @_;
		$statement =~ s/'/''/g;
		return $other->query_safe("SELECT outcome('SELECT $statement')");
	};
	$other->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM stacksaga.thing');
	sql(q{SELECT changed(thing(1), thing(0, 9), '{5}'), removed(thing(3)), access.insert_if_absent(thing(5))});
	is($old->("found(0, thing(1), 4)"), '1 act 9', "$way: reads see what is newer than the snapshot");
	is($old->("found(0, thing(1), 4, lock => 'update')"), $refused, "$way: a lock on a row that has changed");
	is($old->("changed(thing(1), thing(0), '{5}')"), $refused, "$way: an update of it");
	is($old->("changed(thing(1), thing(0), '{5}', 'none')"), $refused, "$way: without a lock");
	is($old->("removed(thing(1), 'none')"), $refused, "$way: a delete");
	is($old->("changed(thing(5), thing(0), '{5}')"), $refused, "$way: an update of a newer row");
	is($old->("access.insert_if_absent(thing(5))"), $refused, "$way: an insert beside it");
	is($old->("removed(thing(3))"), 'null', "$way: a row that is gone is gone");
	is($old->("changed(thing(2), thing(0, 8), '{5}')"), 'true', "$way: another row is free");
	is($old->("changed(thing(2), thing(0, 7), '{5}')"), 'true', "$way: also after that");
	is($old->("access.insert_if_absent(thing(2))"), 'false', "$way: own rows are seen");
	$other->query_safe('COMMIT');
	is(sql('SELECT found(0, thing(2), 4)'), '2 act 7', "$way: it is written");
	sql('DROP TRIGGER keep ON stacksaga.thing') if $way eq 'through SQL';
}

# Sends a statement that waits for a lock, and returns when it does.
sub wait_in
{
	my ($session, $statement) = @_;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_until(qr/sent/, "\\echo sent\n$statement;\n\\echo done\n");
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid")
	  or die 'it does not wait';
	return;
}
sub answer_of
{
	my ($session) = @_;
	my $answer = $session->query_until(qr/done/, '');
	$answer =~ s/\s*done\s*$//;
	$answer =~ s/^\s+//;
	return $answer;
}

# Two sessions on one row.
for my $way ('directly', 'through SQL')
{
	sql($create_trigger) if $way eq 'through SQL';
	sql(q{TRUNCATE stacksaga.thing; SELECT access.insert(ARRAY[thing(1, 1, 'q'), thing(2, 2, 'q'), thing(4, 4, 'q')])});
	$same->query_safe(q{BEGIN; SELECT changed(thing(1), thing(0, 5), '{5}')});
	is($other->query_safe(q{SELECT found(2, thing(0, queue => 'q'), 1, lock => 'update', skip => true)}),
		'2 act 2 q, 4 act 4 q', "$way: what is locked is skipped");
	is($other->query_safe(q{SELECT found(2, thing(0, queue => 'q'), 1, max_rows => 1, lock => 'no_key_update', skip => true)}),
		'2 act 2 q', "$way: and does not count");
	wait_in($other, q{SELECT changed(thing(1), thing(0, lease => 6), '{6}')});
	$same->query_safe('COMMIT');
	is(answer_of($other), 't', "$way: a lock waits");
	is(sql('SELECT found(0, thing(1), 4)'), '1 act 5 q 6', "$way: and finds the latest version");

	$same->query_safe(q{BEGIN; SELECT changed(thing(2), thing(0, 2, 'p'), '{8}')});
	wait_in($other, q{SELECT found(2, thing(0, queue => 'q'), 1, lock => 'update')});
	$same->query_safe('COMMIT');
	is(answer_of($other), '4 act 4 q, 1 act 5 q 6', "$way: a version that is not looked for any more is left out");

	$same->query_safe(q{BEGIN; SELECT changed(thing(4), thing(0, 5), '{5}')});
	wait_in($other, q{SELECT changed(thing(4), thing(0, 6), '{5}', 'none')});
	$same->query_safe('COMMIT');
	is(answer_of($other), 'f', "$way: an update without a lock fails when the row has changed");

	$same->query_safe(q{BEGIN; SELECT changed(thing(4), thing(0, 7), '{5}')});
	wait_in($other, q{SELECT changed(thing(4), thing(0, 8), '{5}', 'none')});
	$same->query_safe('ROLLBACK');
	is(answer_of($other), 't', "$way: and succeeds when that was rolled back");

	$same->query_safe(q{BEGIN; SELECT removed(thing(4))});
	wait_in($other, q{SELECT access.insert_if_absent(thing(4))});
	$same->query_safe('COMMIT');
	is(answer_of($other), 't', "$way: an insert waits for a delete");

	for my $case ([ 'COMMIT', 'false' ], [ 'ROLLBACK', 'false' ], [ 'COMMIT', 'true' ], [ 'ROLLBACK', 'true' ])
	{
		my ($end, $known) = @$case;
		$same->query_safe('BEGIN; SELECT access.insert(ARRAY[thing(9)])');
		wait_in($other, "SELECT access.insert_if_absent(thing(9), $known)");
		$same->query_safe($end);
		is(answer_of($other), $end eq 'COMMIT' ? 'f' : 't', "$way: an insert waits for another one and its $end");
		sql('DELETE FROM stacksaga.thing WHERE id = 9');
	}
	sql('DROP TRIGGER keep ON stacksaga.thing') if $way eq 'through SQL';
}

# Many sessions insert the same rows at once: each row is inserted by one of them.
sql('TRUNCATE stacksaga.thing; CREATE TABLE inserted (id bigint)');
my $race = "$PostgreSQL::Test::Utils::tmp_check/race";
append_to_file($race, q{
INSERT INTO inserted SELECT i FROM generate_series(1, 200) AS i WHERE access.insert_if_absent(thing(i), i % 2 = 0);
});
$node->PostgreSQL::Test::Cluster::command_ok(
	[ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 1, '-f', $race, 'postgres' ],
	'eight sessions insert the same two hundred rows');
is(sql('SELECT count(*), count(DISTINCT id) FROM inserted'), '200|200', 'each row is inserted once');
is(sql('SELECT count(*) FROM stacksaga.thing'), '200', 'and is there once');

# In a parallel query nothing is written, also by a function that is wrongly said to be safe there.
sql(q{
	CREATE TABLE many AS SELECT generate_series(1, 1000) AS id;
	CREATE FUNCTION one() RETURNS stacksaga.thing LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN thing(1); END';
	ALTER FUNCTION access.insert_if_absent(stacksaga.thing, boolean) PARALLEL SAFE;
});
$node->raises_sqlstate('postgres', q{
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SELECT count(*) FROM many WHERE access.insert_if_absent(one());}, '25000');
sql('ALTER FUNCTION access.insert_if_absent(stacksaga.thing, boolean) PARALLEL UNSAFE');

# SERIALIZABLE: each of two sessions writes what the other has read.
sub serializable
{
	my ($reads, $writes) = @_;
	my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
	$_->query('BEGIN ISOLATION LEVEL SERIALIZABLE') for @sessions;
	$sessions[$_]->query("SELECT $reads->[$_]") for 0 .. 1;
	$sessions[$_]->query("SELECT $writes->[$_]") for 0 .. 1;
	$_->query('COMMIT') for @sessions;
	my $errors = join '', map { $_->{stderr} } @sessions;
	$_->quit for @sessions;
	return $errors;
}
my $conflict = qr/could not serialize access due to read\/write dependencies/;
sql('TRUNCATE stacksaga.thing; SELECT access.insert(ARRAY[thing(1), thing(2)]); SELECT access.insert(array_agg(thing(i))) FROM generate_series(1000, 9000) AS i; ANALYZE stacksaga.thing');
like(serializable([ 'found(0, thing(1), 4)', 'found(0, thing(2), 4)' ],
		[ q{changed(thing(2), thing(0, 1), '{5}')}, q{changed(thing(1), thing(0, 1), '{5}')} ]),
	$conflict, 'SERIALIZABLE: updates of rows that were read');
like(serializable([ 'found(0, thing(500), 4)', 'found(0, thing(501), 4)' ],
		[ 'access.insert_if_absent(thing(501))', 'access.insert_if_absent(thing(500))' ]),
	$conflict, 'SERIALIZABLE: inserts of rows that were looked for');
like(serializable([ 'found(0, thing(1), 4)', 'found(0, thing(2), 4)' ], [ 'removed(thing(2))', 'removed(thing(1))' ]),
	$conflict, 'SERIALIZABLE: deletes of rows that were read');
is(serializable([ 'found(0, thing(1000), 4)', 'found(0, thing(9000), 4)' ],
		[ q{changed(thing(1000), thing(0, 1), '{5}')}, q{changed(thing(9000), thing(0, 1), '{5}')} ]),
	'', 'SERIALIZABLE: rows far apart do not meet');

# The same operations of eight sessions on few rows, in every isolation level, while the table is
# changed so that it is accessed now directly and now through SQL, and its indexes are replaced.
sql(q{
	CREATE FUNCTION step() RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		i bigint := floor(random() * 40); what integer := floor(random() * 9); new stacksaga.thing;
	BEGIN
		new := thing(i, floor(random() * 50)::int, CASE WHEN random() < 0.6 THEN 'q' || i % 4 END,
			CASE WHEN random() < 0.2 THEN 'note ' || floor(random() * 30) END,
			CASE WHEN random() < 0.1 THEN wide(1) ELSE to_jsonb(random()) END,
			CASE WHEN random() < 0.4 THEN i END, random() < 0.3);
		CASE what
			WHEN 0, 1 THEN RETURN access.insert_if_absent(new, random() < 0.5);
			WHEN 2 THEN RETURN removed(new, CASE WHEN random() < 0.5 THEN 'none' ELSE 'update' END);
			WHEN 3 THEN RETURN changed(new, new, '{10}', CASE WHEN random() < 0.5 THEN 'none' ELSE 'no_key_update' END);
			WHEN 4 THEN RETURN changed(new, new, '{6,7}', 'none');
			WHEN 5 THEN RETURN changed(new, new, '{5,6,7,8,9,10}', 'update');
			WHEN 6 THEN RETURN found(2, thing(0, queue => 'q' || i % 4), 1, max_rows => 3, lock => 'update', skip => true);
			WHEN 7 THEN RETURN found(1, thing(i), 1, 0, 20, max_rows => 3, lock => 'no_key_update');
			ELSE RETURN found(0, new, 4, lock => 'update');
		END CASE;
	EXCEPTION WHEN unique_violation OR serialization_failure OR deadlock_detected THEN
		RETURN SQLSTATE;
	END $$;
});
# A COMMIT may fail in SERIALIZABLE, and pgbench tries again since 15.
my @levels = ('READ COMMITTED', 'REPEATABLE READ', $node->major >= 15 ? 'SERIALIZABLE' : ());
my @scripts;
for my $level (@levels)
{
	push @scripts, "$PostgreSQL::Test::Utils::tmp_check/steps" . @scripts;
	append_to_file($scripts[-1], "BEGIN ISOLATION LEVEL $level; SELECT step(); SELECT step(); COMMIT;\n");
}
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGOPTIONS} = '-c deadlock_timeout=20ms';
	my $output = '';
	my $steps = IPC::Run::start([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 400,
			@levels == 3 ? ('--max-tries', 100) : (), (map { ('-f', $_) } @scripts), 'postgres' ], '>', \$output, '2>&1', IPC::Run::timeout(180));
	for (1 .. 5)
	{
		sql($create_trigger);
		sql('REINDEX INDEX CONCURRENTLY stacksaga.thing_for_workers');
		sql('DROP TRIGGER keep ON stacksaga.thing');
		sql('CREATE INDEX CONCURRENTLY own ON stacksaga.thing (due_at, id)');
		sql('VACUUM stacksaga.thing');
		sql('DROP INDEX CONCURRENTLY stacksaga.own');
		sql('REINDEX INDEX CONCURRENTLY stacksaga.thing_pkey');
	}
	$steps->finish;
	like($output, qr/number of transactions actually processed: 3200\/3200\b/, 'no session fails while the table is changed');
	unlike($output, qr/aborted/, 'none of their transactions is given up');
}
indexes_are_whole('many sessions');
is(sql(q{SELECT count(*) FROM verify_heapam('stacksaga.thing')}), '0', 'many sessions: the table is whole');

sub indexes_are_whole
{
	my ($what) = @_;
	is(sql(q{SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = 'stacksaga.thing'::regclass}),
		"\n\n\n", "$what: every index is whole and holds every row that it should");
	for my $index ([ 'thing_for_workers', 'queue IS NULL OR verifying OR lease IS NOT NULL', 'token' ],
		[ 'thing_for_services', 'queue IS NOT NULL AND NOT verifying', 'queue' ],
		[ 'thing_note', 'note IS NOT NULL', 'note' ])
	{
		my ($name, $predicate, $order) = @$index;
		my $held = "SELECT count(*) FROM (SELECT FROM stacksaga.thing WHERE $predicate ORDER BY $order) AS held";
		my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';
		like(sql("$by_index EXPLAIN $held"), qr/$name/, "$what: $name is read from end to end");
		is(sql("$by_index $held"), sql("SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; $held"),
			"$what: and has no row too many");
	}
	return;
}

$other->quit;
$same->quit;
$node->stop;
done_testing();
