# Workers are in nobody's way: extensions and databases are created, dropped, copied and renamed while
# they run, and they serve what is there afterwards.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;
use StacksagaWorkers;

# Two servers, preloaded and not; in the second one worker_ensure() starts what works.
my $preloaded = StacksagaCluster->new('listed');
$preloaded->init(worker_databases => [ 'shop' ]);
my $plain = StacksagaCluster->new('plain');
$plain->init;

foreach my $node ($preloaded, $plain)
{
	my $name = $node->name;
	my $ensure = sub {
		$node->safe_psql($_[0], 'SELECT stacksaga.worker_ensure()') if $node == $plain;
	};
	$node->append_conf('postgresql.conf', 'stacksaga.workers = 2');
	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE shop');
	$node->create_extension('shop');
	define_answer($node, 'shop');
	$ensure->('shop');
	wait_until_works($node, 'shop', 2);
	is(run_saga($node, 'shop', 'answer'), 'completed', "$name: workers work");

	# The extension. What the workers have seen of the first one means nothing in the second one,
	# where the same numbers stand for other things.
	$node->safe_psql('shop', 'DROP EXTENSION stacksaga CASCADE; CREATE EXTENSION stacksaga;');
	$node->safe_psql('shop', q{
		CREATE FUNCTION other(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '7'::jsonb $$;
		SELECT stacksaga.define_saga('other',
			ARRAY[stacksaga.sql_step('only', 'other(stacksaga.step_call)')])});
	$ensure->('shop');
	is(run_saga($node, 'shop', 'other'),
		'completed', "$name: an extension that is created again is served");
	is( $node->safe_psql('shop', 'SELECT output FROM stacksaga.sagas'),
		'{"only": 7}', "$name: as what it is");
	$node->wait_for_log(qr/worker-$_ of database "shop" is restarting: the extension was re-created/)
	  foreach 1 .. 2;
	wait_until_works($node, 'shop', 2);

	$node->safe_psql('shop', 'DROP EXTENSION stacksaga CASCADE');
	if ($node == $plain)
	{
		wait_for_workers($node, 'shop', 0);
		pass("$name: workers without an extension end");
	}
	else
	{
		$node->wait_for_log(qr/database "shop" has no extension "stacksaga": /);
		is(scalar(worker_pids($node, 'shop')), 2, "$name: workers without an extension wait");
	}
	$node->create_extension('shop');
	define_answer($node, 'shop');
	$ensure->('shop');
	is(run_saga($node, 'shop', 'answer'), 'completed', "$name: and serve the next one");
	wait_until_works($node, 'shop', 2);

	# The database.
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE shop');
	pass("$name: a database with workers can be copied");
	wait_until_works($node, 'shop', 2);
	$node->safe_psql('postgres', 'ALTER DATABASE shop RENAME TO store');
	$node->safe_psql('postgres', 'ALTER DATABASE store RENAME TO shop');
	pass("$name: and renamed, there and back");
	wait_until_works($node, 'shop', 2);
	is(run_saga($node, 'shop', 'answer'), 'completed', "$name: its workers are back");

	$ensure->('copy');
	$node->safe_psql('postgres', 'DROP DATABASE copy');
	pass("$name: a database with workers can be dropped");
	my $oid = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'shop'});
	$node->safe_psql('postgres', 'DROP DATABASE shop WITH (FORCE)');
	wait_for_workers($node, 'shop', 0);
	if ($node == $preloaded)
	{
		$node->safe_psql('postgres', 'CREATE DATABASE shop');
		$node->create_extension('shop');
		define_answer($node, 'shop');
		is(run_saga($node, 'shop', 'answer'), 'completed', "$name: the next of that name is served");
	}
	else
	{
		$node->wait_for_log(qr/FATAL:  database $oid does not exist/);
		$node->safe_psql('postgres', 'CREATE DATABASE shop');
		$node->create_extension('shop');
		$ensure->('shop');
		# Its workers are terminated and back: so would those of the dropped database have been.
		my @pids = worker_pids($node, 'shop');
		$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM unnest(ARRAY["
			  . join(',', @pids) . "]) AS pid");
		wait_for_other_workers($node, 'shop', @pids);
		is(log_count($node, qr/FATAL:  database $oid does not exist/),
			2, "$name: each worker of a database that was dropped by force noticed it once");
	}
	is(log_count($node, qr/TRAP:|was terminated by signal/), 0, "$name: nothing crashed");
	$node->stop;
}

done_testing();
