# The daemon's HTTP for a test: a daemon with its options, requests to it, and a database with something
# to show.
#
#   my $program = StacksagaSite::program();                  # undef where there is none
#   StacksagaSite::fill($node, $markup);                     # sagas, messages, a schedule, the role page
#   my $site = StacksagaSite->new($node, $program, OPTIONS); # listens on a free port, or on --http unix:PATH
#   $site->get('/api/session', HEADER => VALUE...);          # JSON
#   $site->stop;
package StacksagaSite;

use strict;
use warnings;

use File::Basename;
use IO::Socket::INET;
use IO::Socket::UNIX;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;

# A test that dies leaves no daemon behind.
my @running;
my $test = $$;
END { $_->kill_kill for $$ == $test ? @running : (); }

my $operators = PostgreSQL::Test::Utils::tempdir() . '/operators';

sub program
{
	return (grep { -x } map { "$_/stacksaga-coordinator" } split /:/, $ENV{PATH})[0];
}

# A file of operators and their passwords.
sub operators_file
{
	my ($program, %passwords) = @_;
	unlink $operators;
	foreach my $name (sort keys %passwords)
	{
		IPC::Run::run([ $program, 'hash-password', $name ], '<', \"$passwords{$name}\n", '>', \my $line) or die;
		append_to_file($operators, $line);
	}
	chmod 0600, $operators or die $!;
	return $operators;
}

