CREATE TABLE stock (item text PRIMARY KEY, on_hand integer NOT NULL CHECK (on_hand >= 0));
INSERT INTO stock VALUES ('book', 2);
CREATE FUNCTION reserve(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    UPDATE stock SET on_hand = on_hand - 1 WHERE item = call.input->>'item';
    IF NOT FOUND THEN RAISE 'no such item' USING ERRCODE = 'SG424'; END IF;
    RETURN '{}';
END $$;
CREATE FUNCTION release(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    UPDATE stock SET on_hand = on_hand + 1 WHERE item = call.input->>'item';
    IF NOT FOUND THEN RAISE 'no such item' USING ERRCODE = 'SG424'; END IF;
    RETURN '{}';
END $$;
SELECT stacksaga.define_saga('order', ARRAY[
    stacksaga.sql_step('reserve', 'reserve(stacksaga.step_call)', compensation => 'release(stacksaga.step_call)'),
    stacksaga.queue_step('charge', queue => 'payments', compensation_queue => 'refunds')]);
