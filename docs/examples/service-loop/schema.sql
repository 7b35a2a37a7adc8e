CREATE TABLE charge (
    idempotency_key text PRIMARY KEY,
    amount          numeric NOT NULL CHECK (amount > 0)
);

SELECT stacksaga.define_saga('pay', ARRAY[stacksaga.queue_step('charge', queue => 'payments')]);
