# Standby, promotion, dump and restore: what was remembered is remembered, what was fenced stays
# fenced, and where nothing can be recorded nothing is done.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $primary = StacksagaCluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->create_extension('postgres');
my $lease = $primary->safe_psql('postgres', q{
	SELECT lease FROM stacksaga.idempotency_begin('restore', 'held', '{"n": 1}', lease => '1 hour')});
$primary->safe_psql('postgres', q{
	SELECT stacksaga.idempotency_finish('restore', 'done', lease, '"answer"')
	  FROM stacksaga.idempotency_begin('restore', 'done', '{"n": 1, "ä": "é"}');
	SELECT stacksaga.accept_message('restore', 'm');
	SELECT stacksaga.accept_sequence('producer', 1, 1), stacksaga.accept_sequence('producer', 2, 1),
	       stacksaga.accept_sequence('producer', 2, 2);
	SELECT stacksaga.compare_and_set('restore', 'gone', NULL, '1'), stacksaga.compare_and_set('restore', 'gone', 1, NULL),
	       stacksaga.compare_and_set('restore', 'there', NULL, '"value"');
});

# A standby records nothing, so it does nothing: not even a replay.
$primary->backup('base');
my $standby = StacksagaCluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
foreach my $call (
	q{idempotency_begin('restore', 'done', '{"n": 1, "ä": "é"}')},
	q{idempotency_begin('restore', 'new')},
	"idempotency_checkpoint('restore', 'held', $lease, 'p')",
	"idempotency_finish('restore', 'held', $lease)",
	"idempotency_release('restore', 'held', $lease)",
	q{accept_message('restore', 'm')},
	q{accept_sequence('producer', 2, 3)},
	q{compare_and_set('restore', 'there', 1, '2')},
	q{expire_dedupe()})
{
	$standby->raises_sqlstate('postgres', "SELECT stacksaga.$call", '25006');
}
my (undef, undef, $errors) = $standby->psql('postgres', q{SELECT stacksaga.accept_message('restore', 'm')});
like($errors, qr/DETAIL:  This server is a standby\.\nHINT:  Call it on the primary/, 'and says why');
is($standby->safe_psql('postgres', q{SELECT * FROM stacksaga.read_value('restore', 'there')}),
	'"value"|1', 'values can be read there');

# What must hold on whatever server comes after.
sub remembers
{
	my ($node, $name) = @_;
	is( $node->safe_psql('postgres', q{
			SELECT outcome, response, attempt
			  FROM stacksaga.idempotency_begin('restore', 'done', '{"ä": "é", "n": 1}')}),
		'replay|"answer"|1', "$name: a completed key is replayed");
	$node->raises_sqlstate('postgres',
		q{SELECT stacksaga.idempotency_begin('restore', 'done', '{"ä": "e", "n": 1}')}, 'SG422');
	my (undef, undef, $difference) = $node->psql('postgres',
		q{SELECT stacksaga.idempotency_begin('restore', 'done', '{"ä": "e", "n": 1}')});
	like($difference, qr/that request begins with [0-9a-f]{8}, that of this one with/,
		"$name: another request is told apart by its fingerprint");
	$node->raises_sqlstate('postgres',
		q{SELECT stacksaga.idempotency_begin('restore', 'held', '{"n": 1}')}, 'SR409');
	is($node->safe_psql('postgres', q{SELECT stacksaga.accept_message('restore', 'm')}), 'f',
		"$name: a message that was accepted");
	$node->raises_sqlstate('postgres', q{SELECT stacksaga.accept_sequence('producer', 1, 2)}, 'SG412');
	is($node->safe_psql('postgres', q{SELECT stacksaga.accept_sequence('producer', 2, 2)}), 'duplicate',
		"$name: a sequence that was accepted");
	$node->raises_sqlstate('postgres', q{SELECT stacksaga.compare_and_set('restore', 'gone', 1, '1')}, 'SG412');
	is($node->safe_psql('postgres', q{SELECT * FROM stacksaga.read_value('restore', 'there')}), '"value"|1',
		"$name: a value");
	return;
}

# A dump, and a restore into another server.
my $dump = "$PostgreSQL::Test::Utils::tmp_check/dedupe.dump";
$primary->prepare_dump('postgres');
command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $primary->connstr('postgres') ], 'pg_dump');
my $restored = StacksagaCluster->new('restored');
$restored->init;
$restored->start;
command_ok([ 'pg_restore', '--exit-on-error', '-d', $restored->connstr('postgres'), $dump ], 'pg_restore');
$primary->stop('immediate');
$standby->promote;
foreach my $node ($standby, $restored)
{
	my $name = $node->name;
	remembers($node, $name);
	# A producer that resets itself goes on; the one from before never does.
	is($node->safe_psql('postgres', q{SELECT stacksaga.accept_sequence('producer', 3, 1)}), 'accepted',
		"$name: a newer epoch");
	$node->raises_sqlstate('postgres', q{SELECT stacksaga.accept_sequence('producer', 2, 3)}, 'SG412');
	$node->raises_sqlstate('postgres', q{SELECT stacksaga.accept_sequence('producer', 1, 1)}, 'SG412');
	is( $node->safe_psql('postgres', q{SELECT stacksaga.compare_and_set('restore', 'gone', NULL, '3')}), '3',
		"$name: versions go on behind a delete");
	$node->safe_psql('postgres', "SELECT stacksaga.idempotency_finish('restore', 'held', $lease, '\"late\"')");
	is( $node->safe_psql('postgres', q{
			SELECT outcome, response FROM stacksaga.idempotency_begin('restore', 'held', '{"n": 1}')}),
		'replay|"late"', "$name: the owner's lease still counts");
	$node->stop;
}
done_testing();
