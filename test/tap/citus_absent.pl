# Without Citus its functions say so, and nothing changes.
use strict;
use warnings;

use StacksagaCluster;
use Test::More;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
for my $call ('FROM stacksaga.citus_check()', 'stacksaga.citus_enable()', 'stacksaga.citus_disable()')
{
	my (undef, undef, $errors) = $node->psql('postgres', "SELECT $call", extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	like($errors, qr/SG409: +citus_\w+\(\) needs Citus, which this database does not have/, "$call needs Citus");
	like($errors, qr/DETAIL:.*Extension "citus" is not installed.*HINT:/s, 'and says what to do');
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_depend
	WHERE deptype = 'e' AND objid = 'stacksaga.idempotency_key'::regclass}), 1, 'the tables are the extension\'s');
is($node->safe_psql('postgres', q{
	SELECT stacksaga.accept_sequence('p', 1, 1), stacksaga.accept_sequence('p', 1, 2), stacksaga.accept_sequence('p', 1, 2),
		stacksaga.accept_sequence('p', 3, 1)}), 'accepted|accepted|duplicate|accepted', 'sequences are accepted');
$node->raises_sqlstate('postgres', q{SELECT stacksaga.accept_sequence('p', 2, 1)}, 'SG412');

# Who has the name of a session of Citus gets all tables, too.
$node->safe_psql('postgres', 'CREATE DATABASE named');
$node->safe_psql('named', q{SET application_name = 'citus_internal gpid=1'; CREATE EXTENSION stacksaga});
is($node->safe_psql('named', q{SELECT stacksaga.accept_message('scope', 'id')}), 't', 'a name is not Citus');
done_testing();
