# The page while it updates itself, in a browser without a screen: what is open, selected or typed stays; every error
# has its line, with its whole count; actions take all of a group; what is applied is visible.
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
my $url = $site->origin;
my $browser = StacksagaBrowser->new($chromium);
$browser->resize(1280, 900);
my %keys = (Enter => [ windowsVirtualKeyCode => 13, text => "\r" ], Tab => [ windowsVirtualKeyCode => 9 ], Escape => [ windowsVirtualKeyCode => 27 ]);

sub press { return $browser->press($_[0], @{ $keys{ $_[0] } }) }
sub type { return $browser->ask('Input.insertText', text => $_[0]) }
sub focus { return $browser->evaluate("document.querySelector('$_[0]').focus()") }
sub value { return $node->safe_psql('postgres', $_[0]) }
sub go_to
{
	my ($address, $condition) = @_;
	$browser->evaluate("location.hash = '$address'");
	return $browser->becomes("document.querySelector('#view').dataset.shown === '$address' && ($condition)", "$address is shown");
}

# The page reads everything again ten times a second, which it says each time.
$browser->ask('Page.addScriptToEvaluateOnNewDocument', source => q{
	const later = window.setTimeout;
	window.setTimeout = (f, ms, ...more) => later(f, ms === 2000 ? 100 : ms, ...more);});
sub updates
{
	my ($count) = @_;
	return is($browser->evaluate(qq{new Promise(done => { let left = $count; const seen = new MutationObserver(() => {
		if (--left === 0) { seen.disconnect(); done(true); } });
		seen.observe(document.querySelector('#updated'), {childList: true}); })}), JSON::PP::true, "$count updates");
}
sub log_in
{
	type('alice');
	press('Tab');
	type('right');
	return press('Enter');
}

$browser->open_page("$url/#/outbox/billing");
$browser->becomes(q{document.querySelector('#view h2') !== null && !document.querySelector('#log-in').hidden}, 'the page is there');

# After a login the focus is in the view, and Enter, pressed once more, undoes nothing.
focus('#log-in');
press('Enter');
log_in();
$browser->becomes(q{document.querySelector('#user').innerText === 'alice' && document.activeElement.id === 'view'}, 'alice logs in, and the view has the focus');
press('Enter');
updates(2);
is($browser->evaluate(q{document.querySelector('#user').innerText}), 'alice', 'she stays logged in');

# What is open stays open, with what it shows.
$browser->becomes(q{document.querySelector('#view details[data-key=payload]') !== null}, 'a message is dead');
$browser->evaluate(q{document.querySelector('#view details[data-key=payload] summary').click()});
$browser->becomes(q{/confidential/.test(document.querySelector('#view .payload')?.innerText)}, 'its payload is shown');
updates(10);
like($browser->text('#view .payload'), qr/confidential/, 'after ten updates it is shown still');
my $parked = value(q{SELECT stacksaga.saga_id_of('parcel', 'order-4711')});
for my $address ('#/sagas', "#/saga/$parked", '#/queues', '#/outbox', '#/schedules', '#/definitions', '#/definitions/parcel', '#/ring', '#/log')
{
	go_to($address, q{document.querySelector('#view h2') !== null});
	$browser->evaluate(q{document.querySelectorAll('details:not([open])').forEach(d => d.querySelector('summary').click())});
	my $state = q{JSON.stringify([document.querySelectorAll('details[open]').length, document.querySelectorAll('details').length,
		[...document.querySelectorAll('#view pre, #view .payload, #view code')].map(e => e.innerText)])};
	my $before = $browser->evaluate($state);
	updates(10);
	is($browser->evaluate($state), $before, "$address: ten updates close nothing and wipe nothing");
}

# Who it was stands on the page and in the timeline.
$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
my $other = value(q{SELECT saga_id FROM stacksaga.parked_sagas WHERE key = 'large'});
go_to("#/saga/$other", q{document.querySelector('#view [data-action=retry]') !== null});
focus('#view [data-action=retry]');
press('Enter');
type('the bank is open');
press('Enter');
$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, 'a retry is tried');
focus('#go');
press('Enter');
$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText)}, 'and done');
press('Enter');
$browser->becomes(q{!document.querySelector('#dialog').open && document.activeElement.id === 'view'}, 'one more Enter closes the dialog, and the view has the focus');
press('Enter');
updates(2);
is(value("SELECT count(*) FROM stacksaga.saga_actions WHERE saga_id = '$other'"), '1', 'a third one does nothing');
$browser->becomes(q{/retry\s+page\s+alice\s+the bank is open/.test(document.querySelector('#view').innerText)}, 'the saga says for whom the role acted');
like($browser->text('#timeline'), qr/retry by page for alice: the bank is open/, 'so does its timeline');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = false');

