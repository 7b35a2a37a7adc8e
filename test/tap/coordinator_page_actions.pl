# What an operator does on the page to more than one saga, with dialogs that ask for more than a reason: pauses that
# end by themselves, by keyboard and on a phone.
use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use StacksagaBrowser;
use StacksagaCluster;
use StacksagaSite;
use Test::More;

my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;
my $chromium = StacksagaBrowser::program();
plan skip_all => 'no browser (package chromium-headless-shell) is here' unless defined $chromium;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
StacksagaSite::fill($node, '');
my $site = StacksagaSite->new($node, $program, '--operators-file', StacksagaSite::operators_file($program, alice => 'right'));
my $browser = StacksagaBrowser->new($chromium);
$browser->resize(1280, 900);
$browser->open_page($site->origin . '/#/queues');

sub value { return $node->safe_psql('postgres', $_[0]) }
sub type_into
{
	my ($place, $text) = @_;
	$browser->evaluate("document.querySelector('$place').focus()");
	return $browser->ask('Input.insertText', text => $text);
}
sub shows { return $browser->becomes("/$_[0]/.test(document.querySelector('#view').innerText)", $_[1]) }
sub go_to
{
	my ($address, $condition) = @_;
	$browser->evaluate("location.hash = '$address'");
	return $browser->becomes("document.querySelector('#view').dataset.shown === '$address' && ($condition)", "$address is shown");
}

# An action: tried, which changes nothing, then done. `fields` are set as typing sets them.
sub acts
{
	my ($place, $reason, $query, $expected, %fields) = @_;
	my $before = value($query);
	$browser->becomes("document.querySelector('$place') !== null", "$reason: there is a button");
	$browser->evaluate("document.querySelector('$place').click()");
	type_into('#reason', $reason);
	$browser->evaluate("(() => { const field = document.querySelector('$_'); field.value = '$fields{$_}'; field.dispatchEvent(new Event('input')); })()") for sort keys %fields;
	for my $step ([ 'Nothing has been done yet', $before ], [ '^Done', $expected ])
	{
		my ($answer, $there) = @$step;
		$browser->evaluate(q{document.querySelector('#go').click()});
		$browser->becomes("/$answer/m.test(document.querySelector('#dialog').innerText)", "$reason: $answer") or diag($browser->text('#dialog'));
		is(value($query), $there, 'with what it changes');
	}
	my $sql = $browser->evaluate(q{document.querySelector('#dialog code')?.textContent});
	$browser->evaluate(q{document.querySelector('#dialog').close()});
	return $sql;
}

# Logged in.
$browser->becomes(q{document.querySelector('#log-in')?.hidden === false}, 'one can log in');
$browser->evaluate(q{document.querySelector('#log-in').click()});
type_into('#login-user', 'alice');
type_into('#login-password', 'right');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{!document.querySelector('#log-out').hidden}, 'and is');

# A pause that ends by itself: of a queue and of a subscription. The page says until when, why, by whom and since when.
my %pauses = (
	definition => [ '#/definitions', 'pause_definition', q{saga = 'transfer'}, '[aria-label$=transfer]' ],
	queue => [ '#/queues', 'pause_queue', q{queue = 'pricing'}, '' ],
	subscription => [ '#/outbox', 'pause_subscription', q{subscription = 'audit'}, '[aria-label$=audit]' ]);
for my $kind (sort keys %pauses)
{
	my ($address, $function, $which, $row) = @{ $pauses{$kind} };
	my $paused = "SELECT paused, pause_reason, paused_until - date_trunc('minute', paused_until) FROM stacksaga.${kind}s WHERE $which";
	go_to($address, "document.querySelector('[data-action=pause-$kind]$row') !== null");
	my $until = $browser->evaluate(q{new Date(Date.now() + 7200000 - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 16)});
	my $sql = acts("[data-action=pause-$kind]$row", "stocktaking of $kind", $paused, "t|stocktaking of $kind|00:00:00", '#until' => $until);
	like($sql, qr/^SELECT stacksaga\.$function\('\w+', 'stocktaking of $kind', until => '[-\d]+T[\d:.]+Z'\);$/, 'the SQL says until when, too');
	$until =~ s/T/ /;
	shows("paused until $until .in (?:2 h|1\\d\\d min).: stocktaking of ${kind}[^]*by alice [\\d.]+ s ago", "the $kind is shown as paused");
	ok($site->wait_until(sub { $site->request('GET', '/metrics')->{content} =~ /^stacksaga_${kind}_paused\{[^}]*\} 1$/m }), 'in the metrics, too');
	my $resume = "[data-action=resume-$kind]$row";
	acts($resume, 'counted', "SELECT paused FROM stacksaga.${kind}s WHERE $which", 'f');
	$browser->becomes("document.querySelector('$resume') === null", 'and it goes on');
}

