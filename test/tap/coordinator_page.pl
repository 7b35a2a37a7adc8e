# The page in a browser without a screen: the ring of a real server with what its nodes own, are granted and
# confirm, a suspected node, a blocked key, a lagging subscription and a parked saga on it; sagas by status and
# a saga's timeline; the pause button; one of several databases; nothing that its policy forbids. Driven over
# the browser's debugging pipe. PAGE_SCREENSHOT names a file for a picture of it.
use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use MIME::Base64;
use POSIX ();
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

sub program_of
{
	my ($name) = @_;
	return (grep { -x } map { "$_/$name" } split /:/, $ENV{PATH})[0];
}
my $program = program_of('stacksaga-coordinator');
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;
my $chromium = program_of('chromium-headless-shell') // program_of('chromium');
plan skip_all => 'no browser (package chromium-headless-shell) is here' unless defined $chromium;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');

# Three nodes, one of them unresponsive; a saga whose compensation fails; a message whose handler fails, and
# a later message of its key.
$node->safe_psql('postgres', q{
	SELECT stacksaga.alter_ring('default', 'default', setting, value)
	  FROM (VALUES ('publish_lead', '900 ms'), ('window_length', '1 second'),
				   ('dead_after', '2 hours'), ('suspect_after', '1 hour')) AS s(setting, value);
	SELECT stacksaga.register_node(n) FROM (VALUES ('till-1'), ('till-2'), ('till-3')) AS v(n);
	CREATE FUNCTION refuse(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION 'the <b>bank</b> says no' USING ERRCODE = 'SG424'; END $$;
	CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	CREATE FUNCTION refuse_message(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION 'no such customer' USING ERRCODE = 'SG424'; END $$;
	SELECT stacksaga.define_saga('transfer', ARRAY[
		stacksaga.sql_step('debit', 'public.act(stacksaga.step_call)', 'public.refuse(stacksaga.step_call)'),
		stacksaga.sql_step('credit', 'public.refuse(stacksaga.step_call)')]);
	SELECT stacksaga.create_subscription('billing', 'orders', 'public.refuse_message(stacksaga.message)');
	SELECT stacksaga.create_subscription('audit', 'orders');
});
my $saga = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.start_saga('transfer')});
$node->safe_psql('postgres', qq{SELECT stacksaga.publish('orders', '{"n": $_}', key => 'order-42')}) for 1, 2;
ok($node->poll_query_until('postgres', q{
		WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
		SELECT n >= 0 AND (SELECT count(*) FROM stacksaga.parked_sagas) = 1
			AND (SELECT count(*) FROM stacksaga.blocked_keys WHERE waiting = 1) = 1 FROM done}),
	'a saga is parked and a key is blocked');

my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
my $port = $free->sockport;
close $free;
my $master = IPC::Run::start(
	[ $program, 'master', '--name', 'coordinator-1', '--http', "127.0.0.1:$port", '-d', $node->connstr('postgres') ],
	'<', '/dev/null', '>', '/dev/null', '2>>', "$PostgreSQL::Test::Utils::log_path/page_daemon.log");
ok($node->poll_query_until('postgres', q{
		WITH beats AS MATERIALIZED (
			SELECT h.* FROM stacksaga.nodes m JOIN stacksaga.node n USING (node),
				   LATERAL stacksaga.heartbeat_node(n.node, n.incarnation) AS h)
		SELECT (SELECT count(*) FROM beats) = 3 AND coverage = 1 FROM stacksaga.ring_status}),
	'all slots are assigned');
$node->safe_psql('postgres', q{
	UPDATE stacksaga.node SET heartbeat_at = heartbeat_at - interval '90 minutes' WHERE node = 'till-3';
	UPDATE stacksaga.outbox_message SET published_at = published_at - interval '5 minutes';
	SELECT stacksaga.acknowledge_checkpoint(node, incarnation, '{"offset": "9223372036854775807"}')
	  FROM stacksaga.node WHERE node = 'till-1';
	SELECT count(*) FROM stacksaga.start_sagas('transfer', ARRAY['{}', '{}']::jsonb[])});

