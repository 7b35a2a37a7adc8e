# docs.pl COUNTS FILE...: what test/tools/docs does inside its private server. Prints one line a file
# and the differences below it; writes "PASSED FAILED" into the file COUNTS.
use strict;
use warnings;
use File::Basename qw(dirname);
use File::Temp     qw(tempdir tempfile);

# psql echoes it between blocks; no page holds it.
my $border = '--8<-- end of block --8<--';

# The blocks of a page, in order: { sql => text, line => number, expected => text or undef }.
sub blocks_of
{
	my ($text) = @_;
	my (@blocks, $last_end);
	while ($text =~ /^(?:```(\w*)[^\n]*\n(.*?)^```[ ]*$|<!--[ ]sql\n(.*?)^-->[ ]*$)/gms)
	{
		my ($language, $body, $hidden) = ($1, $2, $3);
		my ($start, $end) = ($-[0], $+[0]);
		my $line = 1 + (substr($text, 0, $start) =~ tr/\n//);
		if (defined $hidden || $language eq 'sql')
		{
			push @blocks, { sql => $hidden // $body, line => $line };
			$last_end = $end;
		}
		elsif ($language =~ /^(?:text|mermaid)$/ && defined $last_end
			&& substr($text, $last_end, $start - $last_end) =~ /^\s*$/)
		{
			$blocks[-1]{expected} = $body;
			undef $last_end;
		}
		else
		{
			undef $last_end;
		}
	}
	return @blocks;
}

# The files that a page brings along, by name: the block after a comment <!-- file NAME -->, or the rest of a comment
# <!-- file NAME ... -->, which readers do not see.
sub files_of
{
	my ($text) = @_;
	my %files;
	while ($text =~ /^<!--[ ]file[ ]([\w.-]+)(?:[ ]-->\n+```\w*\n(.*?)^```[ ]*$|\n(.*?)^-->[ ]*$)/gms)
	{
		$files{$1} = $2 // $3;
	}
	return %files;
}

# Writes them where the SQL of the page finds them: in the folder $STACKSAGA_DOCS.
sub write_files
{
	my ($text) = @_;
	my %files  = files_of($text);
	my $folder = $ENV{STACKSAGA_DOCS} = tempdir(CLEANUP => 1);
	chmod 0755, $folder;
	foreach my $name (keys %files)
	{
		open my $handle, '>:encoding(UTF-8)', "$folder/$name" or die "$name: $!\n";
		print $handle $files{$name};
		close $handle or die "$name: $!\n";
	}
	return;
}

# A page's or psql's text without what differs from run to run.
sub normal
{
	my ($text) = @_;
	$text =~ s/^psql:[^\n]*?: (?=[A-Z]+: )//gm;
	$text =~ s/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/ID/g;
	$text =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d(?::\d\d)?)?/INSTANT/g;
	$text =~ s/(?<=INSTANT) {2}(?=\S)/ /g;
	$text =~ s/(?<![\w.-])-?\d{13,14}\b/NUMBER/g;
	$text =~ s/-{4,}/--/g;
	$text =~ s/[ \t]+/ /g;
	$text =~ s/^ | $//gm;
	$text =~ s/\n{2,}/\n/g;
	$text =~ s/^\n+|\n+$//g;
	return $text;
}

# What psql prints for each block, all in one session.
sub run
{
	my ($database, @blocks) = @_;
	my ($script, $name) = tempfile(UNLINK => 1);
	print $script "$_->{sql}\n\\echo '$border'\n" foreach @blocks;
	close $script;
	chmod 0644, $name;
	open my $psql, '-|', "psql -X -d $database -f $name 2>&1" or die "psql: $!\n";
	local $/;
	my $output = <$psql>;
	close $psql or $output .= "\npsql ended with status " . ($? >> 8) . "\n";
	return split /^\Q$border\E\n/m, $output, -1;
}

# What is wrong with a block that printed this.
sub wrong_with
{
	my ($block, $printed) = @_;
	return "is not reached" if !defined $printed;
	if (!defined $block->{expected})
	{
		return $printed =~ /^.*(?:ERROR|FATAL|PANIC): |^psql ended with status/m ? "raises an error:\n$printed" : '';
	}
	my ($is, $shown) = (normal($printed), normal($block->{expected}));
	return $is eq $shown ? '' : "prints\n$printed\nand the page shows\n$block->{expected}";
}

# The anchors that a page's headings and its <a id="..."> make.
sub anchors_of
{
	my ($text) = @_;
	my %anchors = map { $_ => 1 } $text =~ /<a id="([\w-]+)">/g;
	while ($text =~ /^#+ +(.*?) *$/gm)
	{
		my $anchor = lc $1;
		$anchor =~ s/[^\w\- ]//g;
		$anchor =~ s/ /-/g;
		$anchors{$anchor} = 1;
	}
	return \%anchors;
}

sub content_of
{
	my ($file) = @_;
	open my $handle, '<:encoding(UTF-8)', $file or die "$file: $!\n";
	local $/;
	return <$handle>;
}

# The relative links of a page that lead nowhere.
sub broken_links
{
	my ($file, $text) = @_;
	my @broken;
	$text =~ s/^```.*?^```//gms;
	while ($text =~ /\]\(([^)\s]+)\)/g)
	{
		my $link = $1;
		next if $link =~ m{^\w+://};
		my ($path, $anchor) = split /#/, $link, 2;
		my $target = $path eq '' ? $file : dirname($file) . "/$path";
		if (!-e $target)
		{
			push @broken, "the link to $link leads nowhere\n";
		}
		elsif (defined $anchor && !anchors_of(content_of($target))->{$anchor})
		{
			push @broken, "the link to $link finds no such heading\n";
		}
	}
	return @broken;
}

# The files and folders of this repository that a page names in backticks and that are not there;
# a name may hold * and is read from the top.
sub missing_paths
{
	my ($text) = @_;
	my @missing;
	$text =~ s/^```.*?^```//gms;
	while ($text =~ m{`((?:coordinator|docs|expected|extension|sql|test)/[\w*./-]+)`}g)
	{
		my ($name, @found) = ($1, glob $1);
		push @missing, "there is no $name\n" if !@found || !-e $found[0];
	}
	return @missing;
}

# The blocks below <!-- from: FILE --> that are not in that file, word for word.
sub altered_excerpts
{
	my ($text) = @_;
	my @altered;
	while ($text =~ /^<!-- from: (\S+) -->\n```\w*\n(.*?)^```/gms)
	{
		my ($name, $block) = ($1, $2);
		push @altered, "the block from $name is not in it:\n$block" if !-e $name || index(content_of($name), $block) < 0;
	}
	return @altered;
}

my ($counts, @files) = @ARGV;
binmode STDOUT, ':encoding(UTF-8)';
my ($passed, $failed, $number) = (0, 0, 0);
foreach my $file (@files)
{
	my $text   = content_of($file);
	my @blocks = blocks_of($text);
	my @wrong  = (broken_links($file, $text), missing_paths($text), altered_excerpts($text));
	my $database = 'docs_' . ++$number;
	write_files($text);
	system('createdb', $database) == 0 or die "createdb failed\n";
	local $ENV{PGDATABASE} = $database;
	my @printed = @blocks ? run($database, @blocks) : ();
	foreach my $i (0 .. $#blocks)
	{
		my $wrong = wrong_with($blocks[$i], $printed[$i]);
		push @wrong, "the block in line $blocks[$i]{line} $wrong\n" if $wrong;
	}
	@wrong ? $failed++ : $passed++;
	printf "%-6s %s (%d blocks)\n", @wrong ? 'not ok' : 'ok', $file, scalar @blocks;
	print s/^/       /gmr foreach @wrong;
}
open my $handle, '>', $counts or die "$counts: $!\n";
print $handle "$passed $failed\n";
close $handle or die "$counts: $!\n";
exit($failed ? 1 : 0);
