# Direct access to tables (extension/pg/table.hpp): it does what SQL does, it notices what makes a
# table unfit for it, and it keeps the rules of transactions. test/table/thing.sql has the table.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

plan skip_all => 'its module is installed by test/tools/tap' if !defined $ENV{STACKSAGA_DESTDIR};

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nautovacuum = off\n");
$node->start;
$node->create_extension('postgres');
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
$node->safe_psql('postgres', slurp_file('test/table/thing.sql'));
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

# Every operation, and what it returns.
my $script = q{
	TRUNCATE stacksaga.thing;
	SELECT access.insert(ARRAY[thing(1, 10), thing(2, 20, 'q'), thing(3, 30, 'q', 'three'),
		thing(4, 40, 'q', lease => 7), thing(5, 50, 'p'), thing(7, 5, 'q', verifying => true)]);
	SELECT access.insert(array_agg(thing(i, 1000 - i))) FROM generate_series(100, 399) AS i;
	SELECT access.insert('{}');
	SELECT found(0, thing(3), 4), found(0, thing(99), 4) IS NULL, found(0, thing(3), 1);
	SELECT found(1, thing(1), 1, upto => 600), found(1, thing(1), 1, 10, 602, false);
	SELECT found(1, thing(1), 1, 10, 603), found(1, thing(2), 1, max_rows => 2), found(1, thing(5), 2);
	SELECT found(2, thing(0, queue => 'q'), 1), found(2, thing(0, queue => 'q'), 1, max_rows => 1);
	SELECT found(2, thing(0), 1) IS NULL, found(3, thing(0, note => 'three'), 1);
	SELECT access.insert_if_absent(thing(1, 99)), access.insert_if_absent(thing(6, 60, 'q')),
	       access.insert_if_absent(thing(1, 99, direction => 'compensate'));
	SELECT access.insert_if_absent(thing(1, 98), true), access.insert_if_absent(thing(8, 98), true), removed(thing(8));
	SELECT outcome('SELECT access.insert(ARRAY[thing(1)])');
	SELECT outcome('SELECT access.insert(ARRAY[thing(8, note => ''three'')])');
	SELECT outcome('SELECT access.insert_if_absent(thing(8, note => ''three''))');
	SELECT outcome('SELECT access.insert(ARRAY[thing(8), thing(NULL)])');
	SELECT outcome('SELECT changed(thing(6), thing(0, note => ''three''), ''{9}'')');
	SELECT outcome('SELECT changed(thing(6), thing(0), ''{1,2,3,7}'')'), found(0, thing(0), 4);
	SELECT changed(thing(0), thing(6), '{1,2}'), found(0, thing(6), 4);
	SELECT changed(thing(1), thing(0, 15, payload => '[1]'), '{5,10}'), found(0, thing(1), 4);
	SELECT changed(thing(2), thing(0, lease => 5), '{6}'), found(1, thing(2), 1, 0, 100);
	SELECT changed(thing(2), thing(0), '{8}'), found(2, thing(0, queue => 'q'), 1);
	SELECT changed(thing(7), thing(0), '{7}', 'none'), found(2, thing(0, queue => 'q'), 1);
	SELECT changed(thing(99), thing(0), '{7}') IS NULL;
	SELECT changed(thing(5), thing(0, 51), '{5}', 'none', 'UPDATE stacksaga.thing SET due_at = to_timestamp(52) WHERE id = 5');
	SELECT changed(thing(5), thing(0, 51), '{5}', 'none', 'DELETE FROM stacksaga.thing WHERE id = 5'), found(0, thing(5), 4);
	SELECT removed(thing(3)), removed(thing(3)) IS NULL, removed(thing(100), 'none'), found(3, thing(0, note => 'three'), 1) IS NULL;
	SELECT access.insert_if_absent(thing(3, 30, 'q', 'three'));
	SELECT count(*), sum(id), sum(extract(epoch FROM due_at)), sum(lease) FROM stacksaga.thing;
	BEGIN;
	SELECT access.insert(ARRAY[thing(500, 1, 'r')]), found(0, thing(500), 4);
	SAVEPOINT s;
	SELECT changed(thing(500), thing(0, 2), '{5}'), access.insert_if_absent(thing(501)), removed(thing(4));
	ROLLBACK TO s;
	SELECT found(0, thing(500), 4), found(0, thing(4), 4), access.insert_if_absent(thing(501));
	COMMIT;
	SELECT found(2, thing(0, queue => 'r'), 1), found(0, thing(501), 4);
	BEGIN READ ONLY;
	SELECT outcome('SELECT access.insert(ARRAY[thing(8)])'), outcome('SELECT access.insert_if_absent(thing(8))'),
	       outcome('SELECT removed(thing(1))'), outcome('SELECT removed(thing(1), ''none'')'),
	       outcome('SELECT changed(thing(1), thing(0), ''{8}'', ''none'')'),
	       outcome('SELECT changed(thing(1), thing(0), ''{8}'')'), found(0, thing(1), 4);
	COMMIT;
};

