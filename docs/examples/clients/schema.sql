-- What the examples at the end of the clients write. The extension must be in the database.
CREATE TABLE account (owner text PRIMARY KEY, balance numeric NOT NULL);
CREATE TABLE charge (step text PRIMARY KEY, amount numeric NOT NULL, undone boolean NOT NULL);
CREATE TABLE ledger (position bigint GENERATED ALWAYS AS IDENTITY, message_id uuid PRIMARY KEY, key text, payload jsonb);
INSERT INTO account VALUES ('ann', 1000000);

-- The effect of a step, once for all its attempts: its row's key is the idempotency key without the direction.
-- An undo that comes first leaves a row, by which a late act is refused.
CREATE FUNCTION charge(idempotency_key text, direction text, input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    step_key text := regexp_replace(idempotency_key, ':(act|compensate)', '');
    act      boolean := direction = 'act';
    charged  charge;
BEGIN
    IF act AND (input->>'amount')::numeric <= 0 THEN
        RAISE 'an amount of % cannot be charged', input->>'amount' USING ERRCODE = 'SG424';   -- will fail again
    END IF;
    INSERT INTO charge VALUES (step_key, CASE WHEN act THEN (input->>'amount')::numeric ELSE 0 END, NOT act)
        ON CONFLICT DO NOTHING RETURNING * INTO charged;
    IF NOT FOUND AND act AND (SELECT undone FROM charge WHERE step = step_key) THEN
        RAISE 'the charge was undone' USING ERRCODE = 'SG424';
    ELSIF NOT FOUND AND NOT act THEN
        UPDATE charge SET undone = true WHERE step = step_key AND NOT undone
            RETURNING step, -amount, undone INTO charged;
    END IF;
    UPDATE account SET balance = balance - charged.amount WHERE owner = 'ann' AND charged.amount <> 0;
    RETURN jsonb_build_object('charged', input->'amount');
END
$$;

SELECT stacksaga.define_saga('pay', ARRAY[stacksaga.queue_step('charge', queue => 'payments', compensable => true)]);
SELECT stacksaga.create_subscription('ledger', 'booking.*');