# A thousand and more sagas of one error, then one of another, and dead messages of a subscription that does not stop.
$node->safe_psql('postgres', q{
	CREATE FUNCTION break(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT is_open FROM bank) THEN RETURN '{}'; END IF;
		RAISE EXCEPTION '%', call.input ->> 'error' USING ERRCODE = 'SG424';
	END $$;
	SELECT stacksaga.define_saga('machine', ARRAY[
		stacksaga.sql_step('start', 'public.act(stacksaga.step_call)', effect => 'irreversible'),
		stacksaga.sql_step('run', 'public.break(stacksaga.step_call)')]);
	SELECT count(*) FROM stacksaga.start_sagas('machine',
		(SELECT array_agg(jsonb_build_object('error', 'part ' || n || ' is missing')) FROM generate_series(1, 1010) AS n))});
sub run_until
{
	my ($condition) = @_;
	return $node->poll_query_until('postgres', "WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n) SELECT n >= 0 AND $condition FROM done") || die $condition;
}
my $is_parked = q{(SELECT count(*) FROM stacksaga.parked_sagas WHERE saga = 'machine') = };
run_until("$is_parked 1010");
$node->safe_psql('postgres', q{SELECT count(*) FROM stacksaga.start_saga('machine', '{"error": "the oil is empty"}')});
run_until("$is_parked 1011");
$node->safe_psql('postgres', q{SELECT stacksaga.create_subscription('copying', 'copies', 'public.bill(stacksaga.message)', stop_on_first_failure => false);
	SELECT count(stacksaga.publish('copies', '{}', key => 'k' || n % 30)) FROM generate_series(1, 40) AS n});