my $plain = sql($script);
is(sql('SELECT access.obstacle()'), '', 'the table is accessed directly');
like($plain, qr/23505: duplicate key value violates unique constraint "thing_pkey"/, 'a duplicate primary key raises 23505');
like($plain, qr/23505: duplicate key value violates unique constraint "thing_note"/, 'so does one of a partial index');
like($plain, qr/23502: null value in column "id"/, 'a null raises 23502');
like($plain, qr/25006: cannot execute INSERT in a read-only transaction/, 'a write in a read-only transaction raises 25006');
like($plain, qr/25006: cannot execute SELECT FOR UPDATE in a read-only transaction/, 'and so does a lock');

# Whatever makes the table unfit is noticed, by the session that does it and by others, and the same
# operations do the same through SQL.
my @obstacles = (
	[ 'a trigger', 'CREATE TRIGGER keep BEFORE INSERT OR UPDATE ON stacksaga.thing FOR EACH ROW EXECUTE FUNCTION keep()',
		'DROP TRIGGER keep ON stacksaga.thing', 'it has a trigger' ],
	[ 'an index', 'CREATE INDEX other ON stacksaga.thing (payload)', 'DROP INDEX stacksaga.other', 'it has other indexes' ],
	[ 'another predicate', 'DROP INDEX stacksaga.thing_for_workers; CREATE INDEX thing_for_workers ON stacksaga.thing (token, due_at)
		WHERE queue IS NULL OR verifying OR lease IS NULL OR lease IS NOT NULL',
		'DROP INDEX stacksaga.thing_for_workers; CREATE INDEX thing_for_workers ON stacksaga.thing (token, due_at)
		WHERE queue IS NULL OR verifying OR lease IS NOT NULL', 'an index has another predicate', 'other rows' ],
	[ 'another order', 'DROP INDEX stacksaga.thing_for_services; CREATE INDEX thing_for_services ON stacksaga.thing (queue, due_at DESC)
		WHERE queue IS NOT NULL AND NOT verifying',
		'DROP INDEX stacksaga.thing_for_services; CREATE INDEX thing_for_services ON stacksaga.thing (queue, due_at)
		WHERE queue IS NOT NULL AND NOT verifying', 'an index has other columns' ],
	[ 'an index of another name', 'ALTER INDEX stacksaga.thing_note RENAME TO note_thing', 'ALTER INDEX stacksaga.note_thing RENAME TO thing_note',
		'it has other indexes', 'other messages' ],
	[ 'a CHECK', 'ALTER TABLE stacksaga.thing ADD CHECK (id >= 0)', 'ALTER TABLE stacksaga.thing DROP CONSTRAINT thing_id_check', 'it has a CHECK' ],
	[ 'row-level security', 'ALTER TABLE stacksaga.thing ENABLE ROW LEVEL SECURITY', 'ALTER TABLE stacksaga.thing DISABLE ROW LEVEL SECURITY',
		'it has row-level security' ],
	[ 'a rule', 'CREATE RULE nothing AS ON DELETE TO stacksaga.thing WHERE OLD.id = -1 DO INSTEAD NOTHING', 'DROP RULE nothing ON stacksaga.thing',
		'it has rules' ],
	[ 'a nullable column', 'ALTER TABLE stacksaga.thing ALTER due_at DROP NOT NULL', 'ALTER TABLE stacksaga.thing ALTER due_at SET NOT NULL',
		'a column is, or is not, NOT NULL' ],
	[ 'a foreign key', 'CREATE TABLE owner (id bigint PRIMARY KEY); INSERT INTO owner SELECT generate_series(0, 1000); ALTER TABLE stacksaga.thing ADD CONSTRAINT owned FOREIGN KEY (id) REFERENCES owner',
		'ALTER TABLE stacksaga.thing DROP CONSTRAINT owned', 'it has a trigger' ],
);
my $other = $node->background_psql('postgres');
my $same = $node->background_psql('postgres');
for my $obstacle (@obstacles)
{
	my ($what, $make, $undo, $reason, $differs) = @$obstacle;
	sql('TRUNCATE stacksaga.thing');
	is($other->query_safe('SELECT access.obstacle()'), '', "$what: direct before");
	is($same->query_safe("SELECT access.obstacle(); BEGIN; $make; SELECT access.obstacle(); ROLLBACK; SELECT access.obstacle()"),
		"\n$reason\n", "$what: noticed by the session that makes it, also that it is rolled back");
	sql($make);
	is($other->query_safe('SELECT access.obstacle()'), $reason, "$what: noticed by another session");
	is($other->query_safe('SELECT access.insert_if_absent(thing(1)), found(0, thing(1), 4)'), 't|1 act 0', "$what: and it goes on");
	is(sql($script), $plain, "$what: the same through SQL") if !defined $differs;
	sql('TRUNCATE stacksaga.thing');
	sql($undo);
	is($other->query_safe('SELECT access.obstacle()'), '', "$what: direct after");
	is(sql($script), $plain, "$what: the same, directly again");
}
sql('CREATE TRIGGER thing_guard BEFORE INSERT ON stacksaga.thing FOR EACH ROW EXECUTE FUNCTION keep()');
is($other->query_safe('SELECT access.obstacle()'), '', 'a trigger that the description names is none');
sql('DROP TRIGGER thing_guard ON stacksaga.thing');

# While the table is kept open for a batch.
(my $steps = $script) =~ s/^\s*(TRUNCATE|BEGIN|COMMIT|SAVEPOINT|ROLLBACK).*?;\n//mg;
$steps =~ s/\t(SELECT .*?);\n/PERFORM print(\$q\$$1\$q\$);\n/gs;
sql(q{CREATE TABLE printed (n serial, line text);
	CREATE FUNCTION print(statement text) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		line text;
	BEGIN
		EXECUTE 'SELECT s::text FROM (' || statement || ') AS s' INTO line;
		INSERT INTO printed (line) VALUES (line);
	END $$});
my @kept;
for my $call ("DO \$do\$ BEGIN $steps END \$do\$", "SELECT access.batch(\$b\$DO \$do\$ BEGIN $steps END \$do\$\$b\$)")
{
	push @kept, sql("TRUNCATE stacksaga.thing, printed; $call; SELECT line FROM printed ORDER BY n");
}
like($kept[0], qr/23505.*23505/s, 'the operations have run in one transaction');
$kept[1] =~ s/^\n//;
is($kept[1], $kept[0], 'kept open: the same');
is($other->query_safe(q{SELECT outcome('SELECT access.batch(''ALTER TABLE stacksaga.thing ADD COLUMN own text'')')}),
	'55006: cannot ALTER TABLE "thing" because it is being used by active queries in this session',
	'kept open: it cannot be altered');
is($other->query_safe(q{
	SELECT outcome('SELECT access.batch(''SELECT 1 / 0'')');
	BEGIN; SAVEPOINT s;
	SELECT outcome('SELECT access.batch(''SELECT access.insert_if_absent(thing(77)), 1 / 0'')');
	ROLLBACK TO s;
	SELECT access.batch('SELECT outcome(''SELECT access.batch(''''SELECT 1 / 0'''')''), access.insert(ARRAY[thing(78)])');
	COMMIT;
	SELECT found(0, thing(77), 4) IS NULL, found(0, thing(78), 4);
	SELECT access.batch('SELECT removed(thing(78))');
	SELECT found(0, thing(78), 4) IS NULL}),
	"22012: division by zero\n22012: division by zero\n\nt|78 act 0\n\nt", 'kept open: errors close it');
is($other->query_safe(q{
	BEGIN;
	SELECT access.batch('CREATE TRIGGER keep BEFORE INSERT OR UPDATE ON stacksaga.thing FOR EACH ROW EXECUTE FUNCTION keep();
		SELECT access.insert(ARRAY[thing(79)]); CREATE TABLE why AS SELECT access.obstacle() AS obstacle');
	SELECT obstacle, access.obstacle() FROM why;
	ROLLBACK;
	SELECT access.obstacle()}), "\nit has a trigger|it has a trigger\n", 'kept open: a trigger is noticed');

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

# A prepared transaction keeps what was written, and its locks.
sql(q{TRUNCATE stacksaga.thing; SELECT access.insert(ARRAY[thing(1)])});
sql(q{BEGIN; SELECT changed(thing(1), thing(0, 3), '{5}'), access.insert_if_absent(thing(2)); PREPARE TRANSACTION 'things'});
is(sql(q{SELECT found(0, thing(1), 4), found(0, thing(1), 4, lock => 'update', skip => true), found(0, thing(2), 4)}),
	'1 act 0||', 'nothing of a prepared transaction is seen');
sql(q{COMMIT PREPARED 'things'});
is(sql('SELECT found(0, thing(1), 4), found(0, thing(2), 4)'), '1 act 3|2 act 0', 'until it commits');

# Values in TOAST stay where they are when other columns change.
sql('TRUNCATE stacksaga.thing; SELECT access.insert(ARRAY[thing(1, payload => wide(1))])');
my $toast = 'SELECT count(*), sum(length(chunk_data)), min(xmin::text::bigint) FROM ' .
  sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'stacksaga.thing'::regclass});
my $stored = sql($toast);
unlike($stored, qr/^0/, 'a large value lies in TOAST');
sql(q{SELECT changed(thing(1), thing(0, i), '{5}') FROM generate_series(1, 5) AS i; SELECT changed(thing(1), thing(0, lease => 1), '{6}')});
is(sql($toast), $stored, 'and is not written again');
is(sql('SELECT payload = wide(1) FROM access.find(0, thing(1), 4, NULL, NULL, true, 0, $$none$$, false)'), 't', 'it is read whole');
sql('SELECT changed(thing(1), thing(0, payload => wide(2)), $${10}$$); VACUUM stacksaga.thing');
is(sql('SELECT payload = wide(2) FROM stacksaga.thing'), 't', 'it is replaced');
is(sql("SELECT count(*) FROM ($toast) AS t, (SELECT 1) AS one"), '1', 'its storage is there');
is(sql(q{SELECT removed(thing(1)); VACUUM stacksaga.thing}) . '|' . (split /\|/, sql($toast))[0], 't|0', 'and goes with its row');

# Heap-only updates: what no index holds, and no predicate.
sub updates
{
	my ($columns) = @_;
	return sql(qq{
		TRUNCATE stacksaga.thing;
		SELECT access.insert(array_agg(thing(i))) FROM generate_series(1, 20) AS i;
		BEGIN;
		DO \$\$ BEGIN PERFORM changed(thing(i), thing(0, 7, payload => '1', note => i::text), '$columns') FROM generate_series(1, 20) AS i; END \$\$;
		SELECT pg_stat_get_xact_tuples_updated('stacksaga.thing'::regclass),
		       pg_stat_get_xact_tuples_hot_updated('stacksaga.thing'::regclass);
		COMMIT});
}
like(updates('{10}'), qr/^20\|20$/m, 'an update of a column without an index is heap-only');
like(updates('{5}'), qr/^20\|0$/m, 'one of a column with an index is not');
like(updates('{9,10}'), qr/^20\|0$/m, 'nor is one of several columns');
like(sql(q{
	BEGIN;
	SELECT found(0, thing(3), 4), found(1, thing(3), 1, max_rows => 2);
	SELECT pg_stat_get_xact_numscans('stacksaga.thing_pkey'::regclass), pg_stat_get_xact_numscans('stacksaga.thing_for_workers'::regclass);
	COMMIT}), qr/^1\|1$/m, 'scans of indexes are counted');

# A random mix of operations, rolled back now and then, beside the same in SQL on a copy: afterwards
# the rows are the same, and every index holds what it should.
sql(q{
	CREATE TABLE copied (LIKE stacksaga.thing INCLUDING DEFAULTS);
	CREATE PROCEDURE mix(operations integer) LANGUAGE plpgsql AS $$
	DECLARE
		i bigint; new stacksaga.thing; what integer; done boolean;
	BEGIN
		FOR n IN 1 .. operations LOOP
			i := floor(random() * 150);
			what := floor(random() * 8);
			new := thing(i, floor(random() * 50)::int, CASE WHEN random() < 0.6 THEN 'q' || i % 4 END,
				CASE WHEN random() < 0.3 THEN 'note ' || i END,
				CASE WHEN random() < 0.1 THEN wide(1) ELSE to_jsonb(n) END,
				CASE WHEN random() < 0.4 THEN n END, random() < 0.3);
			BEGIN
				IF what <= 2 THEN
					done := access.insert_if_absent(new, random() < 0.5);
					IF done THEN INSERT INTO copied SELECT new.*; END IF;
				ELSIF what = 3 THEN
					done := removed(new, CASE WHEN random() < 0.5 THEN 'none' ELSE 'update' END);
					DELETE FROM copied WHERE id = i;
				ELSIF what = 4 THEN
					done := changed(new, new, '{10}');
					UPDATE copied SET payload = new.payload WHERE id = i;
				ELSIF what = 5 THEN
					done := changed(new, new, '{6,7}', CASE WHEN random() < 0.5 THEN 'none' ELSE 'no_key_update' END);
					UPDATE copied SET lease = new.lease, verifying = new.verifying WHERE id = i;
				ELSE
					done := changed(new, new, '{5,6,7,8,9,10}', 'update');
					UPDATE copied SET due_at = new.due_at, lease = new.lease, verifying = new.verifying, queue = new.queue,
						note = new.note, payload = new.payload WHERE id = i;
				END IF;
				IF random() < 0.15 THEN
					RAISE 'rolled back';
				END IF;
			EXCEPTION WHEN raise_exception THEN
			END;
			IF n % 500 = 0 THEN
				COMMIT;
			END IF;
		END LOOP;
	END $$;
	TRUNCATE stacksaga.thing;
});
for my $seed (1 .. 4)
{
	sql("SELECT setseed(0.$seed); CALL mix(3000)");
	sql('VACUUM stacksaga.thing') if $seed == 2;
	is(sql(q{SELECT count(*) FROM ((TABLE stacksaga.thing EXCEPT TABLE copied) UNION ALL (TABLE copied EXCEPT TABLE stacksaga.thing)) AS differ}),
		'0', "seed $seed: the rows are those of SQL");
	indexes_are_whole("seed $seed");
}

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
my @levels = ('READ COMMITTED', 'REPEATABLE READ', $node->pg_version >= 15 ? 'SERIALIZABLE' : ());
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

# Idempotency keys: the regression tests print the same whatever has been done to their table.
my %changed = (
	direct => '',
	trigger => 'CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$;
		CREATE TRIGGER keep BEFORE INSERT OR UPDATE ON stacksaga.idempotency_key FOR EACH ROW EXECUTE FUNCTION keep()',
	index => 'CREATE INDEX own ON stacksaga.idempotency_key (scope, (length(key)))',
	dropped => 'ALTER TABLE stacksaga.idempotency_key ADD COLUMN own text; ALTER TABLE stacksaga.idempotency_key DROP COLUMN own',
	partitioned => 'ALTER TABLE stacksaga.idempotency_key RENAME TO old_key;
		CREATE TABLE stacksaga.idempotency_key (LIKE stacksaga.old_key) PARTITION BY HASH (token);
		ALTER TABLE stacksaga.idempotency_key ADD PRIMARY KEY (token, scope, key);
		CREATE TABLE stacksaga.key_0 PARTITION OF stacksaga.idempotency_key FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE stacksaga.key_1 PARTITION OF stacksaga.idempotency_key FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE INDEX key_sweep ON stacksaga.idempotency_key (sweep_at)',
);
my %printed;
for my $database (sort keys %changed)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->create_extension($database);
	$node->safe_psql($database, $changed{$database}) if $changed{$database} ne '';
	$printed{$database} = output_of_tests($database);
}

