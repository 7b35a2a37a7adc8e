# Columns of results are read by the names of an enum (extension/pg/statement/select.hpp), which are compared
# with those of the result. test/module/table.cpp has results with other ones.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use StacksagaCluster;

my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres',
	q{CREATE FUNCTION select_pair(number integer) RETURNS text LANGUAGE c AS 'stacksaga_testing', 'stacksaga_select_pair'});
my $session = $node->background_psql('postgres', on_error_stop => 0);

# Prints the pair, or what it was refused with.
sub pair
{
	my ($number) = @_;
	$session->{stderr} = '';
	my $printed = $session->query("SELECT select_pair($number)");
	return $session->{stderr} =~ /ERROR:  (.*)/ ? $1 : $printed;
}

for my $time ('the first time', 'again')
{
	is(pair(0), 'ab', "columns in the order of the enum are read by their names, $time");
	is(pair(1), 'column 1 of a result is "second", its enum says "first"', "the same ones in another order are refused, $time");
	is(pair(2), 'a result has 3 columns, its enum 2', "a column that the enum lacks is refused, $time");
}

$session->quit;
$node->stop;
done_testing();
