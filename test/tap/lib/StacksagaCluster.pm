# A server for a TAP test: PostgreSQL::Test::Cluster with the workers of stacksaga.
#
#   use StacksagaCluster;
#   my $node = StacksagaCluster->new('main');
#   $node->init(worker_databases => [ 'postgres' ]);    # preloaded; without it, nothing is preloaded
#   $node->start;
#   $node->create_extension('postgres');
#   $node->stop;
#
# Every option of PostgreSQL::Test::Cluster::init may be given too. test/tools/tap lets the server find
# the extension and the module of the tests (through TEMP_CONFIG); under `make installcheck` the extension is the installed one.
# Wait for a condition with poll_query_until, never for a time.
package StacksagaCluster;

use strict;
use warnings;

use Cwd;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use parent -norequire, 'PostgreSQL::Test::Cluster';

sub init
{
	my ($self, %params) = @_;
	my $databases = delete $params{worker_databases};

	$self->SUPER::init(%params);
	$self->append_conf('postgresql.conf', "max_worker_processes = 16\n");
	# Where make has built it; test/tools/tap lets the server find it with the extension.
	$self->append_conf('postgresql.conf', "dynamic_library_path = '" . getcwd() . "/test/module:\$libdir'\n")
	  if !defined $ENV{STACKSAGA_DESTDIR};
	if (defined $databases)
	{
		my $list = join(',', @$databases);
		$self->append_conf('postgresql.conf',
			"shared_preload_libraries = 'stacksaga'\nstacksaga.databases = '$list'\n");
	}
	return;
}

# The server's major version. The modules of 14 have no pg_version.
sub major
{
	my ($version) = run_command([ 'postgres', '--version' ]);
	return $version =~ /(\d+)/ ? $1 : die "no version in '$version'";
}

# Creates the extension in a database.
sub create_extension
{
	my ($self, $database) = @_;
	return $self->safe_psql($database, 'CREATE EXTENSION stacksaga');
}

# Polls on while the server recovers from a crash: psql then ends at once, sometimes before it was given the query.
sub poll_query_until
{
	my ($self, @query) = @_;
	my $deadline = time() + 180;
	while (1)
	{
		my $is_met = eval { $self->SUPER::poll_query_until(@query) };
		return $is_met unless $@;
		die $@ unless $@ =~ /Broken pipe/ && time() < $deadline;
	}
}

# Lets pg_dump dump the database, by the statement of docs/compatibility.md that 14 needs first.
sub prepare_dump
{
	my ($self, $database) = @_;
	return if major() >= 15;
	return $self->safe_psql($database, q{GRANT SELECT ON stacksaga.outbox_message_0, stacksaga.outbox_message_1,
		stacksaga.outbox_message_2 TO pg_read_all_data});
}

# Takes over what another server holds, by pg_upgrade: that one is stopped, and this one was not started yet. The modules
# of 14 do not know config_data(), nor its pg_upgrade --no-sync, and it writes into the current folder, where another
# test's may run.
sub upgrade_from
{
	my ($self, $old) = @_;
	my ($bin) = run_command([ 'pg_config', '--bindir' ]);
	my @no_sync = major() >= 15 ? '--no-sync' : ();
	chdir $self->basedir or die $!;
	ok(run_log([ 'pg_upgrade', @no_sync, '-b', $bin, '-B', $bin, '-d', $old->data_dir,
				'-D', $self->data_dir, '-s', $self->host, '-p', $old->port, '-P', $self->port ]), 'pg_upgrade')
	  or die 'pg_upgrade failed: there is nothing to look at after it';
	return;
}

# A test that succeeds when the statement fails with the SQLSTATE given.
sub raises_sqlstate
{
	my ($self, $database, $sql, $expected) = @_;
	my (undef, undef, $errors) =
	  $self->psql($database, $sql, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return like($errors, qr/ERROR:\s+$expected$/m, "raises $expected: $sql");
}

1;
