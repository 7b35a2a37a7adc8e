# What `make install-coordinator` installs, below DESTDIR: the program, its unit, manual page, completions and
# settings, which stay when there are some; every setting of the sample is one that the daemon knows.
use strict;
use warnings;

use File::Copy;
use File::Path;
use IPC::Run;
use PostgreSQL::Test::Utils;
use StacksagaSite;
use Test::More;

my $program = StacksagaSite::program();
plan skip_all => 'stacksaga-coordinator is not in PATH' unless defined $program;

my $build = PostgreSQL::Test::Utils::tempdir();
my $root = PostgreSQL::Test::Utils::tempdir();
mkpath("$build/coordinator");
copy($program, "$build/coordinator/stacksaga-coordinator");
chmod 0755, "$build/coordinator/stacksaga-coordinator";
IPC::Run::run([ 'coordinator/man.sh', $program ], '>', "$build/stacksaga-coordinator.1") or die;

local %ENV = (%ENV, DESTDIR => $root, PREFIX => '/opt/saga');
ok(IPC::Run::run([ 'coordinator/install.sh', $build ], '>', \my $said), 'it is installed');
like($said, qr{^installed \Q$root\E/opt/saga/bin/stacksaga-coordinator; its settings are in }, 'and says where');

IPC::Run::run([ "$root/opt/saga/bin/stacksaga-coordinator", '--version' ], '>', \my $version);
like($version, qr/^stacksaga-coordinator \d/, 'the program runs') or diag($version);
my $unit = slurp_file("$root/opt/saga/lib/systemd/system/stacksaga-coordinator.service");
like($unit, qr{^ExecStart=/opt/saga/bin/stacksaga-coordinator master .*--config /etc/stacksaga/coordinator\.toml}m, 'the unit starts it with its settings')
  or diag($unit);
my $manual = slurp_file("$root/opt/saga/share/man/man1/stacksaga-coordinator.1");
like($manual, qr/^\.TH STACKSAGA.*^\.SH OPTIONS OF REDRIVE.*\\-\\-subscription.*^\.SH ENVIRONMENT/ms, 'the manual page has every command');
for my $file ('bash-completion/completions/stacksaga-coordinator', 'zsh/site-functions/_stacksaga-coordinator')
{
	like(slurp_file("$root/opt/saga/share/$file"), qr/dead-messages/, "$file completes commands");
}

# Each setting of the sample, one at a time: some exclude each other.
sub accepted
{
	my ($settings) = @_;
	my $file = "$build/settings.toml";
	unlink $file;
	append_to_file($file, $settings);
	IPC::Run::run([ $program, 'master', '--config', $file, '--print-config' ], '<', '/dev/null', '>', \my $out, '2>', \my $err);
	return $? >> 8 == 0 ? 'accepted' : $err;
}
my $sample = slurp_file("$root/etc/stacksaga/coordinator.toml.sample");
is(slurp_file("$root/etc/stacksaga/coordinator.toml"), $sample, 'the settings are the sample');
is((stat "$root/etc/stacksaga/coordinator.toml")[2] & 0777, 0644, 'which the user that the unit makes may read');
is(accepted($sample), 'accepted', 'the daemon accepts it');
my @commented = $sample =~ /^# ([a-z-]+) = /mg;
cmp_ok(scalar(@commented), '>', 8, 'what may be set stands in comments');
for my $name (@commented)
{
	# The header needs a proxy that is believed.
	my $with = $sample =~ s/^# (\Q$name\E = )/$1/mr;
	$with =~ s/^# (trusted-proxy = )/$1/m if $name eq 'operator-header';
	$with =~ s/^http = .*\n//m if $name eq 'http';
	$with =~ s/^(# )?trusted-proxy = .*\n/trusted-proxy = ["127.0.0.1"]\noperator-header = "X"\n/m if $name eq 'trusted-proxy';
	is(accepted($with), 'accepted', "$name, without its comment");
}

append_to_file("$root/etc/stacksaga/coordinator.toml", "# mine\n");
ok(IPC::Run::run([ 'coordinator/install.sh', $build ], '>', \$said), 'it is installed again');
is(slurp_file("$root/etc/stacksaga/coordinator.toml"), "$sample# mine\n", 'settings that are there stay');
done_testing();
