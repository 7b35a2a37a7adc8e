# A browser without a screen for a test, driven over its debugging pipe.
#
#   my $program = StacksagaBrowser::program();      # undef where there is none
#   my $browser = StacksagaBrowser->new($program);
#   $browser->open_page('http://127.0.0.1:1234/');
#   $browser->evaluate('document.title');           # what a script returns
#   $browser->becomes(SCRIPT, 'test name');         # ok() once the script returns true
#   $browser->press('Tab', windowsVirtualKeyCode => 9);
#   $browser->complaints;                           # what the browser logged: errors, refused requests
package StacksagaBrowser;

use strict;
use warnings;

use File::Basename;
use JSON::PP;
use MIME::Base64;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my @running;
my $test = $$;
# Each browser is a process group.
END { kill '-KILL', @running if $$ == $test && @running; }

sub program
{
	my @names = map { my $name = $_; map { "$_/$name" } split /:/, $ENV{PATH} } 'chromium-headless-shell', 'chromium';
	return (grep { -x } @names)[0];
}

# The browser's messages are JSON that ends with a NUL, on its descriptors 3 and 4.
sub new
{
	my ($class, $program) = @_;
	local $^F = 20; # these pipes are for the child
	pipe(my $to_read, my $to) or die $!;
	pipe(my $from, my $from_write) or die $!;
	my $profile = PostgreSQL::Test::Utils::tempdir();
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		setpgrp;
		close $to; # or the browser would not notice that the test has ended
		close $from;
		POSIX::dup2(fileno($to_read), 30);
		POSIX::dup2(fileno($from_write), 31);
		POSIX::dup2(30, 3);
		POSIX::dup2(31, 4);
		open STDOUT, '>', "$PostgreSQL::Test::Utils::log_path/" . basename($0, '.pl') . '_browser.log';
		open STDERR, '>&', \*STDOUT;
		exec $program, '--no-sandbox', '--headless', '--disable-gpu', '--remote-debugging-pipe',
		  "--user-data-dir=$profile", '--window-size=1280,900', 'about:blank';
	}
	push @running, $pid;
	close $to_read;
	close $from_write;
	$to->autoflush;
	$SIG{PIPE} = 'IGNORE';
	my $self = bless {pid => $pid, to => $to, from => $from, buffer => '', next => 0, events => []}, $class;
	my $target = $self->ask('Target.createTarget', url => 'about:blank');
	$self->{session} =
	  $self->ask('Target.attachToTarget', targetId => $target->{targetId}, flatten => JSON::PP::true)->{sessionId};
	$self->ask("$_.enable") for qw(Page Runtime Log);
	$self->ask('Emulation.setScrollbarsHidden', hidden => JSON::PP::true); # as on a phone, and in pictures
	return $self;
}

sub message
{
	my ($self) = @_;
	while ($self->{buffer} !~ /\0/)
	{
		vec(my $ready = '', fileno($self->{from}), 1) = 1;
		select($ready, undef, undef, 60) > 0 or die 'the browser does not answer';
		sysread($self->{from}, $self->{buffer}, 65536, length $self->{buffer}) or die 'the browser has ended';
	}
	$self->{buffer} =~ s/^([^\0]*)\0//;
	return decode_json($1);
}

sub ask
{
	my ($self, $method, %parameters) = @_;
	my %question = (id => ++$self->{next}, method => $method, params => \%parameters);
	$question{sessionId} = $self->{session} if defined $self->{session};
	print { $self->{to} } encode_json(\%question), "\0";
	while (1)
	{
		my $answer = $self->message;
		if (($answer->{id} // 0) == $self->{next})
		{
			die "$method: $answer->{error}{message}" if $answer->{error};
			return $answer->{result};
		}
		push @{ $self->{events} }, $answer;
	}
}

sub evaluate
{
	my ($self, $script) = @_;
	my $result = $self->ask('Runtime.evaluate', expression => $script, returnByValue => JSON::PP::true,
		awaitPromise => JSON::PP::true, userGesture => JSON::PP::true);
	die "$script: " . encode_json($result->{exceptionDetails}) if $result->{exceptionDetails};
	return $result->{result}{value};
}

# Nothing, where the page is just being replaced by another one.
sub evaluate_unless_it_navigates
{
	my ($self, $script) = @_;
	my $value = eval { $self->evaluate($script) };
	die $@ if $@ && $@ !~ /navigated or closed|context was destroyed|Cannot find .*context/;
	return $value;
}

sub becomes
{
	my ($self, $script, $name) = @_;
	my $end = time + 30;
	my $is_so;
	select undef, undef, undef, 0.05 until ($is_so = $self->evaluate_unless_it_navigates($script)) || time >= $end;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($is_so, $name) || diag($self->evaluate('document.body.innerText'));
}

# The text of an element, as a person sees it.
sub text
{
	my ($self, $place) = @_;
	return $self->evaluate("document.querySelector('$place')?.innerText ?? ''");
}

sub open_page
{
	my ($self, $url) = @_;
	$self->ask('Page.navigate', url => 'about:blank');
	return $self->ask('Page.navigate', url => $url);
}

sub resize
{
	my ($self, $width, $height) = @_;
	return $self->ask('Emulation.setDeviceMetricsOverride', width => $width, height => $height,
		deviceScaleFactor => 1, mobile => $width < 500 ? JSON::PP::true : JSON::PP::false);
}

sub colour_scheme
{
	my ($self, $scheme) = @_;
	return $self->ask('Emulation.setEmulatedMedia',
		features => [ {name => 'prefers-color-scheme', value => $scheme} ]);
}

# Presses a key; returns the id of the element that has the focus then.
sub press
{
	my ($self, $key, %more) = @_;
	$self->ask('Input.dispatchKeyEvent', type => $_, key => $key, code => $key, %more) for 'keyDown', 'keyUp';
	return $self->evaluate(q{document.activeElement?.id});
}

sub screenshot
{
	my ($self, $file, $width, $height) = @_;
	open my $picture, '>:raw', $file or die "$file: $!";
	print {$picture} decode_base64($self->ask('Page.captureScreenshot', format => 'png',
			clip => {x => 0, y => 0, width => $width, height => $height, scale => 1})->{data});
	return close $picture;
}

sub complaints
{
	my ($self) = @_;
	return map { encode_json($_->{params}) }
	  grep { $_->{method} =~ /^(Log\.entryAdded|Runtime\.(exceptionThrown|consoleAPICalled))$/ } @{ $self->{events} };
}

sub stop
{
	my ($self) = @_;
	$self->{session} = undef;
	eval { $self->ask('Browser.close') };
	waitpid $self->{pid}, 0;
	@running = grep { $_ != $self->{pid} } @running;
	return;
}

1;
