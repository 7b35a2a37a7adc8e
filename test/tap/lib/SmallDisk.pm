# A disk that a test can fill: a small file system in memory that nobody else sees.
#
#   use SmallDisk size => '48m';             # before PostgreSQL::Test::*
#   my $folder = SmallDisk::folder();
#   SmallDisk::fill();                       # not a byte is left: writes fail with ENOSPC
#   SmallDisk::make_room();
#   SmallDisk::start_with_shop($node);       # a new cluster with a database on the disk
#
# The test runs itself again in a mount namespace that has the disk; no privilege is needed where users
# may make namespaces. Elsewhere it is skipped, and says why.
package SmallDisk;

use strict;
use warnings;

use Errno qw(ENOSPC);
use File::Temp;
use Test::More;

my $variable = 'STACKSAGA_SMALL_DISK';

# In the outer namespace we are root, or could not mount; in the inner one we are who we were, since
# the server refuses to run as root.
my $mount = q{
	folder=$1 options=$2 user=$3 group=$4; shift 4
	mount -t tmpfs -o "$options" none "$folder" || exit 125
	unshare --user --map-user="$user" --map-group="$group" "$@"
	status=$?
	umount "$folder"
	rmdir "$folder"
	exit "$status"
};

sub in_namespace
{
	my ($folder, $size, @command) = @_;
	my ($group) = split ' ', $);
	return ('unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', $mount, 'sh',
		$folder, "size=$size", $>, $group, @command);
}

sub import
{
	my (undef, %options) = @_;
	return if defined $ENV{$variable};
	my $trial = File::Temp::tempdir();
	open my $pipe, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh',
	  in_namespace($trial, $options{size}, 'true')
	  or die $!;
	my $output = join ' ', <$pipe>;
	close $pipe;
	if ($? != 0)
	{
		rmdir $trial;
		$output =~ s/\s+/ /g;
		plan skip_all => "no disk of our own can be mounted: $output";
	}
	my $folder = File::Temp::tempdir();
	$ENV{$variable} = $folder;
	exec in_namespace($folder, $options{size}, $^X, map({ "-I$_" } @INC), $0)
	  or die "unshare: $!";
}

sub folder
{
	return $ENV{$variable};
}

# Starts a new StacksagaCluster whose database shop, with the extension, lies on the disk; WAL does not.
sub start_with_shop
{
	my ($node) = @_;
	my $space = folder() . '/space';
	mkdir $space or die $!;
	$node->init;
	$node->append_conf('postgresql.conf', "autovacuum = off\n");
	$node->start;
	$node->safe_psql('postgres', "CREATE TABLESPACE small LOCATION '$space'");
	$node->safe_psql('postgres', 'CREATE DATABASE shop TABLESPACE small');
	$node->create_extension('shop');
	return;
}

sub ballast
{
	return folder() . '/ballast';
}

# Writes until nothing more fits.
sub fill
{
	open my $file, '>>', ballast() or die $!;
	my $size = 1 << 20;
	while ($size > 0)
	{
		my $written = syswrite $file, "\0" x $size;
		die "a write failed: $!" if !defined $written && $! != ENOSPC;
		$size >>= 1 if !defined $written;
	}
	close $file;
	return;
}

sub make_room
{
	return unlink(ballast());
}

1;