# One without an end is as before; an instant that has passed is refused.
acts('[data-action=pause-subscription][aria-label$=audit]', 'no end', q{SELECT paused, paused_until FROM stacksaga.subscriptions WHERE subscription = 'audit'}, 't|');
shows('paused: no end', 'a pause without an end is shown without one');
acts('[data-action=resume-subscription]', 'go on', q{SELECT paused FROM stacksaga.subscriptions WHERE subscription = 'audit'}, 'f');
$browser->becomes(q{document.querySelector('[data-action=pause-subscription][aria-label$=audit]') !== null}, 'it may be paused again');
$browser->evaluate(q{document.querySelector('[data-action=pause-subscription][aria-label$=audit]').click()});
type_into('#reason', 'too late');
$browser->evaluate(q{document.querySelector('#until').value = '2020-01-01T00:00'});
$browser->evaluate(q{document.querySelector('#go').click()});
$browser->becomes(q{/argument "until" is out of range/.test(document.querySelector('#dialog').innerText)}, 'a pause that would be over is refused');
cmp_ok($browser->evaluate(q{document.querySelector('#until').labels.length}), '==', 1, 'the field has a label');
$browser->resize(390, 900);
cmp_ok($browser->evaluate(q{document.querySelector('#until').getBoundingClientRect().right}), '<=', 390, 'and fits on a phone');
$browser->evaluate(q{document.querySelector('#dialog').close()});
cmp_ok($browser->evaluate(q{document.documentElement.scrollWidth}), '<=', 390, 'so does the list');
$browser->resize(1280, 900);

# The page of a definition pauses it, too.
go_to('#/definitions/transfer?version=1', q{document.querySelector('[data-action=pause-definition]') !== null});
acts('[data-action=pause-definition]', 'a bug', q{SELECT paused FROM stacksaga.definitions WHERE saga = 'transfer'}, 't');
shows('paused: a bug[^]*by alice', 'and says so');
acts('[data-action=resume-definition]', 'fixed', q{SELECT paused FROM stacksaga.definitions WHERE saga = 'transfer'}, 'f');
go_to('#/outbox', 'true');

# What a consumer gave back, with its reason, until a batch is acknowledged.
my $batch = value(q{SELECT batch_id FROM stacksaga.receive_messages('audit', 'auditor') LIMIT 1});
value(qq{SELECT stacksaga.release_batch($batch, '1 hour', 'the archive is full')});
shows('given back until [-\\d]+ [\\d:]+ .in (?:1 h|\\d+ min).: the archive is full', 'a batch that was given back is shown');
value(q{UPDATE stacksaga.subscription_position SET released_until = stacksaga.clock_now() WHERE released_until IS NOT NULL});
shows('given back: the archive is full', 'also when its time has come');
$batch = value(q{SELECT batch_id FROM stacksaga.receive_messages('audit', 'auditor') LIMIT 1});
value("SELECT stacksaga.ack_messages($batch)");
$browser->becomes(q{!/given back/.test(document.querySelector('#view').innerText)}, 'and no longer when one was acknowledged');

# Sagas that parked before their compensation began are retried or compensated: one, those that are selected, and all of
# an error with a spread.
value(q{SELECT stacksaga.define_saga('refund', ARRAY[
	stacksaga.sql_step('debit', 'public.act(stacksaga.step_call)', 'public.act(stacksaga.step_call)'),
	stacksaga.sql_step('credit', 'public.fail(stacksaga.step_call)')], on_failure => 'park');
	SELECT count(*) FROM generate_series(1, 7) AS n, LATERAL stacksaga.start_saga('refund', key => 'refund-' || n)});
ok($node->poll_query_until('postgres', q{WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
	SELECT n >= 0 AND (SELECT count(*) FROM stacksaga.sagas WHERE saga = 'refund' AND status = 'parked') = 7 FROM done}), 'seven sagas are parked');
my $refunds = q{SELECT string_agg(DISTINCT status || ' ' || n, ', ') FROM (SELECT status, count(*) AS n FROM stacksaga.sagas WHERE saga = 'refund' GROUP BY status) AS s};
go_to('#/saga/' . value(q{SELECT stacksaga.saga_id_of('refund', 'refund-1')}), q{document.querySelector('[data-action=compensate]') !== null});
is($browser->evaluate(q{[...document.querySelectorAll('#view .buttons [data-action]')].map(b => b.dataset.action).slice(0, 3).join()}), 'retry,compensate,cancel',
	'beside its retry');
