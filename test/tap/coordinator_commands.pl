# The commands for people on call: lists, one saga by its key, actions that are tried first, tables and JSON,
# exit codes; no value of a database does anything to a terminal.
use strict;
use warnings;

use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use StacksagaSite;
use Test::More;

my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;
my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
StacksagaSite::fill($node, '');
$node->safe_psql('postgres', q{SELECT stacksaga.start_saga('transfer', key => E'pay \x1b[2J\nall')});

# In front of PostgreSQL's operators the role finds those of somebody else, which run as the role that uses them.
$node->safe_psql('postgres', q{
	CREATE SCHEMA evil;
	CREATE TABLE evil.caught (role name, what text);
	CREATE FUNCTION evil.seize(what text) RETURNS void LANGUAGE sql
		AS $$ INSERT INTO evil.caught VALUES (current_user, what) $$;
	CREATE FUNCTION evil.equal(a name, b name) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.seize('= name'); SELECT a::text COLLATE "C" OPERATOR(pg_catalog.=) b $$;
	CREATE FUNCTION evil.equal(a text, b text) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.seize('= text'); SELECT a OPERATOR(pg_catalog.=) b $$;
	CREATE FUNCTION evil.times(a integer, b double precision) RETURNS double precision LANGUAGE sql
		AS $$ SELECT evil.seize('*'); SELECT a OPERATOR(pg_catalog.*) b $$;
	CREATE FUNCTION evil.add(a numeric, b text) RETURNS text LANGUAGE sql AS $$ SELECT evil.seize('||'); SELECT a OPERATOR(pg_catalog.||) b $$;
	CREATE FUNCTION evil.add(a bigint, b text) RETURNS text LANGUAGE sql AS $$ SELECT evil.seize('||'); SELECT a OPERATOR(pg_catalog.||) b $$;
	CREATE FUNCTION evil.get(a jsonb, b text) RETURNS text LANGUAGE sql AS $$ SELECT evil.seize('->>'); SELECT a OPERATOR(pg_catalog.->>) b $$;
	CREATE FUNCTION evil.round(a numeric, b integer) RETURNS numeric LANGUAGE sql AS $$ SELECT evil.seize('round'); SELECT pg_catalog.round(a, b) $$;
	CREATE FUNCTION evil.date_trunc(a text, b timestamptz) RETURNS timestamptz LANGUAGE sql
		AS $$ SELECT evil.seize('date_trunc'); SELECT pg_catalog.date_trunc(a, b) $$;
	CREATE OPERATOR evil.= (FUNCTION = evil.equal, LEFTARG = name, RIGHTARG = name);
	CREATE OPERATOR evil.= (FUNCTION = evil.equal, LEFTARG = text, RIGHTARG = text);
	CREATE OPERATOR evil.* (FUNCTION = evil.times, LEFTARG = integer, RIGHTARG = double precision);
	CREATE OPERATOR evil.|| (FUNCTION = evil.add, LEFTARG = numeric, RIGHTARG = text);
	CREATE OPERATOR evil.|| (FUNCTION = evil.add, LEFTARG = bigint, RIGHTARG = text);
	CREATE OPERATOR evil.->> (FUNCTION = evil.get, LEFTARG = jsonb, RIGHTARG = text);
	GRANT USAGE ON SCHEMA evil TO PUBLIC;
	GRANT INSERT ON evil.caught TO PUBLIC;
	ALTER ROLE page SET search_path = evil, pg_catalog});
$node->safe_psql('postgres', q{SELECT 2 * 1.0::float8 WHERE 'a'::name = 'a'}, connstr => $node->connstr('postgres') . ' user=page');
is($node->safe_psql('postgres', q{SELECT string_agg(role || ' ' || what, ', ' ORDER BY what) FROM evil.caught; DELETE FROM evil.caught}),
	'page *, page = name', 'operators of somebody else are found where the path is not pinned');

sub execute
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ $program, @arguments, '-d', $node->connstr('postgres') . ' user=page' ], '<', '/dev/null', '>', \$out, '2>', \$err);
	unlike("$out$err", qr/[\x00-\x09\x0b-\x1f\x7f]/, "$arguments[0] prints no control character") unless grep { $_ eq '--json' } @arguments;
	return ($? >> 8, $out, $err);
}

