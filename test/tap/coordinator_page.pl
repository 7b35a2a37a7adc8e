# The page in a browser without a screen: every view with real data at three widths, a parked saga that is
# found by its key, retried and completes, bulk actions, what a keyboard and a screen reader need, markup in
# every name, one of several databases. With PAGE_SCREENSHOTS, a folder, it takes pictures there and tests nothing.
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
my $pictures = $ENV{PAGE_SCREENSHOTS};
my $markup = $pictures ? '' : '<img src=x onerror=alert(1)>';
StacksagaSite::fill($node, $markup);
$node->safe_psql('postgres', q{
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
				   ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
	SELECT stacksaga.register_node(n) FROM (VALUES ('till-1'), ('till-2'), ('till-3')) AS v(n)});
my $operators = StacksagaSite::operators_file($program, alice => 'right');
my $site = StacksagaSite->new($node, $program, '--operators-file', $operators, '--name', 'coordinator-1');
ok($node->poll_query_until('postgres', q{
		WITH beats AS MATERIALIZED (
			SELECT h.* FROM stacksaga.nodes m JOIN stacksaga.node n USING (node),
				   LATERAL stacksaga.heartbeat_node(n.node, n.incarnation) AS h)
		SELECT (SELECT count(*) FROM beats) = 3 AND coverage = 1 FROM stacksaga.ring_status}),
	'all slots are assigned');
my $offset = $pictures ? 4711 : '9223372036854775807';
$node->safe_psql('postgres', qq{
	UPDATE stacksaga.node SET heartbeat_at = heartbeat_at - interval '90 minutes' WHERE node = 'till-3';
	UPDATE stacksaga.outbox_message SET published_at = published_at - interval '5 minutes';
	SELECT stacksaga.acknowledge_checkpoint(node, incarnation, '{"offset": "$offset"}')
	  FROM stacksaga.node WHERE node = 'till-1'});

# What the charts of a queue will show: the daemon has read its counters once, and does again after half a minute.
$node->safe_psql('postgres', q{
	SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease)
	  FROM stacksaga.claim_steps((SELECT queue FROM stacksaga.queues), 'pricer', 7) AS c;
	SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no price yet', 'retryable')
	  FROM stacksaga.claim_steps((SELECT queue FROM stacksaga.queues), 'pricer', 2) AS c});

my $browser = StacksagaBrowser->new($chromium);
my $url = $site->origin;
my $saga = $node->safe_psql('postgres', q{SELECT stacksaga.saga_id_of('parcel', 'order-4711')});
my $order = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.sagas WHERE saga LIKE 'order%' LIMIT 1});
my $key = $node->safe_psql('postgres', "SELECT key FROM stacksaga.sagas WHERE saga_id = '$order'");

sub take_pictures
{
	for my $picture (@_)
	{
		my ($name, $width, $height, $address) = @$picture;
		$browser->resize($width, $height);
		$browser->open_page("$url/$address");
		$browser->becomes(q{document.querySelector('#view h2') !== null && document.querySelector('#pills').innerText !== ''}, "picture of $name");
		$browser->screenshot("$pictures/$name.png", $width, $height);
	}
	return;
}
if ($pictures)
{
	take_pictures([ 'page', 1100, 910, '#/ring' ], [ 'page_sagas', 1100, 900, '#/sagas' ], [ 'page_phone', 390, 826, "#/saga/$saga" ]);
	# A picture of charts wants some points, which the daemon takes half a minute apart.
	$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
	for my $n (5, 2, 6, 9, 4, 7)
	{
		$node->safe_psql('postgres', qq{
			SELECT count(*) FROM generate_series(1, $n) AS i, LATERAL stacksaga.start_saga('parcel', key => 'parcel-$n-' || i);
			SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM stacksaga.claim_steps('pricing', 'pricer', $n) AS c;
			SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no price yet', 'retryable') FROM stacksaga.claim_steps('pricing', 'pricer', 1 + $n % 3) AS c;
			SELECT stacksaga.run_pending()});
		my $points = @{ $site->get('/api/history')->{at} };
		diag('waits for the next point of the charts, half a minute');
		$site->wait_until(sub { @{ $site->get('/api/history')->{at} } > $points });
	}
	take_pictures([ 'page_saga', 1100, 1118, "#/saga/$order" ], [ 'page_queues', 1100, 720, '#/queues' ]);
	$browser->stop;
	$site->stop;
	done_testing();
	exit;
}

