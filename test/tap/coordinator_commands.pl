# The commands for people on call: lists, one saga by its key, actions that are tried first, tables and JSON,
# exit codes; no value of a database does anything to a terminal.
use strict;
use warnings;

use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use StacksagaCluster;
use StacksagaSite;
use Test::More;

my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;
my $node = StacksagaCluster->new('main');
$node->init;
$node->start;
$node->create_extension('postgres');
StacksagaSite::fill($node, '');
$node->safe_psql('postgres', q{SELECT stacksaga.start_saga('transfer', key => E'pay \x1b[2J\nall')});

sub execute
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ $program, @arguments, '-d', $node->connstr('postgres') . ' user=page' ], '<', '/dev/null', '>', \$out, '2>', \$err);
	unlike("$out$err", qr/[\x00-\x09\x0b-\x1f\x7f]/, "$arguments[0] prints no control character") unless grep { $_ eq '--json' } @arguments;
	return ($? >> 8, $out, $err);
}

my ($code, $out, $err) = execute('sagas', '--status', 'parked');
is($code, 0, 'sagas ends with 0');
like((execute('sagas', '--key', 'pay '))[1], qr/pay \\x1b\[2J\\nall/, 'a control character is escaped');
like($out, qr/^saga_id .*\n-+.*\n(?=.*order-4711 .*parked)/s, 'and prints those of the filter');
($code, $out) = execute('sagas', '--key', 'order-4711', '--json');
is(decode_json($out)->{sagas}[0]{key}, 'order-4711', 'or JSON');
($code, $out) = execute('saga', 'order-4711');
is($code, 0, 'a saga is found by its key');
like($out, qr/order-4711 .*Attempts\n.*ship +act +1 +failed.*Timeline\n.*start of saga parcel.*saga parked/s, 'and printed with its timeline');
($code, $out) = execute('saga', 'order-4711', '--json');
is(decode_json($out)->{parked}{step}, 'ship', 'or as JSON');
($code, $out, $err) = execute('saga', 'nothing');
is_deeply([ $code, $out, $err ], [ 1, '', qq{no saga has the key or id "nothing"\n} ], 'a saga that is not there ends it with 1');
for my $command ('queues', 'schedules', 'definitions', 'dead-messages')
{
	($code, $out) = execute($command);
	like($out, qr/^\w+ .*\n-+/, "$command prints a table");
	($code, $out) = execute($command, '--json');
	is(ref decode_json($out), 'HASH', 'or JSON');
}

my $status = q{SELECT status FROM stacksaga.sagas WHERE key = 'order-4711'};
is((execute('retry', 'order-4711'))[0], 64, 'an action needs a reason');
$node->safe_psql('postgres', 'UPDATE bank SET is_open = true');
($code, $out) = execute('retry', 'order-4711', '--reason', 'open');
like($out, qr/parked +running.*Nothing was done: this was a dry run. Add --yes./s, 'it is tried first');
is($node->safe_psql('postgres', $status), 'parked', 'which changes nothing');
($code, $out) = execute('retry', 'order-4711', '--reason', 'open', '--on-behalf-of', 'alice', '--yes');
is($code, 0, 'then it is done');
is($node->safe_psql('postgres', $status), 'running', 'and the saga goes on');
is($node->safe_psql('postgres', q{SELECT role_name, on_behalf_of FROM stacksaga.operator_actions WHERE action = 'retry'}), 'page|alice', 'recorded for whom');
is((execute('retry', 'order-4711', '--reason', 'open', '--yes'))[0], 1, 'what is refused ends it with 1');
is((execute('retry', '--reason', 'open', '--yes'))[0], 64, 'nothing is done without a name or a filter');
is((execute('retry', '--status', 'parked', '--reason', 'all', '--yes'))[0], 0, 'a filter chooses many');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.parked_sagas'), '0', 'all of which are retried');

for my $shell ('bash', 'zsh')
{
	IPC::Run::run([ $program, 'completion', $shell ], '>', \my $script);
	like($script, qr/sagas\) words="[^"]*--status/, "there is a completion for $shell");
}
IPC::Run::run([ 'bash', '-c', 'source <("$1" completion bash); COMP_WORDS=(x sag); COMP_CWORD=1; _stacksaga_coordinator; echo "${COMPREPLY[*]}"', 'bash', $program ],
	'>', \my $completed);
is($completed, "sagas saga\n", 'which completes commands');
done_testing();
