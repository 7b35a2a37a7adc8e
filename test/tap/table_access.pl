# Direct access to tables (extension/pg/table/table.hpp): it does what SQL does, it notices what makes a
# table unfit for it, and it writes rows and indexes as PostgreSQL does. table_sessions.pl has what several
# sessions do at once, test/module/thing.sql the table.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nautovacuum = off\n");
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

# The same row numbers are in each partition: what is removed of one partition stays in the other.
is($node->safe_psql('partitioned', q{
		TRUNCATE stacksaga.idempotency_key;
		SELECT count(stacksaga.idempotency_finish('expired', n::text, b.lease))
		  FROM generate_series(1, 20) n, stacksaga.idempotency_begin('expired', n::text) b;
		SET stacksaga.clock_offset = '1 year';
		SELECT stacksaga.expire_dedupe(1);
		SELECT count(*), count(DISTINCT tableoid) FROM stacksaga.idempotency_key;
		SELECT stacksaga.expire_dedupe(100);
		SELECT count(*) FROM stacksaga.idempotency_key}),
	"20\n1\n19|2\n19\n0", 'partitioned: expired keys are removed, and no others');

# What the tests of idempotency keys print in a database, by test.
sub output_of_tests
{
	my ($database) = @_;
	my %output_of;
	# dedupe_keys counts the updates of one table that stay in their pages.
	for my $test ($database eq 'partitioned' ? () : 'dedupe_keys', 'dedupe_forget', 'dedupe_ladder', 'dedupe_refused')
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

# A row that everybody sees at once has all its index entries before: one that an index refuses is not there.
$node->safe_psql('postgres', q{BEGIN; SELECT access.insert_visible(thing(900, note => 'seen')); ROLLBACK});
my $whole_table = q{SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
	SELECT count(*) FROM stacksaga.thing WHERE note ~ 'seen'};
is($node->safe_psql('postgres', $whole_table), 1, 'a row that is seen at once outlives its transaction');
my (undef, undef, $refusal) = $node->psql('postgres', q{SELECT access.insert_visible(thing(901, note => 'seen'))});
like($refusal, qr/duplicate key value/, 'another one is refused by the last of its indexes');
is($node->safe_psql('postgres', $whole_table), 1, 'and is not there');
$node->safe_psql('postgres', q{BEGIN; SELECT access.insert_visible(thing(902, note => 'unseen', payload => to_jsonb(
	(SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 200))))); ROLLBACK; REINDEX TABLE stacksaga.thing});
is($node->safe_psql('postgres', q{SELECT length(payload::text) FROM stacksaga.thing WHERE id = 902}), 7202,
	'a large one is there with all that it has');

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
