# Programs that a test keeps running while it kills, freezes and ends them, as a supervisor would.
#
#   my $programs = StacksagaPrograms->new;                 # logs of its own, beside those of the test's servers
#   $programs->add('north', sub { return ($program, 'agent', '--name', 'north') });
#   $programs->keep_running;        # starts what does not run; called again and again
#   $programs->kill_one('north');   # also end_one, freeze_one
#   $programs->stop_all;            # also done when the test dies
#
# An end that nobody asked for is remembered: unexpected() names it, unless the program may end by itself.
package StacksagaPrograms;

use strict;
use warnings;

use File::Basename;
use POSIX ();
use PostgreSQL::Test::Utils;

my @all;

sub new
{
	my ($class) = @_;
	# Tests run side by side, and their programs may have the same names.
	my $logs = "$PostgreSQL::Test::Utils::log_path/" . basename($0, '.pl');
	mkdir $logs;
	my $self = bless { logs => $logs, of => {}, unexpected => [], thawing => [] }, $class;
	push @all, $self;
	return $self;
}

# The command is made anew for each start, so that a name in it may be another one each time.
sub add
{
	my ($self, $name, $command, %options) = @_;
	$self->{of}{$name} = { command => $command, log => "$self->{logs}/$name.log", starts => 0, %options };
	return;
}

sub names
{
	my ($self, $pattern) = @_;
	return sort grep { /$pattern/ } keys %{ $self->{of} };
}

sub keep_running
{
	my ($self) = @_;
	for my $name ($self->names(qr/./))
	{
		my $one = $self->{of}{$name};
		$self->reap($name, POSIX::WNOHANG) if defined $one->{pid};
		$self->start($name) unless defined $one->{pid};
	}
	return;
}

sub start
{
	my ($self, $name) = @_;
	my $one = $self->{of}{$name};
	my @command = $one->{command}->($one->{starts}++);
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $one->{log};
		open STDERR, '>&', \*STDOUT;
		exec @command or POSIX::_exit(127);
	}
	$one->{pid} = $pid;
	$one->{expected} = undef;
	return;
}

# Takes note of how it ended, if it has.
sub reap
{
	my ($self, $name, $flags) = @_;
	my $one = $self->{of}{$name};
	return if waitpid($one->{pid}, $flags) == 0;
	my $status = ($? & 127) ? 'signal ' . ($? & 127) : 'exit code ' . ($? >> 8);
	push @{ $self->{unexpected} }, "$name ended with $status, see $one->{log}"
	  if !$one->{may_end} && ($one->{expected} // '') ne $status;
	delete $one->{pid};
	return;
}

# Each says whether there was somebody to do it to.
sub kill_one
{
	my ($self, $name) = @_;
	my $one = $self->{of}{$name};
	return 0 unless defined $one->{pid};
	$one->{expected} = 'signal 9';
	kill 'KILL', $one->{pid};
	return 1;
}

sub end_one
{
	my ($self, $name) = @_;
	my $one = $self->{of}{$name};
	return 0 unless defined $one->{pid} && !defined $one->{expected};
	$one->{expected} = 'exit code 0';
	kill 'TERM', $one->{pid};
	return 1;
}

sub freeze_one
{
	my ($self, $name, $seconds) = @_;
	my $pid = $self->{of}{$name}{pid};
	return defined $pid && $self->freeze_process($pid, $seconds);
}

# A process of its own ends it: what is frozen may hold a lock in the server that all wait for.
sub freeze_process
{
	my ($self, $pid, $seconds) = @_;
	return 0 unless kill 'STOP', $pid;
	my $thawing = fork // die "fork: $!";
	if ($thawing == 0)
	{
		pause($seconds);
		kill 'CONT', $pid;
		POSIX::_exit(0);
	}
	push @{ $self->{thawing} }, $thawing;
	return 1;
}

# Until nothing is frozen any more.
sub wait_for_thaw
{
	my ($self) = @_;
	waitpid $_, 0 for splice @{ $self->{thawing} };
	return;
}

# How long a fault lasts, or how often one comes; nothing that a test finds depends on it.
sub pause
{
	my ($seconds) = @_;
	select undef, undef, undef, $seconds if $seconds > 0;
	return;
}

sub unexpected
{
	my ($self) = @_;
	return @{ $self->{unexpected} };
}

sub stop_all
{
	my ($self) = @_;
	$self->wait_for_thaw;
	my @running = grep { defined $self->{of}{$_}{pid} } $self->names(qr/./);
	$self->end_one($_) for @running;
	$self->reap($_, 0) for @running;
	return;
}

END
{
	my $status = $?;
	for my $self (@all)
	{
		$self->wait_for_thaw;
		for my $one (grep { defined $_->{pid} } values %{ $self->{of} })
		{
			kill 'KILL', $one->{pid};
			waitpid $one->{pid}, 0;
		}
	}
	$? = $status;
}

1;
