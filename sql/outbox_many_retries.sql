-- The work for a message does not depend on how many retries there are: of thousands that are held
-- behind a failure of their key none is read before its turn comes.

-- Plans are made, and kept, while the tables are known to be empty.
VACUUM ANALYZE stacksaga.message_retry, stacksaga.dead_message;
SELECT stacksaga.create_subscription('many', 'many'), stacksaga.create_subscription('none', 'none');
SELECT count(stacksaga.publish('many', to_jsonb(n), 'k')) FROM generate_series(1, 5000) AS n;
SELECT batch_id AS batch, message_id AS first FROM stacksaga.receive_messages('many', 'c', 1) \gset
SELECT stacksaga.fail_message(:batch, :'first', 'no', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SELECT count(*) FROM stacksaga.receive_messages('many', 'c');
SELECT count(*) AS retries FROM stacksaga.message_retry;

CREATE FUNCTION pg_temp.rows_read() RETURNS bigint LANGUAGE sql AS $$
    SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_all_tables
     WHERE relid = 'stacksaga.message_retry'::regclass
$$;
-- Messages that join them.
SELECT count(stacksaga.publish('many', to_jsonb(n), 'k')) FROM generate_series(5001, 5050) AS n;
SELECT count(*) FROM stacksaga.receive_messages('none', 'c'); -- ticks, so that they are there
BEGIN;
SELECT pg_temp.rows_read() AS before \gset
SELECT count(*) FROM stacksaga.receive_messages('many', 'c');
SELECT pg_temp.rows_read() - :before < 2500 AS is_little;
COMMIT;
-- The first ones, when their key is released.
SELECT stacksaga.discard_message('many', :'first', 'by order');
BEGIN;
SELECT pg_temp.rows_read() AS before \gset
SELECT count(*), max(batch_id) AS batch FROM stacksaga.receive_messages('many', 'c', 50) \gset
SELECT :count AS received, stacksaga.ack_messages(:batch);
SELECT pg_temp.rows_read() - :before < 2500 AS is_little;
COMMIT;
BEGIN;
SELECT pg_temp.rows_read() AS before \gset
SELECT count(*), max(batch_id) AS batch FROM stacksaga.receive_messages('many', 'c', 50) \gset
SELECT :count AS received, stacksaga.ack_messages(:batch);
SELECT pg_temp.rows_read() - :before < 2500 AS is_little;
COMMIT;
SELECT count(*) AS received, min((payload)::int) AS first, max(batch_id) AS batch,
       (array_agg(message_id ORDER BY payload))[1] AS id
  FROM stacksaga.receive_messages('many', 'c', 50) \gset
SELECT :received AS received, :first AS first;
-- One of them fails: ready messages behind it are held again.
BEGIN;
SELECT pg_temp.rows_read() AS before \gset
SELECT stacksaga.fail_message(:batch, :'id', 'busy', retry_after => '1 hour');
SELECT stacksaga.ack_messages(:batch);
SELECT pg_temp.rows_read() - :before < 2500 AS is_little;
COMMIT;
SELECT count(*) FROM stacksaga.receive_messages('many', 'c');
SELECT state, count(*), min(payload::int) FROM stacksaga.message_retry GROUP BY state ORDER BY state;

-- Nor on how many dead messages there are.
CREATE FUNCTION public.raise_never(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'never';
END
$$;
SELECT stacksaga.create_subscription('dead', 'dead', 'public.raise_never(stacksaga.message)');
SELECT count(stacksaga.publish('dead', '{}', 'k-' || n)) FROM generate_series(1, 1000) AS n;
DO $$ BEGIN WHILE stacksaga.run_pending(2000) > 0 LOOP END LOOP; END $$;
SELECT count(stacksaga.publish('dead', '{}', 'k-' || n)) FROM generate_series(1, 50) AS n;
SELECT count(*) FROM stacksaga.receive_messages('none', 'c'); -- ticks
BEGIN;
SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) AS before FROM pg_stat_xact_all_tables
 WHERE relid = 'stacksaga.dead_message'::regclass \gset
SELECT stacksaga.run_pending(2000);
SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) - :before < 1000 AS is_little FROM pg_stat_xact_all_tables
 WHERE relid = 'stacksaga.dead_message'::regclass;
COMMIT;
SELECT dead_messages, lag_messages FROM stacksaga.subscriptions WHERE subscription = 'dead';

SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.drop_subscription('many', true), stacksaga.drop_subscription('none', true), stacksaga.drop_subscription('dead', true);
RESET stacksaga.clock_offset;
DROP FUNCTION public.raise_never(stacksaga.message);
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
