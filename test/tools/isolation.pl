#!/usr/bin/env perl
# isolation.pl PROGRAM ARGUMENT... <SPEC: what pg_isolation_regress launches in place of isolationtester.
# Hands isolationtester the spec with its includes, and prints one line for each permutation: its steps
# in order, each with what it returned. Nothing that isolationtester prints is left out but the text of
# the steps, the names of columns, and what setup returned:
#
#     begin1        it returned nothing
#     run1=1        it returned a row
#     read=[a|1, b] it returned rows, their columns or values with spaces
#     read=[]       it returned NULL or an empty string
#     read=none     it returned no row
#     claim2...     it waits
#     claim2=[ERROR: could not serialize access due to concurrent update]
#
# A line that this script does not recognise stays as it is after the step that it came with.
use strict;
use warnings;
use File::Basename qw(dirname);
use IPC::Open2     qw(open2);

my $includes = dirname(__FILE__) . '/../isolation/include';

sub content
{
	my ($name) = @_;
	open my $file, '<', $name or die "$name: $!\n";
	local $/ = undef;
	return scalar <$file>;
}

# The rows of a table, whose header and rule have been read, off the front of the lines.
sub rows
{
	my ($lines) = @_;
	my @rows;
	while (@$lines)
	{
		my $line = shift @$lines;
		last if $line =~ /^\(\d+ rows?\)$/;
		push @rows, join '|', map { s/^\s+|\s+$//gr } split /\|/, $line, -1;
	}
	return 'none' unless @rows;
	return @rows == 1 && $rows[0] =~ /^[^\s|]+$/ ? $rows[0] : '[' . join(', ', @rows) . ']';
}

# One permutation, from the text that follows "starting permutation: ".
sub outcome
{
	my ($text) = @_;
	my ($steps, @lines) = split /\n/, $text;
	my @words;
	while (@lines)
	{
		my $line = shift @lines;
		if ($line =~ /^step ("[^"]*"|\S+):[ ]?(<waiting \.\.\.>|<\.\.\. completed>)?$/)
		{
			push @words, $1 . (($2 // '') eq '<waiting ...>' ? '...' : '');
		}
		elsif (@lines && $lines[0] =~ /^-[-+]*$/)
		{
			shift @lines;
			my $rows = rows(\@lines);
			$words[-1] .= "=$rows" if @words;
		}
		elsif ($line =~ /^ERROR:  (.*)/ && @words)
		{
			$words[-1] .= "=[ERROR: $1]";
		}
		elsif ($line ne '')
		{
			push @words, "<$line>";
		}
	}
	return join(' ', @words) . "\n";
}

my $spec = do { local $/ = undef; <STDIN> };
$spec =~ s{^include[ ]+(\w+)[ ]*$}{content("$includes/$1.spec")}gme;

# isolationtester may end before it has read the spec.
local $SIG{PIPE} = 'IGNORE';
my $tester = open2(my $from, my $to, @ARGV);
print $to $spec;
close $to;
my $printed = do { local $/ = undef; <$from> // '' };
waitpid $tester, 0;
my $status = $?;

# isolationtester shows every step with its text, which the spec shows already.
while ($spec =~ /^step\s+("[^"]*"|\w+)\s*\{\s*([^}]*?)\s*\}/gm)
{
	my ($name, $sql) = ($1, $2);
	$printed =~ s/^step \Q$name\E: \s*\Q$sql\E(?:\s* (?=<waiting))?/step $name:/gm;
}
my ($head, @permutations) = split /^starting permutation: /m, $printed;
print +($head // '') =~ s/^Parsed test spec with \d+ sessions\n//mr =~ s/^\s*\n//gmr;
print outcome($_) for @permutations;
exit($status == 0 ? 0 : 1);