# Each view, as a stranger sees it: its place in the address, its heading, and what must be on it.
my @views = (
	[ '#/sagas', 'Sagas', qr/order-\d+.*order.* 1\s+running/s ],
	[ '#/sagas?status=parked', 'Sagas', qr/order-4711\s.*parcel 1\s.*parked/s ],
	[ "#/saga/$saga", 'order-4711 parked', qr/Waits for\s+an operator [^\n]* since \S+ \S+ \(\d[\d.]* (?:s|min) ago\).*Parked at\s+ship \(act\).*Stages.*pay.*done.*ship.*parked.*Attempts.*Messages published.*receipts.*till.*[-0-9a-f]{36}.*Timeline.*start of saga parcel/s ],
	[ "#/saga/$order", "$key running", qr/Stages.*reserve.*price.*queue pricing.*pay.*child transfer.*mail/s ],
	[ '#/queues', 'Queues', qr/Steps completed.*Attempts failed.*pricing/s ],
	[ '#/outbox', 'Outbox', qr/audit.*billing.*Blocked keys.*customer.*no such customer.*Dead messages/s ],
	[ '#/outbox/billing', 'Subscription billing', qr/no such customer/ ],
	[ '#/schedules', 'Schedules', qr/nightly.*0 3 \* \* \*.*runs/s ],
	[ '#/definitions', 'Definitions', qr/parcel.*transfer/s ],
	[ '#/definitions/parcel', 'Definition parcel', qr/pay.*irreversible.*ship.*Attempts and how long/s ],
	[ '#/ring', 'Rings', qr/default \/ default.*coordinator-1.*till-1.*active.*till-3.*suspected.*9\d min ago/s ],
	[ '#/log', 'What operators did', qr/create\s.*subscription audit/s ]);
# Where one can scroll to the side, a pixel too much would show a second bar.
my $scrolling = q{[...document.querySelectorAll('body *')].filter(e => e.nodeName !== 'PRE' && e.scrollHeight > e.clientHeight &&
	/auto|scroll/.test(getComputedStyle(e).overflowY)).map(e => `${e.nodeName} ${e.className} ${e.scrollHeight} > ${e.clientHeight}`).join()};
for my $width (390, 820, 1280)
{
	$browser->resize($width, 900);
	$browser->open_page("$url/");
	for my $view (@views)
	{
		my ($address, $heading, $pattern) = @$view;
		my $is = encode_json([$heading]);
		$browser->evaluate("location.hash = '$address'");
		$browser->becomes("document.querySelector('#view').dataset.shown === '$address'", "$address at $width pixels is shown");
		$browser->becomes("document.querySelector('#view h2')?.innerText.replace(/\\s+/g, ' ').trim() === ${is}[0].replace(/\\s+/g, ' ').trim()",
			"with its heading");
		like($browser->text('#view'), $pattern, 'and what it is about');
		cmp_ok($browser->evaluate('document.documentElement.scrollWidth'), '<=', $width, 'and is not wider than the screen');
		is($browser->evaluate($scrolling), '', 'and nothing but text scrolls up and down');
	}
}
is($browser->evaluate(q{document.querySelectorAll('#view img, #view script, #problems img').length}), 0, 'markup in names stays text');

# Problems are above every view, each a line that opens, grouped by error.
like($browser->text('#summary'), qr/^3 parked sagas, 1 blocked key, 1 dead message, 1 lagging subscription, 1 unresponsive node, \d+ findings?\.$/,
	'a summary is announced to a screen reader');
