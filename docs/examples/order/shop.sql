-- The shop: its tables, the functions of the steps in its own database, and the saga.
CREATE TABLE stock (item text PRIMARY KEY, on_hand integer NOT NULL CHECK (on_hand >= 0));
CREATE TABLE orders (
    order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga_id  uuid UNIQUE,
    status   text NOT NULL DEFAULT 'placed' CHECK (status IN ('placed', 'accepted', 'confirmed', 'cancelled'))
);
INSERT INTO stock VALUES ('book', 100), ('globe', 1);

-- Sets the status and publishes "order.STATUS": the mail that goes out for it, in the same transaction.
CREATE FUNCTION set_status(call stacksaga.step_call, new_status text) RETURNS void LANGUAGE sql AS $$
    UPDATE orders SET status = new_status WHERE order_id = (call.input->>'order')::bigint;
    SELECT stacksaga.publish('order.' || new_status, call.input, key => call.input->>'order')
     WHERE new_status IN ('confirmed', 'cancelled')
$$;

CREATE FUNCTION accept(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT set_status(call, 'accepted'); SELECT '{}'::jsonb $$;
CREATE FUNCTION cancel(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT set_status(call, 'cancelled'); SELECT '{}'::jsonb $$;
CREATE FUNCTION confirm(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT set_status(call, 'confirmed'); SELECT '{}'::jsonb $$;

CREATE FUNCTION reserve(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE stock SET on_hand = on_hand - 1 WHERE item = call.input->>'item' AND on_hand > 0;
    IF NOT FOUND THEN   -- SG424: it fails for good, so the saga compensates
        RAISE 'no "%" on hand', call.input->>'item' USING ERRCODE = 'SG424';
    END IF;
    RETURN '{}';
END
$$;
CREATE FUNCTION release(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    UPDATE stock SET on_hand = on_hand + 1 WHERE item = call.input->>'item' RETURNING '{}'::jsonb
$$;

-- Names are resolved now, by this session's search_path. The definer, not a superuser, is who runs the functions.
SELECT stacksaga.define_saga('order', ARRAY[
    stacksaga.sql_step('accept', action => 'accept(stacksaga.step_call)', compensation => 'cancel(stacksaga.step_call)'),
    stacksaga.sql_step('reserve', action => 'reserve(stacksaga.step_call)', compensation => 'release(stacksaga.step_call)'),
    stacksaga.queue_step('charge', queue => 'payments', compensable => true),
    stacksaga.queue_step('ship', queue => 'shipping', compensable => true),
    stacksaga.sql_step('confirm', action => 'confirm(stacksaga.step_call)')
]);
SELECT stacksaga.create_subscription('mails', 'order.*');
