# The tables of sagas are accessed directly, and through SQL once somebody has changed one so that this
# would be wrong. Sagas of every kind come to the same either way.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('tables');
$node->init(worker_databases => ['postgres']);
$node->start;
$node->create_extension('postgres');

sub sql
{
	my ($statement) = @_;
	return $node->safe_psql('postgres', $statement);
}

sql(q{
	-- Large enough to lie in TOAST.
	CREATE FUNCTION text_of(lines int) RETURNS text LANGUAGE sql AS
		'SELECT string_agg(md5(i::text), NULL) FROM generate_series(1, lines) AS i';
	CREATE TABLE done (saga text, step text, direction text, results jsonb);
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF call.direction = 'act' AND call.input ->> call.step = 'never' THEN
			RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
		ELSIF call.direction = 'act' AND (call.input ->> call.step)::int >= call.attempt THEN
			RAISE EXCEPTION 'not now' USING ERRCODE = 'SR503';
		END IF;
		INSERT INTO done VALUES (call.saga, call.step, call.direction, call.results);
		RETURN jsonb_build_object('by', call.step, 'large', text_of((call.input ->> 'lines')::int), 'input', md5(call.input ->> 'pad'));
	END $$;
	CREATE FUNCTION step(name text, stage int DEFAULT NULL) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
		SELECT stacksaga.sql_step(name, 'act(stacksaga.step_call)', 'act(stacksaga.step_call)', stage => stage,
			retry => stacksaga.retry_policy(max_attempts => 4, initial_interval => '0'))
	$$;
	SELECT stacksaga.define_saga('sql', ARRAY[step('a'), step('b'), step('c')]),
	       stacksaga.define_saga('wide', ARRAY[step('a', 1), step('b', 2), step('c', 2), step('d', 3)]),
	       stacksaga.define_saga('service', ARRAY[step('a'), stacksaga.queue_step('q', 'queue', compensable => true,
			retry => stacksaga.retry_policy(initial_interval => '0')), step('z')]),
	       stacksaga.define_saga('queued', ARRAY[stacksaga.queue_step('q', 'only', compensable => true)]),
	       stacksaga.define_saga('signal', ARRAY[step('a'), stacksaga.signal_step('s', 'go', timeout => '1 hour'), step('z')]),
	       stacksaga.define_saga('timer', ARRAY[stacksaga.timer_step('t', '0'), step('z')]),
	       stacksaga.define_saga('parent', ARRAY[step('a'), stacksaga.child_step('child', 'sql'), step('z')]);
});

# Inputs by saga: what fails how often, and how large input and outputs are.
my $start = q{
	SELECT count(*) FROM (VALUES
		('sql', '{}'), ('sql', '{"b": 2}'), ('sql', '{"c": "never"}'), ('sql', '{"lines": 200}'), ('wide', '{"b": 1, "c": 2}'),
		('wide', '{"d": "never"}'), ('service', '{}'), ('service', '{"z": "never"}'), ('signal', '{}'),
		('signal', '{"z": "never"}'), ('timer', '{}'), ('parent', '{}'), ('parent', '{"c": "never"}'),
		('parent', '{"z": "never", "lines": 100}')) AS v(saga, input),
	LATERAL stacksaga.start_saga(saga, input::jsonb || jsonb_build_object('pad', text_of((input::jsonb ->> 'lines')::int)));
};
my $claim = q{FROM stacksaga.claim_steps('queue', 'service', 10) AS c};
my $live = q{SELECT count(*) FROM stacksaga.sagas WHERE status NOT IN ('completed', 'failed')};
my $result = q{
	SELECT v.saga, v.status, s.direction, s.failed_step, regexp_replace(s.error, '[0-9a-f-]{36}', 'id'), 
	       md5((SELECT jsonb_object_agg(e.step_no, e.output) FROM stacksaga.effect e
	             WHERE e.saga_id = s.saga_id AND e.direction = 'act')::text), count(*)
	  FROM stacksaga.sagas v JOIN stacksaga.saga s USING (saga_id)
	 WHERE s.parent_id IS NULL GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6;
	SELECT saga, step, direction, md5(results::text), count(*) FROM done GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
	SELECT step_no, direction, attempt, error_class, outcome_known, regexp_replace(error, '[0-9a-f-]{36}', 'id'), count(*)
	  FROM stacksaga.failure GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6;
	SELECT count(*) FROM stacksaga.work;
	SELECT count(*), count(DISTINCT (saga_id, step_no, direction)) FROM stacksaga.effect;
};

my $counters = q{
	SELECT name, labels, value FROM stacksaga.metrics()
	 WHERE name ~ '_(started|finished|compensated|completed|failed|retries)_total' AND name ~ 'saga|steps|attempts' ORDER BY 1, 2::text};