is($browser->evaluate(q{document.querySelector('#summary').getAttribute('role')}), 'status', 'when it changes');
like($browser->text('#problems'), qr/3 \S+ parcel, transfer parked at debit, ship: the bank is closed/, 'sagas of one error are one line');
is($browser->evaluate(q{document.querySelectorAll('#problems details[open]').length}), 0, 'which is closed');
cmp_ok($browser->evaluate(q{document.querySelector('#problems').offsetHeight}), '<', 250, 'and does not push the view away');
is($browser->evaluate(q{document.querySelectorAll('#problems > details').length}), 6, 'the others are behind one more line');

# The ring: exact tokens, what nodes own and were granted.
$browser->evaluate("location.hash = '#/ring'");
$browser->becomes(q{document.querySelectorAll('#view svg path').length > 0}, 'the ring is drawn');
like($browser->text('#view'), qr/"offset":"9223372036854775807"/, 'a confirmation is shown unchanged');
$browser->evaluate(q{document.querySelector('#view details').open = true});
is($browser->evaluate(q{(() => { const t = [...document.querySelectorAll('#view details td:nth-child(-n+2)')]
		.map(c => BigInt(c.innerText)); let holes = 0;
	for (let i = 1; i + 1 < t.length; i += 2) if (t[i] + 1n !== t[i + 1]) ++holes;
	return `${t[0]} ${t.at(-1)} ${holes}`; })()}),
	'-9223372036854775808 9223372036854775807 0', 'the tokens of the table are exact, without a hole');
is($browser->evaluate(q{document.querySelectorAll('#view svg path').length}),
	$browser->evaluate(q{document.querySelectorAll('#view details tbody tr').length}), 'the picture has a row for each arc');
for my $line (split /\n/, $node->safe_psql('postgres', q{
	SELECT o.node, count(*) FROM stacksaga.slot s JOIN stacksaga.node o ON o.incarnation = s.owner GROUP BY 1}))
{
	my ($name, $slots) = split /\|/, $line;
	my $row = qq{[...document.querySelectorAll('#view tbody tr')].find(r => r.cells[0].innerText === '$name').cells};
	is($browser->evaluate("${row}[4].innerText"), $slots, "$name owns $slots slots");
	# The unresponsive one is granted no more slots; the others take its slots over when they beat.
	my $granted = $name eq 'till-3' ? 0 : 128;
	$browser->becomes("${row}[5].innerText === '$granted'", "and is granted $granted");
}

# Updates: what is open, chosen and focused stays; nothing moves; the button pauses them.
my $updates = q{new Promise(done => { let n = 0; const seen = new MutationObserver(() => { if (++n === 2) { seen.disconnect(); done(n); } });
	seen.observe(document.querySelector('#updated'), {childList: true, characterData: true, subtree: true}); })};
$browser->evaluate(q{window.shift = 0; new PerformanceObserver(list => { for (const e of list.getEntries())
	window.shift += e.value; }).observe({type: 'layout-shift'}); document.querySelector('#view details summary').focus()});
is($browser->evaluate($updates), 2, 'the page updates itself');
ok($browser->evaluate(q{document.querySelector('#view details').open && document.activeElement.nodeName === 'SUMMARY'}),
	'what was open and focused stays so');
cmp_ok($browser->evaluate('window.shift'), '<', 0.01, 'and nothing jumps');
$browser->evaluate(q{document.querySelector('#pause').click()});
is($browser->evaluate(q{document.querySelector('#pause').getAttribute('aria-pressed')}), 'true', 'it can be paused');
$browser->evaluate(q{document.querySelector('#pause').click()});