# The browser: JSON messages that end with a NUL, on its descriptors 3 and 4.
local $SIG{PIPE} = 'IGNORE';
$^F = 20; # these pipes are for the child
pipe(my $to_read, my $to) or die $!;
pipe(my $from, my $from_write) or die $!;
my $profile = PostgreSQL::Test::Utils::tempdir();
my $browser = fork // die $!;
my $test = $$;
END { kill q(KILL), $browser if $browser && $$ == $test; }
if ($browser == 0)
{
	POSIX::dup2(fileno($to_read), 30);
	POSIX::dup2(fileno($from_write), 31);
	POSIX::dup2(30, 3);
	POSIX::dup2(31, 4);
	open STDOUT, '>', "$PostgreSQL::Test::Utils::log_path/browser.log";
	open STDERR, '>&', \*STDOUT;
	exec $chromium, '--no-sandbox', '--headless', '--disable-gpu', '--remote-debugging-pipe',
	  "--user-data-dir=$profile", '--window-size=1100,1500', 'about:blank';
}
close $to_read;
close $from_write;
$to->autoflush;

my ($next, $session, $buffer, @events) = (0, undef, '');
sub message
{
	while ($buffer !~ /\0/)
	{
		vec(my $ready = '', fileno($from), 1) = 1;
		select($ready, undef, undef, 60) > 0 or die 'the browser does not answer';
		sysread($from, $buffer, 65536, length $buffer) or die 'the browser has ended';
	}
	$buffer =~ s/^([^\0]*)\0//;
	return decode_json($1);
}
sub ask
{
	my ($method, %parameters) = @_;
	my %question = (id => ++$next, method => $method, params => \%parameters);
	$question{sessionId} = $session if defined $session;
	print {$to} encode_json(\%question), "\0";
	while (1)
	{
		my $answer = message();
		if (($answer->{id} // 0) == $next)
		{
			die "$method: $answer->{error}{message}" if $answer->{error};
			return $answer->{result};
		}
		push @events, $answer;
	}
}
sub evaluate
{
	my ($script) = @_;
	my $result = ask('Runtime.evaluate', expression => $script, returnByValue => JSON::PP::true,
		awaitPromise => JSON::PP::true);
	die "$script: " . encode_json($result->{exceptionDetails}) if $result->{exceptionDetails};
	return $result->{result}{value};
}
sub becomes
{
	my ($script, $test) = @_;
	my $end = time + 60;
	select undef, undef, undef, 0.05 while !evaluate($script) && time < $end;
	return ok(evaluate($script), $test);
}
sub is_on_page
{
	my ($place, $pattern, $test) = @_;
	return like(evaluate("document.querySelector('$place').innerText"), $pattern, $test);
}

my $target = ask('Target.createTarget', url => 'about:blank');
$session = ask('Target.attachToTarget', targetId => $target->{targetId}, flatten => JSON::PP::true)->{sessionId};
ask("$_.enable") for qw(Page Runtime Log);
ask('Page.navigate', url => "http://127.0.0.1:$port/");
becomes(q{document.querySelectorAll('#rings svg path').length > 0}, 'the ring is drawn');
is_on_page('#pills', qr/active 2\s.*suspected 1/s, 'two nodes are active, one is suspected');
is_on_page('#rings', qr/till-3\s+suspected/, 'which the table shows');
is_on_page('#attention', qr/Parked sagas: 1.*transfer \Q$saga\E.*debit \(compensate\).*the <b>bank<\/b> says no/s,
	'the parked saga needs attention, its error is text');
is_on_page('#attention', qr/Blocked keys.*billing\s+orders\s+order-42.*no such customer\s+1$/ms, 'so does the blocked key');
is_on_page('#attention', qr/Lagging subscriptions.*audit\s+orders\s+services\s+5 min/s, 'so does a subscription without a reader');
is_on_page('#attention', qr/Unresponsive nodes.*till-3\s+default \/ default\s+suspected\s+90 min/s, 'and the unresponsive node');
is_on_page('#summary', qr/^1 parked saga, 1 blocked key, 1 lagging subscription, 1 unresponsive node, \d+ problems?\.$/,
	'a summary is announced to a screen reader');
is(evaluate(q{document.querySelector('#summary').getAttribute('role')}), 'status', 'when it changes');
is_on_page('#sagas', qr/By status.*pending\s+2\s+running\s+0\s.*parked\s+1\s+completed\s+0/s, 'sagas are counted by status');
is_on_page('#subscriptions', qr/audit\s+orders\s+services.*billing\s+orders\s+public\.refuse_message\(stacksaga\.message\)/s,
	'and all subscriptions');
# What each node owns and was granted, as the database has it, and what it confirms.
for my $line (split /\n/, $node->safe_psql('postgres', q{
	SELECT o.node, count(*) FROM stacksaga.slot s JOIN stacksaga.node o ON o.incarnation = s.owner GROUP BY 1}))
{
	my ($name, $slots) = split /\|/, $line;
	my $row = qq{[...document.querySelectorAll('#rings table:first-child tbody tr')]
		.find(r => r.cells[0].innerText === '$name').cells};
	is(evaluate("${row}[4].innerText"), $slots, "$name owns $slots slots");
	# The unresponsive one is granted no more slots; the others take its slots over when they beat.
	my $granted = $name eq 'till-3' ? 0 : 128;
	becomes("${row}[5].innerText === '$granted'", "and is granted $granted");
}
is_on_page('#rings', qr/"offset":"9223372036854775807"/, 'the page shows a confirmation unchanged');
evaluate(q{document.querySelector('#rings details').open = true});
is(evaluate(q{(() => { const t = [...document.querySelectorAll('#rings details td:nth-child(-n+2)')]
		.map(c => BigInt(c.innerText)); let holes = 0;
	for (let i = 1; i + 1 < t.length; i += 2) if (t[i] + 1n !== t[i + 1]) ++holes;
	return `${t[0]} ${t.at(-1)} ${holes}`; })()}),
	'-9223372036854775808 9223372036854775807 0', 'the tokens of the table are exact, without a hole');
is(evaluate(q{document.querySelectorAll('#rings svg path').length}),
	evaluate(q{document.querySelectorAll('#rings details tbody tr').length}), 'the picture has a row for each arc');

# The pause button: nothing is drawn while it is pressed.
evaluate(q{document.querySelector('#pause').click()});
is(evaluate(q{document.querySelector('#pause').getAttribute('aria-pressed')}), 'true', 'it can be paused');
evaluate(q{document.querySelector('#database').textContent = 'mark'});
is(evaluate(q{update().then(() => document.querySelector('#database').textContent)}), 'mark',
	'then nothing is drawn');
evaluate(q{document.querySelector('#pause').click()});
becomes(q{document.querySelector('#database').textContent === 'postgres'}, 'and goes on');
ok(evaluate(q{document.querySelector('#rings details').open}), 'what was open stays open');

# By keyboard alone: the first stop is the button, and the parked saga links to its timeline.
evaluate(q{document.activeElement.blur()});
sub press
{
	my ($key, %more) = @_;
	ask('Input.dispatchKeyEvent', type => $_, key => $key, code => $key, %more) for 'keyDown', 'keyUp';
	return evaluate(q{document.activeElement?.id});
}
evaluate(q{document.querySelector('#pause').click()}); # so that nothing moves
evaluate(q{document.body.setAttribute('tabindex', '-1'); document.body.focus()});
is(press('Tab', windowsVirtualKeyCode => 9), 'pause', 'the first stop of the keyboard is the button');
is(press('Tab', windowsVirtualKeyCode => 9), "parked-$saga", 'the next the parked saga');
press('Enter', windowsVirtualKeyCode => 13, text => "\r");
becomes(q{!document.querySelector('#timeline').hidden}, 'which opens its timeline');
is_on_page('#timeline', qr/start of saga transfer.*debit/s, 'step by step');
is(evaluate(q{document.activeElement.id}), 'timeline', 'and focused');
evaluate(q{document.querySelector('#pause').click()});

# Accessible names, and contrast of 4.5 to 1 for text in both colour schemes.
is(evaluate(q{[...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length}), 0,
	'pictures have names');
is(evaluate(q{[...document.querySelectorAll('table')].filter(t => !t.caption || !t.querySelector('th[scope=col]')).length}),
	0, 'tables have captions and heads');
is(evaluate(q{[...document.querySelectorAll('input')].filter(i => i.labels.length === 0).length}), 0, 'inputs have labels');
my $contrast = q{(() => {
	const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(x => x / 255)
		.map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const back = light(getComputedStyle(document.body).backgroundColor);
	return Math.min(...[...document.querySelectorAll('h1,h2,td,th,.pill,.bad,.good,.warn,button')].map(e => {
		const text = light(getComputedStyle(e).color);
		return (Math.max(text, back) + .05) / (Math.min(text, back) + .05); })); })()};
for my $scheme ('light', 'dark')
{
	ask('Emulation.setEmulatedMedia', features => [ {name => 'prefers-color-scheme', value => $scheme} ]);
	cmp_ok(evaluate($contrast), '>=', 4.5, "text can be read in $scheme");
}
ask('Emulation.setEmulatedMedia', features => [ {name => 'prefers-color-scheme', value => 'light'} ]);

# A dark page has no light corner: what is filled takes the colours of the scheme.
for my $scheme ('light', 'dark')
{
	ask('Emulation.setEmulatedMedia', features => [ {name => 'prefers-color-scheme', value => $scheme} ]);
	is(evaluate(q{matchMedia('(prefers-color-scheme: dark)').matches
		=== (getComputedStyle(document.body).backgroundColor.match(/\d+/)[0] < 128)}), JSON::PP::true,
		"the page is $scheme when it should be");
}
ask('Emulation.setEmulatedMedia', features => [ {name => 'prefers-color-scheme', value => 'light'} ]);

if ($ENV{PAGE_SCREENSHOT})
{
	evaluate(q{document.querySelector('#rings details').open = false; document.activeElement.blur(); scrollTo(0, 0)});
	open my $picture, '>:raw', $ENV{PAGE_SCREENSHOT} or die $!;
	print {$picture} decode_base64(ask('Page.captureScreenshot', format => 'png',
		captureBeyondViewport => JSON::PP::true,
		clip => {x => 0, y => 0, width => 1100, height => evaluate('document.body.scrollHeight'), scale => 0.6})->{data});
	close $picture;
}

# One daemon for two databases: the page shows one, and the keyboard chooses.
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->create_extension('second');
ask('Page.navigate', url => 'about:blank');
$master->signal('TERM');
$master->finish;
$master = IPC::Run::start(
	[
		$program, 'master', '--http', "127.0.0.1:$port", '-d', $node->connstr('postgres'), '-d',
		$node->connstr('second')
	],
	'<', '/dev/null', '>', '/dev/null', '2>>', "$PostgreSQL::Test::Utils::log_path/page_daemon.log");
my $web = HTTP::Tiny->new(timeout => 10);
my @shown;
my $end = time + 60;
while (@shown < 2 && time < $end)
{
	select undef, undef, undef, 0.05;
	my $answer = $web->get("http://127.0.0.1:$port/status");
	@shown = map { $_->{status} ? $_->{name} : () } @{ decode_json($answer->{content})->{databases} } if $answer->{success};
}
is(scalar(@shown), 2, 'status lists both');
ask('Page.navigate', url => "http://127.0.0.1:$port/");
becomes(q{document.querySelector('#database')?.textContent === 'postgres'}, 'the first is shown');
is(evaluate(q{document.querySelector('#choose').labels.length}), 1, 'there is a choice, which has a label');
evaluate(q{document.querySelector('#choose').focus()});
press('ArrowDown', windowsVirtualKeyCode => 40);
becomes(q{document.querySelector('#database')?.textContent === 'second'}, 'chosen by keyboard, the other one is');
ask('Page.navigate', url => "http://127.0.0.1:$port/#$saga");
becomes(qq{document.querySelector('#timeline')?.innerText.includes('start of saga transfer')},
	'a timeline is found in any database');
my $scraped = $web->get("http://127.0.0.1:$port/metrics")->{content};
like($scraped, qr/^stacksaga_coordinator_database_up\{database="\Q$_\E"\} 1$/m, "metrics have a label for $_") for @shown;
like($scraped, qr/^stacksaga_sagas_parked\{database="\Q$shown[0]\E"\} 1\nstacksaga_sagas_parked\{database="\Q$shown[1]\E"\} 0$/m,
	'and are of each');
is($web->get("http://127.0.0.1:$port/status?database=nowhere")->{status}, 404, 'a database that is not served is not found');
is(decode_json($web->get("http://127.0.0.1:$port/status?database=$shown[1]")->{content})->{database}, 'second',
	'one can be asked for');

my @complaints = grep { $_ !~ /favicon/ } map { encode_json($_->{params}) }
  grep { $_->{method} =~ /^(Log\.entryAdded|Runtime\.(exceptionThrown|consoleAPICalled))$/ } @events;
is_deeply(\@complaints, [], 'the browser complains of nothing, its security policy included');

$session = undef;
eval { ask('Browser.close') };
waitpid $browser, 0;
$master->signal('TERM');
$master->finish;
done_testing();