# Everything that happens to sagas, and what has come of it, with what it has counted.
sub run_all
{
	sql('TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_signal, done');
	my %before = map { /^(.*)\|(.*)$/ } split /\n/, sql($counters);
	sql($start);
	sql(q{SELECT count(stacksaga.signal_saga(saga_id, 'go', '"now"')) FROM stacksaga.sagas WHERE saga = 'signal'});
	$node->poll_query_until('postgres', q{
		SELECT count(*) = 2 FROM stacksaga.work WHERE queue = 'queue'}) or die 'no step reaches the service';
	sql("SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'once', 'unknown') $claim");
	sql("SELECT stacksaga.extend_step(c.saga_id, c.step, c.lease, '1 minute', '{\"half\": true}'),
	            stacksaga.complete_step(c.saga_id, c.step, c.lease, '{\"by\": \"service\"}') $claim");
	$node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM stacksaga.work WHERE queue = 'queue' AND direction = 'compensate'}) or die 'nothing to compensate';
	sql("SELECT * FROM (SELECT array_agg(saga_id) AS ids, array_agg(step) AS steps, array_agg(lease) AS leases $claim) AS c,
		LATERAL stacksaga.complete_steps(ids, steps, leases)");
	$node->poll_query_until('postgres', $live, '0') or die 'not all sagas end';
	my $came = sql($result);
	my %after = map { /^(.*)\|(.*)$/ } split /\n/, sql($counters);
	return $came . "\n" . join("\n", map { "$_|" . ($after{$_} - ($before{$_} // 0)) } sort keys %after);
}

my $direct = run_all();
like($direct, qr/^sql\|completed/m, 'sagas complete');
like($direct, qr/^service\|failed/m, 'and fail');
like($direct, qr/stacksaga_sagas_finished_total\|\{"status": "failed"\}\|[1-9]/, 'which is counted');

my $ended = sql(q{SELECT saga_id FROM stacksaga.sagas WHERE saga = 'timer' LIMIT 1});
$node->raises_sqlstate('postgres', "UPDATE stacksaga.saga SET status = 'running' WHERE saga_id = '$ended'", 'SG409');

# How many statements on these tables the starts, claims and answers of sagas run.
sub statements
{
	my $claim_one = q{FROM stacksaga.claim_steps('only', 'service', 1) AS c};
	my (undef, undef, $errors) = $node->psql('postgres', qq{
		LOAD 'auto_explain';
		SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on; SET auto_explain.log_level = notice;
		SELECT stacksaga.start_saga('queued', '{}', 'k', 'restart_if_failed') FROM generate_series(1, 2);
		SELECT stacksaga.start_saga('queued');
		SET search_path = '';
		CALL stacksaga.wait_for_steps('only', '0.1 seconds');
		SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'retryable'), stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'retryable') $claim_one;
		SELECT stacksaga.extend_step(c.saga_id, c.step, c.lease, '1 minute'), stacksaga.complete_step(c.saga_id, c.step, c.lease),
		       stacksaga.complete_step(c.saga_id, c.step, c.lease) $claim_one;
	});
	unlike($errors, qr/ERROR/, 'nothing fails');
	like($errors, qr/complete_step/, 'statements are shown');
	return scalar(() = $errors =~ /(?:FROM|INTO|UPDATE) stacksaga\.(?:saga|work|effect|failure)\b/g);
}
is(statements(), 0, 'no statement on these tables is run');

# What a trigger of somebody else's has seen: nothing, unless the access goes through SQL.
sql(q{
	CREATE TABLE seen (table_name text, operation text);
	CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
	BEGIN INSERT INTO seen VALUES (TG_TABLE_NAME, TG_OP); RETURN NULL; END $$});
foreach my $table (qw(saga work effect failure))
{
	sql("CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON stacksaga.$table FOR EACH ROW EXECUTE FUNCTION see()");
	is(run_all(), $direct, "the same with a trigger on $table");
	cmp_ok(statements(), '>', 0, "and statements are run on $table");
	sql("DROP TRIGGER see ON stacksaga.$table");
	my $operations = { saga => 'INSERT, UPDATE', work => 'DELETE, INSERT, UPDATE', effect => 'INSERT', failure => 'INSERT' };
	is(sql("SELECT string_agg(DISTINCT operation, ', ' ORDER BY operation) FROM seen WHERE table_name = '$table'"),
		$operations->{$table}, 'which has seen all that was written');
	sql('TRUNCATE seen');
}
is(run_all(), $direct, 'directly again');

# Through SQL, without the trigger of the extension, as where somebody has made the table anew.
my $trigger = sql(q{SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'saga_transition'});
sql('CREATE TRIGGER see AFTER UPDATE ON stacksaga.saga FOR EACH ROW EXECUTE FUNCTION see()');
foreach my $lost ('ALTER TABLE stacksaga.saga DISABLE TRIGGER saga_transition', 'DROP TRIGGER saga_transition ON stacksaga.saga')
{
	sql($lost);
	is(run_all(), $direct, "the same after $lost");
}
sql("DROP TRIGGER see ON stacksaga.saga; $trigger");
is(run_all(), $direct, 'and directly with it again');

foreach my $table (qw(effect work))
{
	sql(qq{
		ALTER TABLE stacksaga.$table RENAME TO ${table}_plain;
		CREATE TABLE stacksaga.$table (LIKE stacksaga.${table}_plain INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY HASH (saga_id);
		CREATE TABLE stacksaga.${table}_0 PARTITION OF stacksaga.$table FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE stacksaga.${table}_1 PARTITION OF stacksaga.$table FOR VALUES WITH (MODULUS 2, REMAINDER 1)});
	is(run_all(), $direct, "the same with $table in partitions");
	cmp_ok(statements(), '>', 0, 'by statements');
}
is(sql('SELECT count(DISTINCT tableoid) FROM stacksaga.effect'), '2', 'which are in both of them');

$node->stop;
done_testing();