run_until(q{(SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying') = 40});
$node->safe_psql('postgres', q{SELECT count(stacksaga.publish('orders', '{}', key => 'c' || n)) FROM generate_series(1, 30) AS n});
run_until(q{(SELECT count(*) FROM stacksaga.blocked_keys) = 31});
$browser->becomes(q{/31 \S+ key blocked, 31 \S+ message dead in billing/.test(document.querySelector('#problems').innerText)}, 'all blocked keys are counted');
my @lines = split /\n/, $browser->text('#problems');
my ($new, $old, $dead) = map { my $pattern = $_; grep { $lines[$_] =~ $pattern } 0 .. $#lines }
  qr/1 \S+ machine parked at run: the oil is empty/, qr/1010 \S+ machine parked at run: part \S+ is missing/, qr/40 \S+ message dead in copying: no such customer/;
ok(defined $new && defined $old && defined $dead, 'each error has a line with its whole count') or diag(join "\n", @lines);
cmp_ok($dead, '<', $new, 'the newest error is first');
cmp_ok($new, '<', $old, 'the oldest last');
like($browser->text('#summary'), qr/^101\d parked sagas, 31 blocked keys, 71 dead messages/, 'the summary counts all');
is(value('SELECT string_agg(parked::text, $$ $$ ORDER BY parked DESC) FROM stacksaga.error_groups() WHERE $$machine$$ = ANY (sagas)'), '1010 1', 'as error_groups() does');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
$browser->evaluate(q{document.querySelector('#problems [data-action=retry-group][aria-label="Retry 1010 parked sagas machine"]').click()});
type('the part is there');
press('Enter');
$browser->becomes(q{/to these 1000 first, and then to all others/.test(document.querySelector('#dialog').innerText)}, 'what would happen to the first thousand of an error is shown');
focus('#go');
press('Enter');
$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText) && /1010 objects/.test(document.querySelector('#dialog').innerText)}, 'and all of it is done');
is(value(q{SELECT count(*) || ' ' || count(DISTINCT reason) || ' ' || min(reason) FROM stacksaga.operator_actions WHERE action = 'retry' AND on_behalf_of = 'alice' AND reason ~ 'part'}),
	'1010 1 the part is there', 'each once, with the reason');
press('Escape');
$browser->evaluate(q{document.querySelector('#problems [data-action=redrive-group][aria-label="Redrive 40 dead messages of copying"]').click()});
type('the bank is open');
press('Enter');
$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, 'dead messages of an error are tried');
focus('#go');
press('Enter');
$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText)}, 'and redriven');
is(value(q{SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying'}), '0', 'all of them');
press('Escape');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = false');

# Redrive all redrives all, also where there are more than a call takes.
$node->safe_psql('postgres', q{SELECT count(stacksaga.publish('copies', '{}')) FROM generate_series(1, 1100) AS n});
run_until(q{(SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying') >= 1100});
my $all = value(q{SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying'});
go_to('#/outbox/copying', q{document.querySelector('#view [data-action=redrive-all]') !== null});
$browser->evaluate(q{document.querySelector('#view [data-action=redrive-all]').click()});
type('all');
press('Enter');
$browser->becomes(q{/to these 1000 first, and then to all others/.test(document.querySelector('#dialog').innerText)}, 'of many the first thousand are tried');
focus('#go');
press('Enter');
$browser->becomes(qq{/$all objects/.test(document.querySelector('#dialog').innerText)}, 'all are redriven');
is(value(q{SELECT count(*) FROM stacksaga.dead_messages WHERE subscription = 'copying'}), '0', 'none is left');
press('Escape');

# A filter that is applied is visible, on every page of the list.
go_to('#/sagas?saga=order&created_before=2099-01-02T03:04:05.000Z', q{document.querySelectorAll('#view tbody tr').length === 50});
my $filter = q{JSON.stringify(Object.fromEntries([...new FormData(document.querySelector('#view form.filters'))].filter(([, v]) => v)))};
my $applied = decode_json($browser->evaluate($filter));
is($applied->{saga}, 'order', 'the name is in its field');
like($applied->{created_before}, qr/^2099-01-0[123]T\d\d:04:05/, 'so is the instant');
$browser->evaluate(q{[...document.querySelectorAll('#view a')].find(a => a.innerText === 'Older').click()});
$browser->becomes(q{document.querySelectorAll('#view tbody tr').length === 10}, 'there are more');
is_deeply(decode_json($browser->evaluate($filter)), $applied, 'of the same filter');
$browser->evaluate(q{document.querySelector('#view form.filters').requestSubmit()});
$browser->becomes(q{document.querySelectorAll('#view tbody tr').length === 50 && /created_before=2099-01-02T03%3A04%3A05.000Z/.test(location.hash)}, 'submitted again it is the same');
go_to('#/sagas?status=broken', 'true');
go_to('#/sagas?saga=order&status=running', q{document.querySelectorAll('#view tbody tr').length > 0});

# While rows are selected the list stays where it is; what came is a line.
go_to('#/sagas', q{document.querySelectorAll('#view tbody tr').length === 50});
my $rows = q{[...document.querySelectorAll('#view tbody tr')].map(r => r.dataset.key).join()};
$browser->evaluate(q{document.querySelectorAll('#view tbody input')[2].click()});
my $before = $browser->evaluate($rows);
$node->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 12) AS n, LATERAL stacksaga.start_saga('parcel', key => 'came-' || n, run_at => stacksaga.clock_now() + interval '1 day')});
$browser->becomes(q{/^12 new$/m.test(document.querySelector('#view .buttons').innerText)}, 'twelve new ones are announced');
updates(3);
is($browser->evaluate($rows), $before, 'and the rows keep their places');
$browser->evaluate(q{document.querySelector('#view button[data-key=new]').click()});
isnt($browser->evaluate($rows), $before, 'the line shows them');
$browser->becomes(q{!/new/.test(document.querySelector('#view .buttons').innerText)}, 'and goes');

# A session that ends under a dialog: after the login what was typed is there.
my $running = $site->{running};
go_to("#/saga/$running", q{document.querySelector('#view [data-action=suspend]') !== null});
focus('#view [data-action=suspend]');
press('Enter');
type('typed before the session ended');
my ($cookie) = map { "stacksaga_session=$_->{value}" } grep { $_->{name} eq 'stacksaga_session' } @{ $browser->ask('Network.getCookies')->{cookies} };
$site->act('/api/logout', {}, {cookie => $cookie, 'x-csrf-token' => $browser->evaluate(q{fetch('api/session').then(r => r.json()).then(s => s.csrf_token)})});
press('Enter');
$browser->becomes(q{/the session has ended\. Log in again\./.test(document.querySelector('#dialog').innerText) && document.activeElement.id === 'login-user'}, 'the dialog asks for a login');
log_in();
$browser->becomes(q{document.querySelector('#reason')?.value === 'typed before the session ended'}, 'then what was typed is there');
updates(2);
focus('#go');
press('Enter');
$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, 'and can be tried');
press('Escape');

# A database that is down: one sentence, and as of when the rest is.
$node->stop;
$browser->becomes(q{/^The database does not answer\. What is shown is as of \d+:\d\d:\d\d[^.]*\.$/.test(document.querySelector('#failure').innerText)}, 'a database that is down is one sentence');
like($browser->text('#view h2'), qr/running/, 'what was read before is there');
# The daemon keeps what it read for a second.
my ($status, $deadline) = (undef, time + 60);
do { $status = $site->request('GET', '/status') } until $status->{status} == 503 || time > $deadline;
is($status->{status}, 503, 'there is no status');
unlike($status->{content} . $site->request('GET', '/api/queues')->{content}, qr/connection|server|socket/i, 'no viewer reads about the connection');
$node->start;
$browser->becomes(q{document.querySelector('#failure').hidden}, 'it is back');

$browser->stop;
$site->stop;
done_testing();