# By keyboard: past the navigation, into the search; the address of a saga of older pages still works.
$browser->open_page("$url/#$saga");
$browser->becomes(q{document.querySelector('#view h2')?.innerText.includes('order-4711')}, 'an older address finds its saga');
$browser->evaluate(q{document.body.setAttribute('tabindex', '-1'); document.body.focus()});
$browser->press('Tab', windowsVirtualKeyCode => 9);
is($browser->evaluate(q{document.activeElement.className}), 'skip', 'the first stop of the keyboard skips to the view');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
is($browser->evaluate(q{document.activeElement.id}), 'view', 'and does so');
is($browser->evaluate(q{[...document.querySelectorAll('header, nav, main, footer')].length}), 4, 'there are landmarks');
is($browser->evaluate(q{[...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length}), 0, 'pictures have names');
is($browser->evaluate(q{[...document.querySelectorAll('table')].filter(t => !t.caption || !t.querySelector('th[scope=col]')).length}),
	0, 'tables have captions and heads');
is($browser->evaluate(q{[...document.querySelectorAll('input, select')].filter(i => i.labels.length === 0 && !i.getAttribute('aria-label')).length}),
	0, 'inputs have labels');
my $contrast = q{(() => {
	const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(x => x / 255)
		.map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const back_of = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
		if (!/rgba\(0, 0, 0, 0\)|transparent/.test(c)) return light(c); } return 1; };
	return Math.min(...[...document.querySelectorAll('h1,h2,h3,td,th,dt,dd,a,p,summary,button,code,.pill,.bad,.good,.warn,.dim')].map(e => {
		const text = light(getComputedStyle(e).color); const back = back_of(e);
		return (Math.max(text, back) + .05) / (Math.min(text, back) + .05); })); })()};
for my $scheme ('dark', 'light')
{
	$browser->colour_scheme($scheme);
	cmp_ok($browser->evaluate($contrast), '>=', 4.5, "text can be read in $scheme");
	is($browser->evaluate(q{matchMedia('(prefers-color-scheme: dark)').matches
		=== (getComputedStyle(document.body).backgroundColor.match(/\d+/)[0] < 128)}), JSON::PP::true, "the page is $scheme");
}

# A stranger sees SQL to copy and no payload; an operator finds the parked saga by its key, retries it, and it completes.
like($browser->text('#view'), qr/Input: hidden. Log in to see it./, 'a stranger sees no payload');
is($browser->evaluate(q{document.querySelectorAll('[data-action]').length}), 0, 'and no button that acts');
$browser->evaluate(q{document.querySelector('#view details').open = true});
like($browser->text('#view'), qr/SELECT stacksaga\.retry_saga\('$saga', 'why'\);/, 'but SQL to copy');
sub type_into
{
	my ($place, $text) = @_;
	$browser->evaluate("document.querySelector('$place').focus()");
	return $browser->ask('Input.insertText', text => $text);
}
$browser->evaluate(q{document.querySelector('#log-in').click()});
type_into('#login-user', 'alice');
type_into('#login-password', 'wrong');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{/user or password is wrong/.test(document.querySelector('#dialog').innerText)}, 'a wrong password is refused');
$browser->evaluate(q{document.querySelector('#login-password').value = ''});
type_into('#login-password', 'right');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{document.querySelector('#user').innerText === 'alice'}, 'alice logs in');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
$browser->evaluate(q{location.hash = '#/queues'});
$browser->becomes(q{document.querySelector('#view').dataset.shown === '#/queues'}, 'she looks elsewhere');
# The one saga of a key is found among many whose keys begin so.
$node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.start_saga('parcel', key => 'same', run_at => stacksaga.clock_now() + interval '1 day');
	SELECT count(*) FROM generate_series(1, 60) AS n, LATERAL stacksaga.start_saga('parcel', key => 'same ' || n,
		run_at => stacksaga.clock_now() + interval '1 day')});
type_into('#search', 'same');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{/^same\s+pending/.test(document.querySelector('#view h2')?.innerText)}, 'a key that others begin with is found');
$browser->evaluate(q{document.querySelector('#search').value = ''});
type_into('#search', 'same 1');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{/^same 1\s+pending/.test(document.querySelector('#view h2')?.innerText)}, 'so is another');
$browser->evaluate(q{document.querySelector('#search').value = ''});
type_into('#search', 'sam');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{document.querySelector('#view').dataset.shown === '#/sagas?key=sam' && document.querySelectorAll('#view tbody tr').length === 50},
	'the beginning of keys shows their list');