# Sagas of every kind of end, a dead message, a blocked key, a schedule; the markup in every name and payload.
# A parked saga goes on when `bank` is open: order-4711 to its end; a dead message is then billed. The role page
# is the daemon's.
sub fill
{
	my ($node, $markup) = @_;
	my $tail = $markup eq '' ? '' : " $markup";
	$node->safe_psql('postgres', qq{
		CREATE ROLE page LOGIN;
		SELECT stacksaga.grant_usage('page', kind) FROM unnest(ARRAY['coordinator', 'monitor', 'support']) AS kind;
		CREATE TABLE bank (is_open boolean NOT NULL);
		INSERT INTO bank VALUES (false);
		CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
			AS \$\$ SELECT jsonb_build_object('note', 'confidential$tail') \$\$;
		CREATE FUNCTION pay(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS \$\$
			SELECT jsonb_build_object('note', 'confidential$tail', 'receipt', stacksaga.publish('receipts$tail', '{}', 'till$tail')) \$\$;
		CREATE FUNCTION fail(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN RAISE EXCEPTION 'no money$tail' USING ERRCODE = 'SG424'; END \$\$;
		CREATE FUNCTION undo(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN
			IF (SELECT is_open FROM bank) THEN RETURN '{}'; END IF;
			RAISE EXCEPTION 'the bank is closed$tail' USING ERRCODE = 'SG424';
		END \$\$;
		CREATE TABLE billed (message_id uuid PRIMARY KEY);
		CREATE FUNCTION bill(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			IF (SELECT is_open FROM bank) THEN
				INSERT INTO billed VALUES (m.message_id);
			ELSE
				RAISE EXCEPTION 'no such customer$tail' USING ERRCODE = 'SG424';
			END IF;
		END \$\$;
		SELECT stacksaga.define_saga('transfer', ARRAY[
			stacksaga.sql_step('debit', 'public.act(stacksaga.step_call)', 'public.undo(stacksaga.step_call)'),
			stacksaga.sql_step('credit', 'public.fail(stacksaga.step_call)')]);
		SELECT stacksaga.define_saga('order$tail', ARRAY[
			stacksaga.sql_step('reserve$tail', 'public.act(stacksaga.step_call)', 'public.act(stacksaga.step_call)', stage => 1),
			stacksaga.queue_step('price', 'pricing$tail', compensable => true, stage => 1),
			stacksaga.child_step('pay', 'transfer'), stacksaga.message_step('mail', 'mails')]);
		SELECT stacksaga.define_saga('parcel', ARRAY[
			stacksaga.sql_step('pay', 'public.pay(stacksaga.step_call)', effect => 'irreversible'),
			stacksaga.sql_step('ship', 'public.undo(stacksaga.step_call)')]);
		SELECT stacksaga.start_saga('parcel', '{"secret": "confidential"}', key => 'order-4711');
		SELECT stacksaga.start_saga('transfer', jsonb_build_object('secret', 'confidential$tail'), key => 'pay$tail',
			attributes => '{"customer": "confidential"}');
		SELECT stacksaga.start_saga('transfer', jsonb_build_object('text', repeat('confidential ä', 10000)), key => 'large');
		SELECT count(*) FROM generate_series(1, 60) AS n, LATERAL stacksaga.start_saga('order$tail',
			'{"secret": "confidential"}', key => 'order-' || n || '$tail');
		SELECT stacksaga.create_subscription('billing', 'orders', 'public.bill(stacksaga.message)');
		SELECT stacksaga.create_subscription('audit', 'orders');
		SELECT stacksaga.create_schedule('nightly$tail', 'transfer', '0 3 * * *', '{"secret": "confidential"}');
	});
	$node->safe_psql('postgres', qq{SELECT stacksaga.publish('orders', jsonb_build_object('secret', 'confidential$tail'), key => 'customer$tail')})
	  for 1, 2;
	$node->poll_query_until('postgres', q{
		WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
		SELECT n >= 0 AND (SELECT count(*) FROM stacksaga.parked_sagas) = 3
			AND (SELECT count(*) FROM stacksaga.dead_messages) = 1 FROM done}) or die;
	return;
}

# More dead messages of billing, which nothing holds up, and how many there are then.
sub add_dead_messages
{
	my ($node, $count) = @_;
	my $is_open = $node->safe_psql('postgres', 'SELECT is_open FROM bank');
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM stacksaga.dead_messages');
	$node->safe_psql('postgres', qq{
		UPDATE bank SET is_open = false;
		SELECT count(stacksaga.publish('orders', '{"secret": "confidential"}')) FROM generate_series(1, $count)});
	$node->poll_query_until('postgres', qq{
		WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
		SELECT n >= 0 AND (SELECT count(*) FROM stacksaga.dead_messages) = $before + $count FROM done}) or die;
	$node->safe_psql('postgres', "UPDATE bank SET is_open = '$is_open'");
	return $before + $count;
}

# Runs what is due until so many messages have been billed.
sub billed
{
	my ($node, $count) = @_;
	return $node->poll_query_until('postgres', qq{
		WITH done AS MATERIALIZED (SELECT stacksaga.run_pending() AS n)
		SELECT n >= 0 AND (SELECT count(*) FROM billed) = $count FROM done});
}

sub new
{
	my ($class, $node, $program, @options) = @_;
	my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0);
	my $self = bless {port => $free->sockport, log => "$PostgreSQL::Test::Utils::log_path/" . basename($0, '.pl') . '_site.log'}, $class;
	close $free;
	my %option = @options % 2 == 0 ? @options : ();
	($self->{path}) = ($option{'--http'} // '') =~ /^unix:(.*)/;
	$self->{large} = $node->safe_psql('postgres', q{SELECT stacksaga.saga_id_of('transfer', 'large')});
	$self->{running} = $node->safe_psql('postgres', q{SELECT saga_id FROM stacksaga.sagas WHERE status = 'running' LIMIT 1});
	push @options, '--http', "127.0.0.1:$self->{port}" unless defined $self->{path};
	unlink $self->{log};
	$self->{daemon} = IPC::Run::start(
		[ $program, 'master', '-d', $node->connstr('postgres') . ' user=page', @options ],
		'<', '/dev/null', '>', '/dev/null', '2>>', $self->{log});
	push @running, $self->{daemon};
	$self->wait_until(sub { $self->request('GET', '/readyz')->{status} == 200 }) or die slurp_file($self->{log});
	return $self;
}

sub stop
{
	my ($self) = @_;
	@running = grep { $_ != $self->{daemon} } @running;
	$self->{daemon}->signal('TERM');
	return $self->{daemon}->finish;
}

sub port { return $_[0]->{port} }
sub origin { return "http://127.0.0.1:$_[0]->{port}" }

sub wait_until
{
	my ($self, $condition) = @_;
	my $end = time + 60;
	select undef, undef, undef, 0.05 while !$condition->() && time < $end;
	return $condition->();
}

# One request, as bytes: no client's idea of what is proper gets in the way.
sub request
{
	my ($self, $method, $path, %headers) = @_;
	my $body = delete $headers{body} // '';
	$headers{host} //= defined $self->{path} ? 'localhost' : "127.0.0.1:$self->{port}";
	my $socket = defined $self->{path} ? IO::Socket::UNIX->new(Peer => $self->{path})
	  : IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port});
	return {status => 0, content => '', headers => {}} unless $socket;
	local $SIG{PIPE} = 'IGNORE';
	my $head = join '', map { defined $headers{$_} && $headers{$_} ne '' ? "$_: $headers{$_}\r\n" : '' } sort keys %headers;
	my $length = $method eq 'POST' ? 'Content-Length: ' . length($body) . "\r\n" : '';
	print {$socket} "$method $path HTTP/1.1\r\nConnection: close\r\n$head$length\r\n", $method eq 'POST' ? $body : '';
	my $answer = join '', <$socket>;
	my ($status, $lines, $content) = $answer =~ /^HTTP\/1\.1 (\d+)[^\r]*\r\n(.*?)\r\n\r\n(.*)/s;
	my %answered = map { /^([^:]+): (.*)$/ ? (lc $1, $2) : () } split /\r\n/, $lines // '';
	return {status => $status // 0, headers => \%answered, content => $content // ''};
}

sub get
{
	my ($self, $path, %headers) = @_;
	my $answer = $self->request('GET', $path, %headers);
	die "$path: $answer->{status} $answer->{content}" if $answer->{status} != 200;
	return decode_json($answer->{content});
}

sub login
{
	my ($self, $user, $password, %more) = @_;
	my ($u, $p) = map { s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/egr } $user, $password;
	return $self->request('POST', '/api/login', 'content-type' => 'application/x-www-form-urlencoded',
		origin => $self->origin, %more, body => "user=$u&password=$p");
}

# The headers of one who has logged in.
sub credentials
{
	my ($login) = @_;
	my ($cookie) = $login->{headers}{'set-cookie'} =~ /^([^;]+)/;
	return (cookie => $cookie, 'x-csrf-token' => decode_json($login->{content})->{csrf_token});
}

# Posts an action; returns the status.
sub act
{
	my ($self, $path, $object, $credentials, %more) = @_;
	return $self->request($more{method} // 'POST', $path, 'content-type' => 'application/json', origin => $self->origin,
		%$credentials, %{ $more{headers} // {} }, body => $more{body} // encode_json($object))->{status};
}

1;
