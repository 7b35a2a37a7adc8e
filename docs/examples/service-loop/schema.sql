-- One row for a charge and its refund, so that a charge that comes after its refund is refused.
CREATE TABLE charge (
    step   text PRIMARY KEY,   -- the idempotency key without the direction
    amount numeric NOT NULL CHECK (amount > 0),
    undone boolean NOT NULL
);

SELECT stacksaga.define_saga('pay', ARRAY[stacksaga.queue_step('charge', queue => 'payments', compensable => true)]);