# What the tests of idempotency keys print in a database, by test.
sub output_of_tests
{
	my ($database) = @_;
	my %output_of;
	# dedupe_keys counts the updates of one table that stay in their pages.
	for my $test ($database eq 'partitioned' ? () : 'dedupe_keys', 'dedupe_ladder', 'dedupe_refused')
	{
		my ($output, $errors) = PostgreSQL::Test::Utils::run_command(
			[ 'psql', '-XaqA', '-f', "sql/$test.sql", '-d', $node->connstr($database) ]);
		$errors =~ s/^psql:sql\/$test.sql:\d+: //mg;
		$output_of{$test} = "$output\n$errors\n";
	}
	return \%output_of;
}
# The tables of the extension are what their descriptions say: no statement reads or writes them.
sub statements_on_keys
{
	my ($database) = @_;
	my (undef, $output, $errors) = $node->psql($database, q{
		LOAD 'auto_explain';
		SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on; SET auto_explain.log_level = notice;
		SELECT stacksaga.idempotency_finish('planned', 'k', lease) FROM stacksaga.idempotency_begin('planned', 'k');
		SELECT stacksaga.idempotency_release('planned', 'l', lease), stacksaga.idempotency_checkpoint('planned', 'l', lease, 'x')
		  FROM stacksaga.idempotency_begin('planned', 'l')});
	like($errors, qr/idempotency_finish/, "$database: statements are shown");
	return scalar(() = $errors =~ /(FROM|INTO|UPDATE) stacksaga\.idempotency_key/g);
}
is(statements_on_keys('direct'), 0, 'idempotency keys are accessed without a statement');
cmp_ok(statements_on_keys('trigger'), '>', 0, 'and by statements where their table has a trigger');

my $again = $node->background_psql('direct');
my $key_twice = q{SELECT outcome FROM stacksaga.idempotency_begin('again', 'k', '1'); SELECT key FROM stacksaga.idempotency_key WHERE scope = 'again'};
is($again->query_safe($key_twice), "new\nk", 'a session uses the extension');
$again->query_safe('SET client_min_messages = warning; DROP EXTENSION stacksaga CASCADE; CREATE EXTENSION stacksaga');
is($again->query_safe($key_twice), "new\nk", 'and another one of the name');
$again->quit;
like($printed{direct}{dedupe_keys}, qr/SG422/, 'the regression tests have run');
for my $database (grep { $_ ne 'direct' } sort keys %changed)
{
	for my $test (sort keys %{ $printed{$database} })
	{
		ok($printed{$database}{$test} eq $printed{direct}{$test}, "$test prints the same: $database")
		  or note $printed{$database}{$test};
	}
}

$other->quit;
$same->quit;
$node->stop;
done_testing();
