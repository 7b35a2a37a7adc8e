# The page for who answers a call: a thousand parked sagas with errors of their own, errors of many lines, a child
# that is parked, a keyboard without a mouse, a phone, a session that ends meanwhile, addresses that name nothing.
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
$node->safe_psql('postgres', q{
	CREATE ROLE page LOGIN;
	SELECT stacksaga.grant_usage('page', kind) FROM unnest(ARRAY['coordinator', 'monitor', 'support']) AS kind;
	CREATE TABLE bank (is_open boolean NOT NULL);
	INSERT INTO bank VALUES (false);
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	CREATE FUNCTION book(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT is_open FROM bank) THEN RETURN '{}'; END IF;
		RAISE EXCEPTION 'account % is unknown', call.saga_id USING ERRCODE = 'SG424';
	END $$;
	CREATE FUNCTION print(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION E'the printer says:\n%', repeat('out of paper ', 1000) USING ERRCODE = 'SG424'; END $$;
	SELECT stacksaga.define_saga('transfer', ARRAY[
		stacksaga.sql_step('pay', 'public.act(stacksaga.step_call)', effect => 'irreversible'),
		stacksaga.sql_step('book', 'public.book(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('letter', ARRAY[
		stacksaga.sql_step('pay', 'public.act(stacksaga.step_call)', effect => 'irreversible'),
		stacksaga.sql_step('print', 'public.print(stacksaga.step_call)')]);
	SELECT stacksaga.define_saga('order', ARRAY[
		stacksaga.sql_step('reserve', 'public.act(stacksaga.step_call)', 'public.act(stacksaga.step_call)'),
		stacksaga.child_step('answer', 'letter'), stacksaga.signal_step('signature', 'signed'),
		stacksaga.timer_step('cool off', '3 days')]);
	SELECT stacksaga.start_saga('order', key => 'order-1')});
sub run_until_parked
{
	my ($number) = @_;
	return ok($node->poll_query_until('postgres', qq{
		WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
		SELECT n >= 0 AND (SELECT count(*) FROM stacksaga.parked_sagas) = $number FROM done}), "$number sagas are parked");
}
run_until_parked(1);
$node->safe_psql('postgres', q{
	SELECT count(*) FROM stacksaga.start_sagas('transfer', array_fill('{}'::jsonb, ARRAY[1000]),
		(SELECT array_agg('transfer-' || n) FROM generate_series(1, 1000) AS n))});
run_until_parked(1001);
my $order = $node->safe_psql('postgres', q{SELECT stacksaga.saga_id_of('order', 'order-1')});
my $letter = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.sagas WHERE saga = 'letter'});

my $site = StacksagaSite->new($node, $program, '--operators-file', StacksagaSite::operators_file($program, alice => 'right'));
my $url = $site->origin;
my $browser = StacksagaBrowser->new($chromium);
my %keys = (Enter => [ windowsVirtualKeyCode => 13, text => "\r" ], Tab => [ windowsVirtualKeyCode => 9 ], Escape => [ windowsVirtualKeyCode => 27 ]);

sub press { return $browser->press($_[0], @{ $keys{ $_[0] } }) }
sub type { return $browser->ask('Input.insertText', text => $_[0]) }
sub focus { return $browser->evaluate("document.querySelector('$_[0]').focus()") }
sub focused { return $browser->evaluate(q{document.activeElement.id || document.activeElement.innerText || document.activeElement.nodeName}) }
sub go_to
{
	my ($address, $condition) = @_;
	$browser->evaluate("location.hash = '$address'");
	return $browser->becomes("document.querySelector('#view').dataset.shown === '$address' && ($condition)", "$address is shown");
}
sub picture
{
	my ($name, $width, $height) = @_;
	$browser->screenshot("$ENV{PAGE_SCREENSHOTS}/use_$name.png", $width, $height) if $ENV{PAGE_SCREENSHOTS};
	return;
}

# A thousand errors that differ by an id are one problem.
$browser->resize(1280, 900);
$browser->open_page("$url/#/saga/$letter");
$browser->becomes(q{document.querySelector('#view h2') !== null && document.querySelector('#summary').innerText !== ''}, 'the page is there');
like($browser->text('#summary'), qr/^1001 parked sagas/, 'all parked sagas are counted');
my @lines = grep { /parked at book/ } split /\n/, $browser->text('#problems');
is(scalar(@lines), 1, 'errors that differ by an id are one line') or diag(join "\n", @lines);
like($lines[0], qr/1000 \S+ transfer parked at book: account \S+ is unknown$/, 'which says what they have in common');
unlike($lines[0], qr/[0-9a-f]{8}-/, 'and no id');
like($browser->text('#problems'), qr/1 \S+ letter parked at print: the printer says:/, 'an error that one saga has is beside it');
is($browser->evaluate(q{[...document.querySelectorAll('#problems a')].some(a => a.hash === '#/sagas?status=parked&saga=transfer')}), JSON::PP::true,
	'the others are a link away');