my ($code, $out, $err) = execute('sagas', '--status', 'parked');
is($code, 0, 'sagas ends with 0');
like((execute('sagas', '--key', 'pay '))[1], qr/pay \\x1b\[2J\\nall/, 'a control character is escaped');
like($out, qr/^saga_id .*\n-+.*\n(?=.*order-4711 .*parked)/s, 'and prints those of the filter');
($code, $out) = execute('sagas', '--key', 'order-4711', '--json');
is(decode_json($out)->{sagas}[0]{key}, 'order-4711', 'or JSON');
($code, $out) = execute('saga', 'order-4711');
is($code, 0, 'a saga is found by its key');
like($out, qr/order-4711 .*Attempts\n.*ship +act +1 +failed.*Timeline\n.*start of saga parcel.*saga parked/s, 'and printed with its timeline');
($code, $out) = execute('saga', 'order-4711', '--json');
is(decode_json($out)->{parked}{step}, 'ship', 'or as JSON');
($code, $out, $err) = execute('saga', 'nothing');
is_deeply([ $code, $out, $err ], [ 1, '', qq{no saga has the key or id "nothing"\n} ], 'a saga that is not there ends it with 1');
for my $command ('queues', 'schedules', 'definitions', 'dead-messages')
{
	($code, $out) = execute($command);
	like($out, qr/^\w+ .*\n-+/, "$command prints a table");
	($code, $out) = execute($command, '--json');
	my $list = decode_json($out)->{ $command =~ s/-/_/r };
	cmp_ok(scalar(@$list), '>', 0, 'or JSON, with its rows');
}

($code, $out, $err) = execute('sagas', '--status', 'broken');
is($code, 64, 'a status that is none is a usage error');
like($err, qr/--status: must be pending, running, .*parked/, 'and the error names those there are');
is((execute('retry', '--status', 'Parked', '--reason', 'r'))[0], 64, 'also for an action');
my $status = q{SELECT status FROM stacksaga.sagas WHERE key = 'order-4711'};
is((execute('retry', 'order-4711'))[0], 64, 'an action needs a reason');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
($code, $out) = execute('retry', 'order-4711', '--reason', 'open');
like($out, qr/parked +running.*Nothing was done: this was a dry run. Add --yes./s, 'it is tried first');
is($node->safe_psql('postgres', $status), 'parked', 'which changes nothing');
($code, $out) = execute('retry', 'order-4711', '--reason', 'open', '--on-behalf-of', 'alice', '--yes');
is($code, 0, 'then it is done');
is($node->safe_psql('postgres', $status), 'running', 'and the saga goes on');
is($node->safe_psql('postgres', q{SELECT role_name, on_behalf_of FROM stacksaga.operator_actions WHERE action = 'retry'}), 'page|alice', 'recorded for whom');
is((execute('retry', 'order-4711', '--reason', 'open', '--yes'))[0], 1, 'what is refused ends it with 1');
is((execute('retry', '--reason', 'open', '--yes'))[0], 64, 'nothing is done without a name or a filter');
($code, $out, $err) = execute('retry', '--status', 'parked', '--max', '2', '--reason', 'all');
like($err, qr/^These are the newest 2 sagas that fit; there may be more\./, 'a filter that leaves some out says so');
is((execute('retry', '--status', 'parked', '--reason', 'all', '--yes'))[0], 0, 'a filter chooses many');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.parked_sagas'), '0', 'all of which are retried');

# Every other action: tried, which changes nothing, and then done.
sub value { return $node->safe_psql('postgres', $_[0]) }
sub acts
{
	my ($what, $query, @arguments) = @_;
	my $before = value($query);
	my ($tried, $answer) = execute(@arguments, '--reason', "because of $what");
	like($answer, qr/^Nothing was done: this was a dry run. Add --yes.$/m, "$what is tried first") or diag($answer);
	is_deeply([ $tried, value($query) ], [ 0, $before ], 'which changes nothing');
	($tried, $answer) = execute(@arguments, '--reason', "because of $what", '--yes');
	is($tried, 0, 'then it is done') or diag($answer);
	isnt(value($query), $before, 'and changes what it should');
	return $answer;
}
my $orders = q{SELECT string_agg(status, ' ' ORDER BY key) FROM stacksaga.sagas WHERE key IN ('order-1', 'order-2')};
acts('suspending', $orders, 'suspend', 'order-1', 'order-2');
is(value($orders), 'suspended suspended', 'two at once');
acts('resuming', $orders, 'resume', 'order-1', '--spread', '5 minutes');
acts('compensating', $orders, 'compensate', 'order-2', '--spread', '1 minute');
($code, $out) = execute('compensate', 'order-1', '--reason', 'it runs', '--yes');
is($code, 1, 'one that runs is not compensated');
like($out, qr/order-1|SG409|suspended|parked/, 'and the answer says why');
acts('cancelling', $orders, 'cancel', 'order-1');
acts('pausing a queue', q{SELECT paused FROM stacksaga.queues}, 'pause-queue', 'pricing');
acts('resuming a queue', q{SELECT paused FROM stacksaga.queues}, 'resume-queue', 'pricing');
($code, $out, $err) = execute('pause-queue', 'pircing', '--reason', 'the bank is down');
is_deeply([ $code, $err ], [ 0, qq{No definition names the queue "pircing", and no step waits in it.\n} ],
	'a queue that nothing names may be paused, but not by mistake');
is((execute('pause-queue', 'pricing', '--reason', 'the bank is down'))[2], '', 'of one that is named nothing is said');
my $until = value(q{SELECT date_trunc('second', stacksaga.clock_now() + interval '2 hours')});
my $pauses = q{SELECT string_agg(paused_until::text, ' ') FROM (SELECT paused_until FROM stacksaga.queues UNION ALL SELECT paused_until FROM stacksaga.subscriptions) AS p};
acts('pausing a queue for hours', $pauses, 'pause-queue', 'pricing', '--until', $until);
is(value($pauses), $until, 'until that instant');
like((execute('queues'))[1], qr/^pricing .* until \Q$until\E/m, 'which the list shows');
acts('ending the pause', $pauses, 'resume-queue', 'pricing');
acts('pausing a subscription', $pauses, 'pause-subscription', 'audit', '--until', $until);
like((execute('status'))[1], qr/^audit .* until \Q$until\E/m, 'which the status shows');
acts('resuming a subscription', $pauses, 'resume-subscription', 'audit');
my $definition = q{SELECT paused, paused_until, pause_reason FROM stacksaga.definitions WHERE saga = 'transfer'};
acts('pausing a definition', $definition, 'pause-definition', 'transfer', '--until', $until);
is(value($definition), "t|$until|because of pausing a definition", 'until then');
like((execute('definitions'))[1], qr/^transfer .* until \Q$until\E/m, 'which the list shows');
acts('resuming a definition', $definition, 'resume-definition', 'transfer');
is((execute('pause-definition', 'transfers', '--reason', 'a name that nothing has', '--yes'))[0], 1, 'a definition that is not there is not paused');
my $batch = value(q{SELECT batch_id FROM stacksaga.receive_messages('audit', 'auditor') LIMIT 1});
value(qq{SELECT stacksaga.release_batch($batch, '10 minutes', 'the archive is full')});
like((execute('status'))[1], qr/^audit .* until [-\d]+ [\d:]+\S*: the archive is full$/m, 'a batch that was given back is shown, until when and why');
acts('pausing it without an end', q{SELECT paused FROM stacksaga.subscriptions WHERE subscription = 'audit'}, 'pause-subscription', 'audit');
like((execute('status'))[1], qr/^audit .* paused +until/m, 'the status shows that, too');
($code, $out, $err) = execute('pause-subscription', 'audit', '--reason', 'twice', '--yes');
is_deeply([ $code, $err =~ /audit/ ], [ 1, 1 ], 'twice it is refused');
acts('resuming it', q{SELECT paused FROM stacksaga.subscriptions WHERE subscription = 'audit'}, 'resume-subscription', 'audit');
($code, $out, $err) = execute('pause-queue', 'pricing', '--reason', 'late', '--until', '2020-01-01', '--yes');
is_deeply([ $code, $err =~ /argument "until" is out of range/ ], [ 1, 1 ], 'a pause that would be over is refused');
is((execute('pause-queue', 'pricing', 'packing', '--reason', 'two'))[0], 64, 'one queue is paused at a time');
value(qq{UPDATE stacksaga.subscription_position SET released_until = stacksaga.clock_now() WHERE released_until IS NOT NULL});
$batch = value(q{SELECT batch_id FROM stacksaga.receive_messages('audit', 'auditor') LIMIT 1});
value("SELECT stacksaga.ack_messages($batch)");
unlike((execute('status'))[1], qr/the archive is full/, 'and no longer when one was acknowledged');
acts('pausing a schedule', q{SELECT paused FROM stacksaga.schedules}, 'pause-schedule', 'nightly');
acts('resuming a schedule', q{SELECT paused FROM stacksaga.schedules}, 'resume-schedule', 'nightly');
my $price = q{SELECT count(*) FROM stacksaga.saga_history JOIN stacksaga.sagas USING (saga_id)
	WHERE key = 'order-3' AND step = 'price' AND saga_history.status = 'completed'};
acts('resolving a step', $price, 'resolve', 'order-3', '--step', 'price', '--outcome', 'done', '--step-output', '{"price": 9}');
is(value(q{SELECT count(*) FROM stacksaga.operator_actions WHERE action = 'resolve' AND reason = 'because of resolving a step'}), '1', 'recorded why');

# The answer of a completed key.
value(q{SELECT stacksaga.idempotency_finish('POST /charges', 'c1', lease, '{"card": 1}') FROM stacksaga.idempotency_begin('POST /charges', 'c1', '{}')});
my $key = q{SELECT state FROM stacksaga.dedupe_state('POST /charges', 'c1')};
acts('forgetting a key', $key, 'forget', 'POST /charges', 'c1');
is(value($key), 'forgotten', 'its answer is gone');
is(value(q{SELECT count(*) FROM stacksaga.operator_actions WHERE action = 'forget' AND reason = 'because of forgetting a key'}), '1', 'recorded why');
is((execute('forget', 'POST /charges', 'none', '--reason', 'why', '--yes'))[0], 1, 'a key that is not there is refused');
is((execute('forget', 'POST /charges', '--reason', 'why'))[0], 64, 'a scope alone names no key');

# What is for the kind operator alone: the error says so, and the list is the dry run's.
($code, $out, $err) = execute('reset-instants', '--reason', 'the clock was ahead');
is($code, 77, 'a role of the kind support does not reset instants');
like($err, qr/SELECT stacksaga\.grant_usage\('page', 'operator'\);/, 'and the error says which kind does');
value(q{SELECT stacksaga.grant_usage('page', 'operator')});
value(q{SET stacksaga.clock_offset = '400 days'; SELECT count(*) FROM stacksaga.claim_steps('pricing', 'ahead', 1)});
like(acts('resetting instants', q{SELECT count(*) FROM stacksaga.reset_instants('look')}, 'reset-instants'), qr/^lease step "price" of saga \S+ +20\d\d-.* 20\d\d-/m, 'which shows what they were and become');

# An attempt that was given back.
value(q{SELECT stacksaga.release_step(c.saga_id, c.step, c.lease, reason => 'shutting down')
	FROM stacksaga.claim_steps('pricing', 'pricer', 100) AS c JOIN stacksaga.sagas s USING (saga_id) WHERE s.key = 'order-20'});
like((execute('saga', 'order-20'))[1], qr/^price +act +1 +released .* shutting down$/m, 'an attempt that was given back is printed with its reason');

# Dead messages: some by their ids, or all of a subscription; a retried one is delivered, a discarded one never.
my $dead = q{SELECT count(*) FROM stacksaga.dead_messages};
is(StacksagaSite::add_dead_messages($node, 4), 5, 'five messages are dead');
my @ids = map { $_->{message_id} } @{ decode_json((execute('dead-messages', '--json'))[1])->{dead_messages} };
acts('discarding', $dead, 'discard', @ids[ 1, 2 ], '--subscription', 'billing');
is(value($dead), '3', 'the two that are named are discarded');
is(value(qq{SELECT string_agg(discard_reason || ' by ' || discarded_by, ', ') FROM stacksaga.dead_message WHERE message_id IN ('$ids[1]', '$ids[2]')}),
	'because of discarding by page, because of discarding by page', 'and their rows say why');
($code, $out, $err) = execute('discard', $ids[1], '--subscription', 'billing', '--reason', 'again', '--yes');
is($code, 1, 'a message is discarded once');
like($err, qr/$ids[1]/, 'and the second time the error names it');
# What is so old that its consumer may have forgotten it is redriven only with a flag, by its id and with all others.
value(qq{UPDATE stacksaga.dead_message SET published_at = published_at - interval '40 days' WHERE message_id IN ('$ids[0]', '$ids[3]')});
my @billing = ('--subscription', 'billing');
for my $old ([ $ids[3] ], [])
{
	($code, $out, $err) = execute('redrive', @$old, @billing, '--reason', 'the bank is open', '--yes');
	is_deeply([ $code, value($dead) ], [ 1, '3' ], 'an old message is not redriven');
	like($err, qr/older than stacksaga.dedupe_retention/, 'and the error says why');
}
acts('redriving one', $dead, 'redrive', $ids[3], @billing, '--past-dedupe-retention');
is(value(q{SELECT count(*) FROM stacksaga.operator_actions WHERE action = 'redrive' AND reason = 'because of redriving one'}), '1', 'recorded why');
ok(StacksagaSite::billed($node, 1), 'a redriven message is delivered again');
like(acts('redriving all', $dead, 'redrive', @billing, '--spread', '1 second', '--past-dedupe-retention'), qr/$ids[0].*$ids[4]|$ids[4].*$ids[0]/s, 'the rest by their subscription');
is(value($dead), '0', 'none is left');
# The first one held the second one of its key.
ok(StacksagaSite::billed($node, 4), 'and all of these are delivered, with what one of them held');
is(value(qq{SELECT count(*) FROM billed WHERE message_id IN ('$ids[1]', '$ids[2]')}), '0', 'but no discarded one');
is(value(q{SELECT count(*) FROM stacksaga.operator_actions WHERE role_name = 'page' AND action ~ 'redrive|discard'}), '5', 'each message recorded once');

# All means all, however many a call takes.
$node->safe_psql('postgres', q{UPDATE bank SET is_open = false;
	SELECT stacksaga.create_subscription('copying', 'copies', 'public.bill(stacksaga.message)', stop_on_first_failure => false);
	SELECT count(stacksaga.publish('copies', '{}')) FROM generate_series(1, 1100) AS n});
$node->poll_query_until('postgres', q{WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
	SELECT n >= 0 AND (SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying') = 1100 FROM done}) or die;
($code, $out, $err) = execute('redrive', '--subscription', 'copying', '--reason', 'all');
like($err, qr/^These are the oldest 1000; --yes redrives all\.$/m, 'a dry run of more than a call takes says so');
($code, $out, $err) = execute('redrive', '--subscription', 'copying', '--reason', 'all', '--yes', '--json');
is(scalar(@{ decode_json($out)->{rows} }), 1100, 'all are redriven');
is(value(q{SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying'}), '0', 'and none is left');

# A key is found whole, however many keys begin with it.
$node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.start_saga('parcel', key => 'same');
	SELECT count(*) FROM stacksaga.start_sagas('parcel', array_fill('{}'::jsonb, ARRAY[1100]), (SELECT array_agg('same ' || n) FROM generate_series(1, 1100) AS n))});
like((execute('saga', 'same'))[1], qr/^\S+ +parcel +1 +same +/m, 'the saga of a key is found among those whose keys begin so');

# status and doctor print names and errors as they are, and a terminal obeys none.
$node->safe_psql('postgres', q{
	CREATE FUNCTION U&"title \001b]0;\0007\009b"(m stacksaga.message) RETURNS void LANGUAGE sql AS '';
	SELECT stacksaga.create_subscription('sub', 'none', U&'public."title \001b]0;\0007\009b"(stacksaga.message)')});
like((execute('status'))[1], qr/sub +none +\S*title \\x1b\]0;\\x07\\x9b/, 'status escapes control characters');
execute($_) for 'doctor', 'ring', 'dead-messages', 'queues', 'schedules', 'definitions';

for my $shell ('bash', 'zsh')
{
	IPC::Run::run([ $program, 'completion', $shell ], '>', \my $script);
	like($script, qr/sagas\) words="[^"]*--status/, "there is a completion for $shell");
}
IPC::Run::run([ 'bash', '-c', 'source <("$1" completion bash); COMP_WORDS=(x sag); COMP_CWORD=1; _stacksaga_coordinator; echo "${COMPREPLY[*]}"', 'bash', $program ],
	'>', \my $completed);
is($completed, "sagas saga\n", 'which completes commands');

# In a copy of a live database, whose name has to be said, everything stops.
($code, $out, $err) = execute('forget-work', 'original', '--reason', 'a copy', '--yes');
is_deeply([ $code, value(q{SELECT count(*) FROM stacksaga.sagas WHERE status = 'suspended'}) ], [ 1, '0' ], 'the name of another database is refused');
like($err, qr/postgres/, 'and the error names this one');
like(acts('forgetting work', q{SELECT count(*) FROM stacksaga.sagas WHERE status IN ('pending', 'running')}, 'forget-work', 'postgres'),
	qr/^postgres +\d{2,} sagas suspended$/m, 'how many sagas were suspended is printed');
is(value(q{SELECT bool_and(paused) FROM stacksaga.queues}), 't', 'and the queues are paused');

# The daemon's own session, and all of the above.
is((execute('master', '--once', '--http', ''))[0], 0, 'a window is published');
is($node->safe_psql('postgres', 'SELECT string_agg(DISTINCT what, $$, $$) FROM evil.caught'), '',
	'no command and no role of the daemon has run an operator or a function of the path of its role');
done_testing();
