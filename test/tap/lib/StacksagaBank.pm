# A bank for a test: accounts, transfers between them as sagas, and the proof that no money was lost, none
# made, and nothing done twice, whatever happened meanwhile.
#
#   StacksagaBank::open_bank($node, $database);      # has the extension; makes the role bank's part
#   StacksagaBank::ask($node, $database, 50, 300);   # 50 more transfers, unless 300 steps are waiting
#   StacksagaBank::wait_until_settled($node, $database);
#   StacksagaBank::prove($node, $database);          # tests, one for each thing that must hold
#
# Every change of a balance is also a row of a journal that has no unique key, so a second one shows.
package StacksagaBank;

use strict;
use warnings;

use Test::More;

# Retries are short, and are never given up.
my $policy = q{stacksaga.retry_policy(max_attempts => 0, initial_interval => '50 milliseconds',
	max_interval => '500 milliseconds')};

my $tables = q{
	CREATE SCHEMA bank;
	CREATE TABLE bank.account (id integer PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0),
		opening bigint NOT NULL);
	INSERT INTO bank.account SELECT i, 1000, 1000 FROM generate_series(1, 1000) AS i;
	CREATE TABLE bank.journal (saga_id uuid NOT NULL, idempotency_key text NOT NULL, step text NOT NULL,
		account integer NOT NULL, amount bigint NOT NULL);
	CREATE TABLE bank.request (n bigint PRIMARY KEY, saga_id uuid NOT NULL, amount bigint NOT NULL)};