like($browser->evaluate('document.title'), qr/^$letter parked \S+ stacksaga: postgres$/, 'the title of the window names the saga');

# A long error is a line that opens.
like($browser->text('#view .facts'), qr/Error\s+the printer says:/, 'the saga shows its error');
for my $width (1280, 390)
{
	$browser->resize($width, 900);
	cmp_ok($browser->evaluate(q{document.querySelector('#view .facts').offsetHeight}), '<', 900, "which does not fill a screen of $width pixels");
	cmp_ok($browser->evaluate(q{document.documentElement.scrollWidth}), '<=', $width, 'nor is wider');
	picture("error_$width", $width, 900);
}
$browser->resize(1280, 900);
$browser->evaluate(q{document.querySelector('#view .facts details summary').click()});
like($browser->text('#view .facts pre'), qr/^the printer says:\n(?:out of paper ){500}/, 'and is whole when it is opened');

# What an order waits for is one step away.
go_to("#/saga/$order", q{/order-1/.test(document.querySelector('#view h2').innerText)});
like($browser->text('#view .facts'), qr/Waits for\s+child saga letter.*Children\s+letter parked/s, 'an order that waits for a child shows its status');
is($browser->evaluate(q{document.querySelector('#view .facts a').hash}), "#/saga/$letter", 'and leads to it');
picture('order', 1280, 900);