like(acts('#view [data-action=compensate]', 'withdrawn', $refunds, 'compensating 1, parked 6'), qr/^SELECT stacksaga\.compensate_saga\('[-0-9a-f]{36}', 'withdrawn'\);$/, 'as SQL, too');
$browser->becomes(q{document.querySelector('#view [data-action=compensate]') === null}, 'once');
go_to('#/sagas?status=parked&saga=refund', q{document.querySelectorAll('#view tbody tr').length === 6});
$browser->evaluate("document.querySelectorAll('#view tbody input')[$_].click()") for 0, 1;
like(acts('#view [data-action=compensate]', 'both', $refunds, 'compensating 3, parked 4', '#spread' => '5 minutes'),
	qr/compensate_sagas\(ARRAY\[.*\]::uuid\[\], 'both', dry_run => false, spread => '5 minutes'\);/, 'those that are selected');
my $all = '#problems [aria-label="Compensate 4 parked sagas refund"]';
$browser->becomes("document.querySelector('$all') !== null", 'all of an error can be compensated');
acts($all, 'all of them', $refunds, 'compensating 7', '#spread' => '5 minutes');
is(value(q{SELECT count(DISTINCT due_at) > 1 FROM stacksaga.work JOIN stacksaga.sagas USING (saga_id) WHERE saga = 'refund'}), 't', 'and their compensations are spread');
is(value(q{SELECT count(*) FROM stacksaga.saga_actions WHERE action = 'compensate' AND on_behalf_of = 'alice'}), '7', 'each is recorded with her name');
go_to('#/outbox', 'true');

# What a definition says follows a failure: of the saga, and of the steps that say something else.
value(q{SELECT stacksaga.define_saga('payout', ARRAY[stacksaga.queue_step('check', 'checks', false, on_failure => 'compensate'),
	stacksaga.queue_step('order', 'payouts', compensable => true), stacksaga.queue_step('pay', 'payouts', effect => 'irreversible')], on_failure => 'park')});
go_to('#/definitions/payout?version=1', q{document.querySelectorAll('.step').length === 3});
shows('On failure: park', 'a definition says that it parks');
is($browser->evaluate(q{[...document.querySelectorAll('.step')].map(s => /on failure: compensate/.test(s.innerText)).join()}), 'true,false,false',
	'and the one step that compensates');
my $payout = value(q{SELECT saga_id FROM stacksaga.start_saga('payout', key => 'payout-1')});
go_to("#/saga/$payout", q{/payout-1/.test(document.querySelector('#view h2').innerText)});
shows('On failure: park', 'so does a saga');
# A step that its service gave back is next again, and its attempt says why.
value(qq{SELECT stacksaga.release_step('$payout', c.step, c.lease, reason => 'shutting down') FROM stacksaga.claim_steps('checks', 'test', 1) AS c});
shows('check act 1 released [^]*shutting down' =~ s/ /\\s+/gr, 'an attempt that was given back is shown, with its reason');
like($browser->text('.step'), qr/^check next$/m, 'and its step is next');

# What a service says of its progress stands with the attempt and in the timeline, while it runs.
my $lease = value(q{SELECT lease FROM stacksaga.claim_steps('checks', 'test', 1)});
value(qq{SELECT stacksaga.extend_step('$payout', 'check', $lease, progress => '{"page": 3}')});
shows('started ..page.: 3.[^]*claimed by test, progress ..page.: 3.', 'the progress of a step is shown');
value(qq{SELECT stacksaga.release_step('$payout', 'check', $lease)});
$browser->becomes(q{!/progress/.test(document.querySelector('#view').innerText)}, 'and goes with its attempt');

# A cancel that waits for an irreversible step.
value(qq{SELECT stacksaga.complete_step('$payout', c.step, c.lease) FROM stacksaga.claim_steps('$_', 'test', 1) AS c}) for 'checks', 'payouts';
value(qq{SELECT c.step, stacksaga.cancel_saga('$payout', 'the customer asked') FROM stacksaga.claim_steps('payouts', 'test', 1) AS c});
shows('requested by cancel: it begins unless an irreversible step is done', 'a cancel that waits for an irreversible step is shown');

go_to('#/definitions/transfer?version=1', q{document.querySelectorAll('.step').length === 2});
unlike($browser->text('#view'), qr/on failure/i, 'one that compensates says nothing of it');

my @complaints = grep { !/status of 400/ } $browser->complaints;
is_deeply(\@complaints, [], 'the browser complains of nothing but the refusal');
$browser->stop;
$site->stop;
done_testing();