# One call in fifty of a transfer fails for now. An account that is not there, or runs dry, is final.
my $functions = q{
	CREATE FUNCTION bank.book(call stacksaga.step_call, place text, sign integer, what text)
	RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		number integer := call.input ->> place;
		change bigint := sign * (call.input ->> 'amount')::bigint;
	BEGIN
		IF random() < 0.02 THEN
			RAISE EXCEPTION 'the bank is busy' USING ERRCODE = 'SR503';
		END IF;
		UPDATE bank.account SET balance = balance + change
		 WHERE id = number AND balance + change >= 0;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'account % is not there or runs dry', number USING ERRCODE = 'SG424';
		END IF;
		INSERT INTO bank.journal VALUES (call.saga_id, call.idempotency_key, what, number, change);
		RETURN jsonb_build_object(what, change);
	END $$;
	CREATE FUNCTION bank.debit(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
		AS $$ SELECT bank.book(call, 'from', -1, 'debit') $$;
	CREATE FUNCTION bank.give_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
		AS $$ SELECT bank.book(call, 'from', 1, 'give_back') $$;
	CREATE FUNCTION bank.credit(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
		AS $$ SELECT bank.book(call, 'to', 1, 'credit') $$;

	-- One transfer in twenty goes to an account that is not there.
	CREATE FUNCTION bank.ask(transfers integer, most integer) RETURNS bigint LANGUAGE sql AS $$
		WITH asked AS MATERIALIZED (
			SELECT (SELECT coalesce(max(n), 0) FROM bank.request) + i AS n,
				   (1 + 50 * random())::bigint AS amount, (1 + 999 * random())::integer AS debtor,
				   (1 + 999 * random())::integer + CASE WHEN random() < 0.05 THEN 9000 ELSE 0 END AS creditor
			  FROM generate_series(1, transfers) AS i
			 WHERE (SELECT count(*) FROM stacksaga.sagas
					 WHERE status IN ('pending', 'running', 'compensating')) < most
		), started AS (
			INSERT INTO bank.request
			SELECT a.n, s.saga_id, a.amount FROM asked a CROSS JOIN LATERAL stacksaga.start_saga('transfer',
				jsonb_build_object('from', debtor, 'to', creditor, 'amount', amount),
				key => 'transfer-' || a.n) AS s
			RETURNING n
		)
		SELECT count(*) FROM started
	$$};

my $proof = q{
	CREATE TEMP TABLE transfer AS SELECT r.n, r.amount, s.saga_id, s.status
		FROM bank.request r LEFT JOIN stacksaga.sagas s USING (saga_id);
	CREATE TEMP TABLE booked AS SELECT saga_id, string_agg(step, ',' ORDER BY step) AS steps,
		sum(amount) AS net, max(amount) AS most FROM bank.journal GROUP BY saga_id;
	WITH wrong(number, what, example) AS (
		SELECT 1, 'every transfer is one saga, completed or failed', (
			SELECT format('transfer %s: %s', n, status) FROM transfer
			 WHERE status IS NULL OR status NOT IN ('completed', 'failed') LIMIT 1)
		UNION ALL SELECT 2, 'there are no other sagas, and no work is left', (
			SELECT 'a saga that nobody asked for' WHERE (SELECT count(*) FROM stacksaga.sagas)
				<> (SELECT count(*) FROM transfer)
			UNION ALL SELECT 'work is left' WHERE EXISTS (SELECT FROM stacksaga.work) LIMIT 1)
		UNION ALL SELECT 3, 'the sum of all money is what it was', (
			SELECT format('%s, %s at the start', sum(balance), sum(opening)) FROM bank.account
			HAVING sum(balance) <> sum(opening))
		UNION ALL SELECT 4, 'every balance is what its journal says', (
			SELECT format('account %s', id)
			  FROM bank.account a LEFT JOIN bank.journal j ON j.account = a.id GROUP BY id
			HAVING a.balance <> a.opening + coalesce(sum(j.amount), 0) LIMIT 1)
		UNION ALL SELECT 5, 'what completed was debited once and credited once', (
			SELECT format('transfer %s: %s', n, coalesce(steps, 'nothing'))
			  FROM transfer LEFT JOIN booked USING (saga_id) WHERE status = 'completed'
			   AND (steps, net, most) IS DISTINCT FROM ('credit,debit', 0, amount) LIMIT 1)
		UNION ALL SELECT 6, 'what failed was not debited, or got it back once', (
			SELECT format('transfer %s: %s', n, steps)
			  FROM transfer JOIN booked USING (saga_id) WHERE status = 'failed'
			   AND (steps, net) IS DISTINCT FROM ('debit,give_back', 0) LIMIT 1)
		UNION ALL SELECT 7, 'no idempotency key changed a balance twice', (
			SELECT idempotency_key FROM bank.journal GROUP BY 1 HAVING count(*) > 1 LIMIT 1))
	SELECT format('%s|%s', what, coalesce(example, '')) FROM wrong ORDER BY number};

sub open_bank
{
	my ($node, $database) = @_;
	$node->safe_psql($database, qq{$tables; $functions;
		SELECT stacksaga.define_saga('transfer', ARRAY[
			stacksaga.sql_step('debit', 'bank.debit(stacksaga.step_call)',
				'bank.give_back(stacksaga.step_call)'),
			stacksaga.sql_step('credit', 'bank.credit(stacksaga.step_call)')],
			retry => $policy, compensation_retry => $policy);
		ANALYZE bank.account});
	return;
}

# A server that is away is no error here: nothing was asked for then.
sub ask
{
	my ($node, $database, $transfers, $most) = @_;
	my ($code, $count, $errors) = $node->psql($database, "SELECT bank.ask($transfers, $most)");
	return $count if $code == 0;
	die $errors if $errors !~ /connection|connect|terminat|FATAL|recovery mode|shutting down/;
	return 0;
}

sub wait_until_settled
{
	my ($node, $database) = @_;
	return $node->poll_query_until($database, q{SELECT NOT EXISTS (SELECT FROM stacksaga.sagas
		WHERE status NOT IN ('completed', 'failed', 'parked'))});
}

sub prove
{
	my ($node, $database) = @_;
	for my $line (split /\n/, $node->safe_psql($database, $proof))
	{
		my ($what, $example) = split /\|/, $line, 2;
		is($example, '', "$database: $what");
	}
	return;
}

1;
