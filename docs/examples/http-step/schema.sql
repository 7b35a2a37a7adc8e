-- The saga of this example; the extension must be in the database. The timeout is longer than that of the request.
SELECT stacksaga.define_saga('pay', ARRAY[
    stacksaga.queue_step('charge', queue => 'payments', compensation_queue => 'refunds', timeout => '1 minute',
        retry => stacksaga.retry_policy(max_attempts => 8, initial_interval => '2 seconds'))]);