# By keyboard from a list: the new view has the focus, and its heading is on the screen.
go_to('#/sagas?status=parked', q{document.querySelectorAll('#view tbody tr').length === 50});
$browser->evaluate(q{document.querySelectorAll('#view tbody a')[45].focus()});
press('Enter');
$browser->becomes(q{/^#.saga./.test(document.querySelector('#view').dataset.shown)}, 'a saga of the end of the list is shown');
$browser->becomes(q{document.activeElement.id === 'view'}, 'the view has the focus');
my $is_visible = q{(() => { const box = document.querySelector('#view h2').getBoundingClientRect();
	return box.top >= document.querySelector('header').getBoundingClientRect().bottom && box.bottom <= innerHeight; })()};
$browser->becomes($is_visible, 'and its heading is on the screen');
picture('followed', 1280, 900);

# A row above goes away: the focus stays where it is.
go_to('#/sagas?status=parked', q{document.querySelectorAll('#view tbody tr').length === 50});
$browser->evaluate(q{document.querySelectorAll('#view tbody input')[3].focus()});
my ($before, $chosen) = map { $browser->evaluate("document.querySelectorAll('#view tbody a')[$_].hash") =~ s/.*\///r } 1, 3;
$node->safe_psql('postgres', "UPDATE bank SET is_open = true; SELECT stacksaga.retry_saga('$before', 'try')");
$browser->becomes("document.querySelectorAll('#view tbody a')[1].hash !== '#/saga/$before'", 'a row goes away');
is($browser->evaluate(q{document.activeElement.closest('tr')?.querySelector('a').hash}), "#/saga/$chosen", 'one below it has the focus still');

# Logging in and out by keyboard.
focus('#log-in');
press('Enter');
is(focused(), 'login-user', 'the dialog has the focus');
type('alice');
press('Tab');
type('right');
press('Enter');
$browser->becomes(q{document.activeElement.id === 'view' && !document.querySelector('#log-out').hidden}, 'logged in, the view has the focus');
focus('#log-out');
press('Enter');
$browser->becomes(q{document.activeElement.id === 'log-in'}, 'one can log out, and in again');
press('Enter');
type('alice');
press('Tab');
type('right');
press('Enter');
$browser->becomes(q{document.activeElement.id === 'view' && !document.querySelector('#log-out').hidden}, 'which she does');

# An action by keyboard: the dialog keeps the focus, gives it back, and does nothing twice.
go_to("#/saga/$chosen", q{document.querySelector('#view [data-action=retry]') !== null});
focus('#view [data-action=retry]');
press('Enter');
press('Escape');
is($browser->evaluate('document.activeElement.dataset.action'), 'retry', 'a dialog that is left gives the focus back to its button');
press('Enter');
type('the bank is open');
press('Tab') for 1 .. 2;
is(focused(), 'go', 'the keyboard comes to the button that tries');
press('Enter');
$browser->becomes(q{/Nothing has been done yet/.test(document.querySelector('#dialog').innerText)}, 'it is tried');
unlike($browser->text('#dialog'), qr/Sqlstate|Error/, 'what no row has is not shown');
is(focused(), 'go', 'the button has the focus still');
press('Enter');
$browser->becomes(q{/^Done/m.test(document.querySelector('#dialog').innerText)}, 'then it is done');
is(focused(), 'Close', 'what is left to do has the focus');
focus('#reason');
press('Enter');
press('Escape');
$browser->becomes(q{document.activeElement.id === 'view'}, 'its button is gone: the view has the focus');
is($node->safe_psql('postgres', "SELECT count(*) FROM stacksaga.saga_actions WHERE saga_id = '$chosen' AND action = 'retry'"), '1', 'it is done once');

# All sagas of one error are tried at once.
$browser->becomes(q{document.querySelector('#problems [aria-label="Retry 998 parked sagas transfer"]') !== null}, 'all of an error can be retried');
$browser->evaluate(q{[...document.querySelectorAll('#problems summary')].find(e => /transfer parked/.test(e.innerText)).click()});
focus('#problems [aria-label="Retry 998 parked sagas transfer"]');
press('Enter');
type('the bank is open');
press('Enter');
$browser->becomes(q{/998 objects, the first 100/.test(document.querySelector('#dialog').innerText)}, 'what would happen to all of an error is shown');
press('Escape');

# A session that ends while a dialog is open.
go_to("#/saga/$letter", q{document.querySelector('#view [data-action=retry]') !== null});
focus('#view [data-action=retry]');
press('Enter');
type('no session');
$site->act('/api/logout', {}, {cookie => cookie(), 'x-csrf-token' => $browser->evaluate(q{fetch('api/session').then(r => r.json()).then(s => s.csrf_token)})});
press('Enter');
$browser->becomes(q{/the session has ended\. Log in again\./.test(document.querySelector('#dialog').innerText)}, 'the dialog says that the session has ended');
press('Escape');
$browser->becomes(q{!document.querySelector('#log-in').hidden && document.querySelectorAll('[data-action]').length === 0}, 'and the page asks for a login');

sub cookie
{
	my ($found) = grep { $_->{name} eq 'stacksaga_session' } @{ $browser->ask('Network.getCookies')->{cookies} };
	return "stacksaga_session=$found->{value}";
}

# What every reader can read, and what is on a phone's screen.
for my $scheme ('dark', 'light')
{
	$browser->colour_scheme($scheme);
	cmp_ok($browser->evaluate(q{(() => {
		const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(x => x / 255)
			.map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
		const field = document.querySelector('#search');
		const [dark, pale] = [getComputedStyle(field, '::placeholder').color, getComputedStyle(field).backgroundColor]
			.map(light).sort((a, b) => a - b);
		return (pale + .05) / (dark + .05); })()}), '>=', 4.5, "what a field is for can be read in $scheme");
}
$browser->resize(390, 900);
go_to('#/sagas?status=parked', q{document.querySelectorAll('#view tbody tr').length === 50});
cmp_ok($browser->evaluate(q{document.querySelector('#view tbody input').getBoundingClientRect().left}), '<', 50, 'the box of a row is at its edge');
picture('phone', 390, 900);
go_to("#/saga/$order", q{/order-1/.test(document.querySelector('#view h2').innerText)});
cmp_ok($browser->evaluate(q{Math.min(...[...document.querySelectorAll('.stages > li + li')].map(e =>
	e.getBoundingClientRect().left + parseFloat(getComputedStyle(e, '::before').left)))}), '>=', 0, 'no arrow of the diagram is cut off');
picture('diagram', 390, 900);

# Addresses that name nothing say so, once, and the next view does not.
$browser->evaluate(q{location.hash = '#/saga/00000000-0000-0000-0000-000000000000'});
$browser->becomes(q{document.querySelector('#view').innerText === 'No saga has this id.'}, 'an unknown saga is said to be unknown');
my $is_updated = $browser->evaluate(q{new Promise(done => { setTimeout(() => done(false), 10000); const seen = new MutationObserver(() => { seen.disconnect(); done(true); });
	seen.observe(document.querySelector('#updated'), {childList: true, characterData: true, subtree: true}); })});
is($is_updated, JSON::PP::true, 'the page updates itself all the same');
is($browser->evaluate(q{document.querySelector('#failure').hidden}), JSON::PP::true, 'and says it once');
go_to('#/queues', 'true');
is($browser->evaluate(q{document.querySelector('#failure').hidden}), JSON::PP::true, 'and no longer by the next view');
$browser->evaluate(q{location.hash = '#/saga/%E0%A4%A'});
$browser->becomes(q{/invalid input syntax for type uuid/.test(document.querySelector('#view').innerText)}, 'an address with broken characters is refused, too');

# The page asks for what only an operator may see until it notices that the session has ended.
my @complaints = grep { !/status of 40[014]|status of 403.*saga-error-detail/ } $browser->complaints;
is_deeply(\@complaints, [], 'the browser complains of nothing else');
$browser->stop;
$site->stop;
done_testing();