$browser->evaluate(q{[...document.querySelectorAll('#view a')].find(a => a.innerText === 'Older').click()});
$browser->becomes(q{document.querySelectorAll('#view tbody tr').length === 11}, 'which has pages');
$browser->evaluate(q{document.querySelector('#search').value = ''});
type_into('#search', 'order-4711');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{/order-4711\s+parked/.test(document.querySelector('#view h2')?.innerText)}, 'the parked saga is found by its key');
like($browser->text('#view'), qr/confidential/, 'its payload is shown to an operator');
$browser->evaluate(q{document.querySelector('#view [data-action=retry]').click()});
type_into('#reason', 'the bank is open');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, 'retrying is tried first');
is($node->safe_psql('postgres', "SELECT status FROM stacksaga.sagas WHERE saga_id = '$saga'"), 'parked', 'which changes nothing');
like($browser->text('#dialog'), qr/parked\s.*running/s, 'and tells what would happen');
$browser->evaluate(q{document.querySelector('#go').click()});
$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText)}, 'then it is done');
$browser->evaluate(q{document.querySelector('#dialog').close()});
$node->poll_query_until('postgres', qq{
	WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
	SELECT n >= 0 AND (SELECT status FROM stacksaga.sagas WHERE saga_id = '$saga') = 'completed' FROM done});
$browser->becomes(q{/order-4711\s+completed/.test(document.querySelector('#view h2')?.innerText)}, 'and the page shows that it completed');
is($node->safe_psql('postgres', q{SELECT on_behalf_of, reason FROM stacksaga.operator_actions WHERE action = 'retry'}),
	'alice|the bank is open', 'recorded with her name');

# In bulk: those that are selected, with one reason.
$browser->evaluate(q{location.hash = '#/sagas?status=parked'});
$browser->becomes(q{document.querySelector('#view').dataset.shown === '#/sagas?status=parked' && document.querySelectorAll('#view tbody tr').length === 2}, 'two are parked still');
$browser->evaluate(q{[...document.querySelectorAll('#view button')].find(b => b.innerText.startsWith('Select all')).click()});
$browser->becomes(q{/2 selected/.test(document.querySelector('#view').innerText)}, 'both are selected');
$browser->evaluate(q{document.querySelector('#view [data-action=retry]').click()});
type_into('#reason', 'both');
for my $expected ('Nothing has been done yet', 'Done')
{
	$browser->evaluate(q{document.querySelector('#go').click()});
	$browser->becomes("/$expected/.test(document.querySelector('#dialog').innerText)", "bulk: $expected");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.parked_sagas}), '0', 'both are retried');
$browser->evaluate(q{document.querySelector('#dialog').close()});

# An action of the page: tried, then done.
sub act_in_page
{
	my ($place, $reason, $query, $expected) = @_;
	my $before = $node->safe_psql('postgres', $query);
	$browser->evaluate("document.querySelector('$place').click()");
	type_into('#reason', $reason);
	$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
	$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, "$reason: tried first");
	is($node->safe_psql('postgres', $query), $before, 'which changes nothing');
	$browser->evaluate(q{document.querySelector('#go').click()});
	$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText)}, "$reason: done");
	is($node->safe_psql('postgres', $query), $expected, 'which changes what it should');
	$browser->evaluate(q{document.querySelector('#dialog').close()});
	return;
}

