# A coordinator of Citus and workers, for a TAP test: each a server of its own on this machine.
#
#   use StacksagaCitus;
#   StacksagaCitus::skip_without_citus();
#   my $cluster = StacksagaCitus->new(2);    # a coordinator and two workers, with the extension, citus_enable() not called
#   $cluster->coordinator->safe_psql(...); $cluster->worker(0)->safe_psql(...);
#   $cluster->add_worker;
#   StacksagaCitus->new(2, $settings);       # with more settings for each server
package StacksagaCitus;

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use StacksagaCluster;
use Test::More;

# test/tools/tap installs what $STACKSAGA_CITUS names beside the extension.
sub skip_without_citus
{
	my $node = StacksagaCluster->new('probe');
	$node->init;
	$node->start;
	# Where it is installed, it wants to be preloaded.
	my (undef, undef, $errors) = $node->psql('postgres', 'CREATE EXTENSION citus');
	$node->stop;
	plan skip_all => 'Citus is not installed' unless $errors =~ /shared_preload_libraries/;
	return;
}

sub new
{
	my ($class, $workers, $settings) = @_;
	my $self = bless { workers => [], settings => $settings // '' }, $class;
	$self->{coordinator} = $self->_start('coordinator', 1);
	my $port = $self->{coordinator}->port;
	$self->{coordinator}->safe_psql('postgres', qq{
		CREATE EXTENSION citus;
		SELECT citus_set_coordinator_host('127.0.0.1', $port)});
	$self->_join($self->{coordinator}, $self->_start("worker$_", 0)) for 1 .. $workers;
	$self->{coordinator}->safe_psql('postgres', 'CREATE EXTENSION stacksaga');
	return $self;
}

sub _start
{
	my ($self, $name, $has_workers) = @_;
	my $node = StacksagaCluster->new($name, own_host => 0);
	$node->init;
	my $port = $node->port;
	# Minor versions since 15.19 let logical replication name only the libraries of a list.
	my ($known) = run_command([ 'postgres', '--describe-config' ]);
	my $plugins = $known =~ /^output_plugin_libraries\t/m ? "output_plugin_libraries = 'pgoutput, citus'" : '';
	my $databases = $has_workers ? "stacksaga.databases = 'postgres'" : '';
	$node->append_conf('postgresql.conf', qq{
		shared_preload_libraries = 'citus, stacksaga'
		$databases
		listen_addresses = '127.0.0.1'
		max_connections = 100
		max_prepared_transactions = 100
		max_worker_processes = 32
		wal_level = logical
		max_wal_senders = 10
		max_replication_slots = 10
		citus.enable_version_checks = off
		citus.enable_statistics_collection = off
		citus.node_conninfo = 'sslmode=prefer'
		citus.local_hostname = '127.0.0.1'
		citus.recover_2pc_interval = '1s'
		citus.show_shards_for_app_name_prefixes = '*'
		$plugins
		log_statement = 'none'
		$self->{settings}});
	$node->append_conf('pg_hba.conf', 'host all all 127.0.0.1/32 trust');
	$node->start;
	return $node;
}

sub _join
{
	my ($self, $coordinator, $worker) = @_;
	$worker->safe_psql('postgres', 'CREATE EXTENSION citus');
	my $port = $worker->port;
	$coordinator->safe_psql('postgres', "SELECT citus_add_node('127.0.0.1', $port)");
	push @{ $self->{workers} }, $worker;
	return $worker;
}

sub add_worker
{
	my ($self) = @_;
	return $self->_join($self->{coordinator}, $self->_start('worker' . (1 + @{ $self->{workers} }), 0));
}

sub coordinator { return $_[0]{coordinator} }
sub worker { return $_[0]{workers}[$_[1]] }

1;
