-- The database of bank A, which runs the saga.
CREATE TABLE account (id integer PRIMARY KEY, balance numeric NOT NULL CHECK (balance >= 0));
CREATE TABLE entry (idempotency_key text NOT NULL, account integer NOT NULL, amount numeric NOT NULL);

CREATE FUNCTION book(call stacksaga.step_call, amount numeric) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account SET balance = balance + amount WHERE id = (call.input ->> 'from')::integer AND balance + amount >= 0;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'account % has less than %', call.input ->> 'from', -amount USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO entry VALUES (call.idempotency_key, (call.input ->> 'from')::integer, amount);
    RETURN jsonb_build_object('booked', amount);
END $$;
CREATE FUNCTION debit(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
    AS $$ SELECT book(call, -(call.input ->> 'amount')::numeric) $$;
CREATE FUNCTION refund(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
    AS $$ SELECT book(call, (call.input ->> 'amount')::numeric) $$;

SELECT stacksaga.define_saga('send_money', ARRAY[
    stacksaga.sql_step('debit', 'debit(stacksaga.step_call)', 'refund(stacksaga.step_call)'),
    stacksaga.queue_step('credit', queue => 'bank_b', compensable => true)],
    compensation_retry => stacksaga.retry_policy(max_attempts => 0));