# Dead messages: two that are selected are redriven, one is discarded, the rest redriven together.
is(StacksagaSite::add_dead_messages($node, 4), 5, 'five messages are dead');
my $dead = 'SELECT count(*) FROM stacksaga.dead_messages';
my $rows = q{[...document.querySelectorAll('#view table.rows')].find(t => /^Dead messages/.test(t.caption.innerText))?.tBodies[0].rows};
$browser->evaluate(q{location.hash = '#/outbox/billing'});
$browser->becomes("$rows?.length === 5", 'they are listed');
$browser->evaluate("$rows\[$_].querySelector('input').click()") for 3, 4;
$browser->becomes(q{/2 selected/.test(document.querySelector('#view').innerText)}, 'two are selected');
like($browser->text('#view'), qr/SQL/, 'with SQL');
act_in_page('[aria-label="Redrive 2 messages of billing"]', 'the bank is open', $dead, 3);
$browser->becomes("$rows?.length === 3", 'and they are gone from the list');
ok(StacksagaSite::billed($node, 2), 'and delivered again');
my $discarded = $browser->evaluate("$rows\[1].querySelector('[data-action=discard]').getAttribute('aria-label')") =~ s/^Discard message //r;
act_in_page("[aria-label=\"Discard message $discarded\"]", 'paid by hand', $dead, 2);
is($node->safe_psql('postgres', "SELECT discard_reason FROM stacksaga.dead_message WHERE message_id = '$discarded'"), 'paid by hand', 'with its reason');
# Old ones are refused until she says in the dialog that she has looked at them.
$node->safe_psql('postgres', q{UPDATE stacksaga.dead_message SET published_at = published_at - interval '40 days' WHERE discarded_at IS NULL});
$browser->evaluate(q{document.querySelector('[aria-label="Redrive all of billing"]').click()});
type_into('#reason', 'all the others');
my @steps = ([ 'Nothing has been done yet', 2 ], [ 'older than stacksaga.dedupe_retention', 2 ],
	[ 'Nothing has been done yet', 2 ], [ '^Done', 0 ]);
for my $i (0 .. $#steps)
{
	my ($answer, $left) = @{ $steps[$i] };
	$browser->evaluate(q{document.querySelector('#past').click()}) if $i == 2;
	$browser->evaluate(q{document.querySelector('#go').click()});
	$browser->becomes(qq{/$answer/m.test(document.querySelector('#dialog').innerText)}, "redriving old messages: $answer");
	is($node->safe_psql('postgres', $dead), $left, "of which $left are left");
}
like($browser->evaluate(q{document.querySelector('#dialog').textContent}), qr/dry_run => false, past_dedupe_retention => true\)/, 'so does the SQL');
$browser->evaluate(q{document.querySelector('#dialog').close()});
ok(StacksagaSite::billed($node, 5), 'and all but the discarded one are delivered, with what one of them held');
is($node->safe_psql('postgres', "SELECT count(*) FROM billed WHERE message_id = '$discarded'"), '0', 'that one never');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.operator_actions WHERE on_behalf_of = 'alice' AND action ~ 'redrive|discard'}), '5',
	'each is recorded with her name');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT reason, ', ') FROM stacksaga.operator_actions WHERE action = 'redrive'}), 'all the others, the bank is open',
	'and with the reason that she gave');
$browser->becomes(q{/Dead messages, the oldest first: none/.test(document.querySelector('#view').innerText)}, 'the page shows none');

# A queue and a schedule are paused and go on; a step is resolved with what it returns.
$browser->evaluate(q{location.hash = '#/queues'});
$browser->becomes(q{document.querySelector('#view [data-action=pause-queue]') !== null}, 'a queue can be paused');
$browser->becomes(q{/\b7\b[^]*\b2\b/.test(document.querySelector('#view tbody tr').innerText.split('open')[1] ?? '')},
	'its charts show what was completed and what failed in the last hour');
act_in_page('#view [data-action=pause-queue]', 'inventory', 'SELECT paused FROM stacksaga.queues', 't');
$browser->becomes(q{document.querySelector('#view [data-action=resume-queue]') !== null}, 'then it can go on');
act_in_page('#view [data-action=resume-queue]', 'done', 'SELECT paused FROM stacksaga.queues', 'f');
$browser->evaluate(q{location.hash = '#/schedules'});
$browser->becomes(q{document.querySelector('#view [data-action=pause-schedule]') !== null}, 'a schedule can be paused');
act_in_page('#view [data-action=pause-schedule]', 'holidays', 'SELECT paused FROM stacksaga.schedules', 't');
my $other = $node->safe_psql('postgres', q{
	SELECT s.saga_id FROM stacksaga.sagas s WHERE s.saga LIKE 'order%' AND status = 'running'
	   AND NOT EXISTS (SELECT FROM stacksaga.saga_history h WHERE h.saga_id = s.saga_id AND h.step = 'price') LIMIT 1});
$browser->evaluate("location.hash = '#/saga/$other'");
$browser->becomes(q{document.querySelector('#view [data-action=resolve]') !== null}, 'a step can be resolved');
$browser->evaluate(q{document.querySelector('#view [data-action=resolve]').click()});
$browser->evaluate(q{document.querySelector('#output').focus()});
type_into('#output', '{"price": 9');
type_into('#reason', 'asked by phone');
$browser->press('Enter', windowsVirtualKeyCode => 13, text => "\r");
is($browser->evaluate(q{document.querySelector('#output').validity.customError}), JSON::PP::true, 'what is no JSON is not sent');
type_into('#output', '}');
$browser->evaluate(q{document.querySelector('#go').click()});
$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, 'it is tried first');
$browser->evaluate(q{document.querySelector('#go').click()});
$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText)}, 'then it is done');
is($node->safe_psql('postgres', "SELECT output FROM stacksaga.effect WHERE saga_id = '$other' AND output ? 'price'"), '{"price": 9}', 'with what it returns');
$browser->evaluate(q{document.querySelector('#dialog').close()});

# The payload of a dead message.
StacksagaSite::add_dead_messages($node, 1);
$browser->evaluate(q{location.hash = '#/outbox/billing'});
$browser->becomes(q{document.querySelector('#view [data-action=discard]') !== null}, 'a dead message can be discarded');
$browser->evaluate(q{document.querySelector('#view details[data-key=payload] summary').click()});
$browser->becomes(q{/confidential/.test(document.querySelector('#view .payload')?.innerText)}, 'its payload is shown');
$browser->evaluate(q{document.querySelector('#log-out').click()});
$browser->becomes(q{document.querySelectorAll('[data-action]').length === 0 && !document.querySelector('#log-in').hidden}, 'logged out, she reads only');

# One daemon for two databases: the page shows one, and the keyboard chooses.
$browser->ask('Page.navigate', url => 'about:blank');
$site->stop;
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->create_extension('second');
$node->safe_psql('second', q{SELECT stacksaga.grant_usage('page', kind) FROM unnest(ARRAY['coordinator', 'monitor', 'support']) AS kind});
$site = StacksagaSite->new($node, $program, '-d', $node->connstr('second') . ' user=page');
$url = $site->origin;
$browser->open_page("$url/");
$browser->becomes(q{document.querySelector('#database')?.textContent === 'postgres'}, 'the first is shown');
is($browser->evaluate(q{document.querySelector('#choose').labels.length}), 1, 'there is a choice, which has a label');
$browser->evaluate(q{document.querySelector('#choose').focus()});
$browser->press('ArrowDown', windowsVirtualKeyCode => 40);
$browser->becomes(q{document.querySelector('#database')?.textContent === 'second'}, 'chosen by keyboard, the other one is');
$browser->becomes(q{/Sagas, the newest first: none/.test(document.querySelector('#view').innerText)}, 'with its own sagas');

# The two refusals of the login and the one of old messages, which the browser logs as failed requests, are the
# only complaints.
my @complaints = grep { !/api\/login.*401|401.*api\/login|409.*api\/act\/redrive-all|api\/act\/redrive-all.*409/ } $browser->complaints;
is_deeply(\@complaints, [], 'the browser complains of nothing, its security policy included');
$browser->stop;
$site->stop;
done_testing();
