-- The outbox: an append-only log, the ticks that cut it into windows, and how far each subscription has
-- read (extension/src/outbox/publish.cpp, log_tick.cpp, log_read.cpp, position.cpp).

CREATE TYPE stacksaga.message AS (
    batch_id     bigint,
    message_id   uuid,
    topic        text,
    key          text,
    type         text,
    payload      jsonb,
    headers      jsonb,
    attempt      integer,
    published_at timestamptz
);
COMMENT ON TYPE stacksaga.message IS
    'A message as a handler or a service gets it; batch_id is null in a handler, attempt counts from 1 per subscription';
COMMENT ON COLUMN stacksaga.message.batch_id IS 'The batch to acknowledge; null in a handler';
COMMENT ON COLUMN stacksaga.message.message_id IS 'The same for every attempt';
COMMENT ON COLUMN stacksaga.message.topic IS 'The topic that it was published to';
COMMENT ON COLUMN stacksaga.message.key IS 'Messages of one key come in order; null: in any order';
COMMENT ON COLUMN stacksaga.message.type IS 'What publish() got as its type';
COMMENT ON COLUMN stacksaga.message.payload IS 'What was published';
COMMENT ON COLUMN stacksaga.message.headers IS 'Headers, such as a traceparent';
COMMENT ON COLUMN stacksaga.message.attempt IS 'Counts from 1 per subscription';
COMMENT ON COLUMN stacksaga.message.published_at IS 'When it was published';

-- One value a message, so never a cache: a session that took numbers in advance would publish late
-- messages under early numbers.
CREATE SEQUENCE stacksaga.outbox_number_seq CACHE 1;
COMMENT ON SEQUENCE stacksaga.outbox_number_seq IS 'Numbers messages in the order of their publishing';

-- A sequence, since each publish reads its value, without a lock and whatever the snapshot.
CREATE SEQUENCE stacksaga.outbox_generation_seq MINVALUE 0 START 0 CACHE 1;
COMMENT ON SEQUENCE stacksaga.outbox_generation_seq IS
    'Counts generations of the log; the last value modulo 3 is the partition that publish() fills';

-- No unique index: nothing reads a message by its id, and each index costs every publish. No two
-- entries of an index are equal, so deduplication gains nothing. Rows here are never dead, and truncated
-- before they are old: a vacuum after so many inserts would gain nothing, and cost more the larger the
-- log is. The same holds for the append-only tables below.
CREATE TABLE stacksaga.outbox_message (
    number         bigint NOT NULL,
    transaction_id bigint NOT NULL,
    origin         bigint NOT NULL,
    token          stacksaga.ring_token NOT NULL,
    published_at   timestamptz NOT NULL,
    ring_id        integer NOT NULL,
    generation     smallint NOT NULL,
    stripe         smallint NOT NULL,
    message_id     uuid NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    key            text COLLATE "C",
    type           text COLLATE "C",
    payload        jsonb,
    headers        jsonb NOT NULL,
    deliver_at     timestamptz
) PARTITION BY LIST (generation);
CREATE TABLE stacksaga.outbox_message_0 PARTITION OF stacksaga.outbox_message FOR VALUES IN (0)
    WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE stacksaga.outbox_message_1 PARTITION OF stacksaga.outbox_message FOR VALUES IN (1)
    WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE stacksaga.outbox_message_2 PARTITION OF stacksaga.outbox_message FOR VALUES IN (2)
    WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE INDEX outbox_message_0_number ON stacksaga.outbox_message_0 (stripe, number)
    WITH (deduplicate_items = off);
CREATE INDEX outbox_message_1_number ON stacksaga.outbox_message_1 (stripe, number)
    WITH (deduplicate_items = off);
CREATE INDEX outbox_message_2_number ON stacksaga.outbox_message_2 (stripe, number)
    WITH (deduplicate_items = off);
CREATE INDEX outbox_message_0_transaction
    ON stacksaga.outbox_message_0 (transaction_id, stripe, number)
    WITH (deduplicate_items = off);
CREATE INDEX outbox_message_1_transaction
    ON stacksaga.outbox_message_1 (transaction_id, stripe, number)
    WITH (deduplicate_items = off);
CREATE INDEX outbox_message_2_transaction
    ON stacksaga.outbox_message_2 (transaction_id, stripe, number)
    WITH (deduplicate_items = off);
COMMENT ON TABLE stacksaga.outbox_message IS
    'The log: one row per message, never updated or deleted; a generation that every subscription has read is truncated';
COMMENT ON COLUMN stacksaga.outbox_message.number IS 'Counts messages in the order of their publishing';
COMMENT ON COLUMN stacksaga.outbox_message.token IS
    'Its place on the ring: the token of its key, or of its id where it has none';
COMMENT ON COLUMN stacksaga.outbox_message.published_at IS 'When it was published';
COMMENT ON COLUMN stacksaga.outbox_message.ring_id IS 'The ring that it belongs to';
COMMENT ON COLUMN stacksaga.outbox_message.generation IS 'Which of the three tables holds it';
COMMENT ON COLUMN stacksaga.outbox_message.message_id IS 'The same for every delivery';
COMMENT ON COLUMN stacksaga.outbox_message.topic IS 'The topic that it was published to';
COMMENT ON COLUMN stacksaga.outbox_message.key IS 'Messages of one key come in order; null: in any order';
COMMENT ON COLUMN stacksaga.outbox_message.type IS 'What publish() got as its type';
COMMENT ON COLUMN stacksaga.outbox_message.payload IS 'What was published';
COMMENT ON COLUMN stacksaga.outbox_message.headers IS 'Headers, such as a traceparent';
COMMENT ON TABLE stacksaga.outbox_message_0 IS 'One of the three generations of the log';
COMMENT ON TABLE stacksaga.outbox_message_1 IS 'One of the three generations of the log';
COMMENT ON TABLE stacksaga.outbox_message_2 IS 'One of the three generations of the log';
COMMENT ON COLUMN stacksaga.outbox_message.transaction_id IS
    'The 64-bit id of the transaction that published it, by which ticks see it or do not';
COMMENT ON COLUMN stacksaga.outbox_message.origin IS
    'The system identifier of the cluster that transaction_id belongs to';
COMMENT ON COLUMN stacksaga.outbox_message.stripe IS
    'The top four bits of the token, with which the indexes begin: a subscription reads the stripes of its partitions';
COMMENT ON COLUMN stacksaga.outbox_message.deliver_at IS 'Not to be delivered before; null: at once';
-- The three tables say the same of their columns.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT pg_catalog.format('COMMENT ON COLUMN stacksaga.outbox_message_%s.%I IS %L', n, attname,
                                 pg_catalog.col_description(attrelid, attnum))
          FROM pg_catalog.pg_attribute, pg_catalog.generate_series(0, 2) AS n
         WHERE attrelid = 'stacksaga.outbox_message'::regclass AND attnum > 0
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

CREATE TABLE stacksaga.outbox_tick (
    tick          bigint PRIMARY KEY,
    number_before bigint NOT NULL,
    number_after  bigint NOT NULL,
    origin        bigint NOT NULL,
    ticked_at     timestamptz NOT NULL,
    snapshot      pg_snapshot NOT NULL
) WITH (autovacuum_vacuum_insert_threshold = -1);
COMMENT ON TABLE stacksaga.outbox_tick IS
    'Snapshots of the log: a window is the messages that one tick sees and the tick before does not';
COMMENT ON COLUMN stacksaga.outbox_tick.tick IS 'Counts ticks';
COMMENT ON COLUMN stacksaga.outbox_tick.number_after IS 'The last number given out once the snapshot had been taken';
COMMENT ON COLUMN stacksaga.outbox_tick.origin IS 'The system identifier of the cluster that the snapshot belongs to';
COMMENT ON COLUMN stacksaga.outbox_tick.ticked_at IS 'When it was taken';
COMMENT ON COLUMN stacksaga.outbox_tick.snapshot IS 'Which transactions it sees';
COMMENT ON COLUMN stacksaga.outbox_tick.number_before IS
    'The last number given out before the snapshot was taken; number_after: when it had been';

CREATE TABLE stacksaga.subscription (
    subscription_id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ring_id               integer NOT NULL,
    subscription          text COLLATE "C" NOT NULL,
    topic                 text COLLATE "C" NOT NULL,
    partitions            integer NOT NULL,
    content               text NOT NULL,
    definer               name NOT NULL,
    definer_oid           oid,
    handler               text,
    handler_oid           oid,
    takes_batch           boolean NOT NULL,
    fallback              text,
    fallback_oid          oid,
    search_path           text,
    stop_on_first_failure boolean NOT NULL,
    retry                 stacksaga.retry_policy NOT NULL,
    start_origin          bigint,
    start_snapshot        pg_snapshot,
    created_at            timestamptz NOT NULL,
    successor             text COLLATE "C",
    taken_over_at         bigint[],
    paused_at             timestamptz,
    paused_until          timestamptz,
    pause_reason          text,
    UNIQUE (ring_id, subscription)
);
COMMENT ON TABLE stacksaga.subscription IS 'One row per subscription of a ring';
COMMENT ON COLUMN stacksaga.subscription.subscription_id IS 'Numbers the subscriptions';
COMMENT ON COLUMN stacksaga.subscription.ring_id IS 'The ring that it belongs to';
COMMENT ON COLUMN stacksaga.subscription.subscription IS 'The name of the subscription';
COMMENT ON COLUMN stacksaga.subscription.topic IS 'The topic that it reads; with * at its end, all that begin so';
COMMENT ON COLUMN stacksaga.subscription.definer IS 'The role that created it, and that its handler runs as';
COMMENT ON COLUMN stacksaga.subscription.handler IS
    'The signature of the function that takes its messages; null: services receive them';
COMMENT ON COLUMN stacksaga.subscription.handler_oid IS 'That function, as the definer found it';
COMMENT ON COLUMN stacksaga.subscription.takes_batch IS 'Whether that function takes an array of messages';
COMMENT ON COLUMN stacksaga.subscription.fallback IS
    'The signature of the function that takes what has failed for good; null: none';
COMMENT ON COLUMN stacksaga.subscription.fallback_oid IS 'That function, as the definer found it';
COMMENT ON COLUMN stacksaga.subscription.search_path IS
    'The search_path of the session that created it, in force while its functions run';
COMMENT ON COLUMN stacksaga.subscription.stop_on_first_failure IS
    'Whether a message that failed holds the later ones of its key';
COMMENT ON COLUMN stacksaga.subscription.retry IS 'The retry policy of its messages';
COMMENT ON COLUMN stacksaga.subscription.start_origin IS
    'The system identifier of the cluster that start_snapshot belongs to';
COMMENT ON COLUMN stacksaga.subscription.successor IS
    'The subscription that has taken over from it: it keeps its retries and dead messages, and reads no more';
COMMENT ON COLUMN stacksaga.subscription.taken_over_at IS
    'How far the subscription that it has taken over from had read: tick and number of each of its partitions; null: its own positions say it';
COMMENT ON COLUMN stacksaga.subscription.paused_at IS
    'Since when it is paused, and nothing new of it is delivered; null: it is not';
COMMENT ON COLUMN stacksaga.subscription.paused_until IS
    'From when on the pause is over; null: when resume_subscription() ends it';
COMMENT ON COLUMN stacksaga.subscription.pause_reason IS 'The reason that pause_subscription() was given';
COMMENT ON COLUMN stacksaga.subscription.created_at IS 'When it was created';
COMMENT ON COLUMN stacksaga.subscription.content IS
    'Its settings as text, which decides whether create_subscription() repeats them';
COMMENT ON COLUMN stacksaga.subscription.partitions IS
    'How many positions it has, and so how many consumers at once; a power of two up to 256';
COMMENT ON COLUMN stacksaga.subscription.definer_oid IS
    'The role that had the name of the definer when the row was written: another one is not the definer';
COMMENT ON COLUMN stacksaga.subscription.start_snapshot IS
    'Messages that this sees are older than the subscription, and not delivered; null: from the earliest message';

-- Appended to, never updated: under a snapshot held open a row that is updated in place gets slower with
-- each update. Only the latest version counts; maintenance deletes older ones.
CREATE TABLE stacksaga.subscription_position (
    subscription_id integer NOT NULL,
    partition       smallint NOT NULL,
    version         bigint NOT NULL,
    tick            bigint NOT NULL,
    number          bigint NOT NULL,
    written_at      timestamptz NOT NULL,
    batch_id        bigint,
    batch_tick      bigint,
    batch_number    bigint,
    batch_size      integer,
    batch_total     integer,
    room            integer NOT NULL DEFAULT 0,
    lease_until     timestamptz,
    consumer        text,
    lost_tick       bigint,
    lost_number     bigint,
    answered_at     timestamptz,
    released_batch  bigint,
    released_until  timestamptz,
    release_reason  text,
    PRIMARY KEY (subscription_id, partition, version)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 100000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);
COMMENT ON TABLE stacksaga.subscription_position IS
    'How far a subscription has read a partition, and the batch that holds it; the next version is the compare-and-set';
COMMENT ON COLUMN stacksaga.subscription_position.subscription_id IS 'The subscription';
COMMENT ON COLUMN stacksaga.subscription_position.version IS 'Counts the rows of a partition; the highest one holds';
COMMENT ON COLUMN stacksaga.subscription_position.number IS 'See tick';
COMMENT ON COLUMN stacksaga.subscription_position.written_at IS 'When the row was written';
COMMENT ON COLUMN stacksaga.subscription_position.batch_tick IS 'The window that the batch ends in';
COMMENT ON COLUMN stacksaga.subscription_position.batch_number IS
    'The last message of that window that the batch reaches to';
COMMENT ON COLUMN stacksaga.subscription_position.batch_size IS 'How many messages of the log are in the batch';
COMMENT ON COLUMN stacksaga.subscription_position.lease_until IS 'When the lease of the batch runs out';
COMMENT ON COLUMN stacksaga.subscription_position.consumer IS 'Who has the batch';
COMMENT ON COLUMN stacksaga.subscription_position.lost_number IS 'See lost_tick';
COMMENT ON COLUMN stacksaga.subscription_position.lost_tick IS
    'Messages up to (lost_tick, lost_number) were in a batch that its consumer never answered: they may have taken effect';
COMMENT ON COLUMN stacksaga.subscription_position.answered_at IS
    'When a batch of the partition was last acknowledged or given back';
COMMENT ON COLUMN stacksaga.subscription_position.released_batch IS
    'The batch that was given back, until a consumer has received its messages';
COMMENT ON COLUMN stacksaga.subscription_position.released_until IS
    'No consumer gets the partition before, since the last answer gave its batch back';
COMMENT ON COLUMN stacksaga.subscription_position.release_reason IS 'Why, as its consumer said';
COMMENT ON COLUMN stacksaga.subscription_position.partition IS
    'The top bits of a token: a message is in the partition that its token falls into';
COMMENT ON COLUMN stacksaga.subscription_position.tick IS
    'All messages that this tick sees are delivered, and those of the window after it up to number';
COMMENT ON COLUMN stacksaga.subscription_position.batch_id IS
    'The batch that holds the partition until lease_until; it reaches to (batch_tick, batch_number)';
COMMENT ON COLUMN stacksaga.subscription_position.batch_total IS
    'How many messages are in the batch, of all its partitions, retries included';
COMMENT ON COLUMN stacksaga.subscription_position.room IS
    'How many messages a batch with this partition may hold, since one was lost; 0: as many as its consumer asks for; -1: one, for a consumer that holds no other batch';

CREATE SEQUENCE stacksaga.message_batch_id_seq;
COMMENT ON SEQUENCE stacksaga.message_batch_id_seq IS 'Numbers batches of messages';
CREATE TABLE stacksaga.message_batch (
    batch_id        bigint PRIMARY KEY,
    subscription_id integer NOT NULL,
    partitions      smallint[] NOT NULL,
    consumer        text NOT NULL,
    received_at     timestamptz NOT NULL
);
COMMENT ON TABLE stacksaga.message_batch IS
    'One row per batch that a service has received; whether it still holds its partitions is in subscription_position';
COMMENT ON COLUMN stacksaga.message_batch.batch_id IS 'Numbers the batches';
COMMENT ON COLUMN stacksaga.message_batch.subscription_id IS 'The subscription';
COMMENT ON COLUMN stacksaga.message_batch.partitions IS 'The partitions that it was taken from';
COMMENT ON COLUMN stacksaga.message_batch.consumer IS 'Who received it';
COMMENT ON COLUMN stacksaga.message_batch.received_at IS 'When that was';

-- Only inserted into, by who holds the lock on the partition: an update of message_batch would wait for sessions that
-- find its other partitions.
CREATE TABLE stacksaga.lost_batch (
    batch_id        bigint NOT NULL,
    partition       smallint NOT NULL,
    subscription_id integer NOT NULL,
    consumer        text NOT NULL,
    received_at     timestamptz NOT NULL,
    lease_until     timestamptz NOT NULL,
    PRIMARY KEY (batch_id, partition)
);
CREATE INDEX lost_batch_consumer ON stacksaga.lost_batch (subscription_id, consumer, lease_until);
COMMENT ON TABLE stacksaga.lost_batch IS
    'One row per partition of a batch that was lost: what its consumer lost at the same time is not charged for it';
COMMENT ON COLUMN stacksaga.lost_batch.batch_id IS 'The batch';
COMMENT ON COLUMN stacksaga.lost_batch.partition IS 'A partition in which it had messages that were not answered for';
COMMENT ON COLUMN stacksaga.lost_batch.subscription_id IS 'The subscription';
COMMENT ON COLUMN stacksaga.lost_batch.consumer IS 'Who had received it';
COMMENT ON COLUMN stacksaga.lost_batch.received_at IS 'When that was';
COMMENT ON COLUMN stacksaga.lost_batch.lease_until IS 'When its lease ran out';
COMMENT ON INDEX stacksaga.lost_batch_consumer IS 'What a consumer has lost';

CREATE DOMAIN stacksaga.message_retry_state AS text COLLATE "C"
    CHECK (VALUE IN ('delayed', 'held', 'ready', 'leased', 'waiting', 'fallback', 'held_fallback'));
COMMENT ON DOMAIN stacksaga.message_retry_state IS
    'A state of a message that was copied out of the log; see message_transitions()';

-- Failure is the exception and pays for itself: messages that cannot be delivered now are copied out of
-- the log.
CREATE TABLE stacksaga.message_retry (
    subscription_id integer NOT NULL,
    token           stacksaga.ring_token NOT NULL,
    number          bigint NOT NULL,
    tick            bigint NOT NULL,
    partition       smallint NOT NULL,
    attempt         integer NOT NULL,
    crashes          integer NOT NULL DEFAULT 0,
    state           stacksaga.message_retry_state NOT NULL,
    due_at          timestamptz NOT NULL,
    failed_since    timestamptz,
    published_at    timestamptz NOT NULL,
    batch_id        bigint,
    failed_in       bigint,
    message_id      uuid NOT NULL,
    topic           text COLLATE "C" NOT NULL,
    key             text COLLATE "C",
    type            text COLLATE "C",
    payload         jsonb,
    headers         jsonb NOT NULL,
    last_error      text,
    in_doubt        boolean NOT NULL DEFAULT false,
    error_details   jsonb,
    postponed       integer NOT NULL DEFAULT 0,
    CHECK (due_at = 'infinity' OR state NOT IN ('held', 'held_fallback'))
) WITH (fillfactor = 80);
CREATE INDEX message_retry_due ON stacksaga.message_retry
    (subscription_id, partition, due_at, tick, number);
CREATE INDEX message_retry_active ON stacksaga.message_retry (subscription_id, token, tick, number)
    WHERE state NOT IN ('delayed', 'held', 'held_fallback');
CREATE INDEX message_retry_next ON stacksaga.message_retry (due_at);
CREATE INDEX message_retry_batch ON stacksaga.message_retry (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX message_retry_failed ON stacksaga.message_retry (failed_in)
    WHERE failed_in IS NOT NULL;
-- The last one, which is preferred where indexes seem to cost the same: to the plans that are made, and
-- kept, while the table is empty.
ALTER TABLE stacksaga.message_retry ADD PRIMARY KEY (subscription_id, token, tick, number);
COMMENT ON TABLE stacksaga.message_retry IS
    'Messages copied out of the log, per subscription: delayed, failed, or held behind an earlier one of their key';
COMMENT ON COLUMN stacksaga.message_retry.subscription_id IS 'The subscription';
COMMENT ON COLUMN stacksaga.message_retry.token IS
    'Its place on the ring: the token of its key, or of its id where it has none';
COMMENT ON COLUMN stacksaga.message_retry.number IS 'Its number in the log';
COMMENT ON COLUMN stacksaga.message_retry.partition IS 'The partition of the subscription that its token falls into';
COMMENT ON COLUMN stacksaga.message_retry.state IS 'What it waits for; see message_transitions()';
COMMENT ON COLUMN stacksaga.message_retry.published_at IS 'When it was published';
COMMENT ON COLUMN stacksaga.message_retry.message_id IS 'The same for every delivery';
COMMENT ON COLUMN stacksaga.message_retry.topic IS 'The topic that it was published to';
COMMENT ON COLUMN stacksaga.message_retry.key IS 'The key whose order it is in; null: in none';
COMMENT ON COLUMN stacksaga.message_retry.type IS 'What publish() got as its type';
COMMENT ON COLUMN stacksaga.message_retry.payload IS 'What was published';
COMMENT ON COLUMN stacksaga.message_retry.headers IS 'Headers, such as a traceparent';
COMMENT ON COLUMN stacksaga.message_retry.last_error IS 'Its last error';
COMMENT ON COLUMN stacksaga.message_retry.error_details IS
    'PostgreSQL''s DETAIL and CONTEXT of its last ten errors that had one, which may hold values of rows: for operators';
COMMENT ON COLUMN stacksaga.message_retry.in_doubt IS
    'Whether an attempt may have taken effect, since its lease ran out or its consumer reported it unknown: its fallback is not run';
COMMENT ON COLUMN stacksaga.message_retry.postponed IS
    'How often in a row it was due and was put off, since it could not be read';
COMMENT ON INDEX stacksaga.message_retry_due IS 'What is due in a partition';
COMMENT ON INDEX stacksaga.message_retry_active IS 'Messages that block the later ones of their key';
COMMENT ON INDEX stacksaga.message_retry_next IS 'When the next message is due';
COMMENT ON INDEX stacksaga.message_retry_batch IS 'What a batch holds';
COMMENT ON INDEX stacksaga.message_retry_failed IS 'What has failed in a batch';
COMMENT ON COLUMN stacksaga.message_retry.tick IS
    'The tick whose window it was in: messages of a key are delivered by (tick, number)';
COMMENT ON COLUMN stacksaga.message_retry.attempt IS
    'How many attempts it was charged: those that failed, and those whose consumer did not answer and held nothing else';
COMMENT ON COLUMN stacksaga.message_retry.crashes IS
    'How often in a row the process that handled it has crashed';
COMMENT ON COLUMN stacksaga.message_retry.due_at IS
    'When it may be delivered; infinity: when it is released';
COMMENT ON COLUMN stacksaga.message_retry.failed_since IS
    'When an attempt failed for the first time; null: none has failed';
COMMENT ON COLUMN stacksaga.message_retry.batch_id IS
    'The batch that handed it out; its consumer may fail a held message, but acknowledges only leased ones';
COMMENT ON COLUMN stacksaga.message_retry.failed_in IS
    'The batch in which it failed last: that batch acknowledges no later message of its key';

CREATE TABLE stacksaga.dead_message (
    subscription_id integer NOT NULL,
    token           stacksaga.ring_token NOT NULL,
    number          bigint NOT NULL,
    tick            bigint NOT NULL,
    partition       smallint NOT NULL,
    attempts        integer NOT NULL,
    since           timestamptz NOT NULL,
    dead_since      timestamptz NOT NULL,
    published_at    timestamptz NOT NULL,
    failed_in       bigint,
    message_id      uuid NOT NULL,
    topic           text COLLATE "C" NOT NULL,
    key             text COLLATE "C",
    type            text COLLATE "C",
    payload         jsonb,
    headers         jsonb NOT NULL,
    last_error      text,
    discarded_at    timestamptz,
    discarded_by    name,
    discard_reason  text,
    in_doubt        boolean NOT NULL DEFAULT false,
    error_details   jsonb,
    PRIMARY KEY (subscription_id, token, tick, number)
);
CREATE INDEX dead_message_id ON stacksaga.dead_message (subscription_id, message_id);
CREATE INDEX dead_message_place ON stacksaga.dead_message (subscription_id, partition, tick);
CREATE INDEX dead_message_open ON stacksaga.dead_message
    (subscription_id, partition, token, tick, number)
    WHERE discarded_at IS NULL;
CREATE INDEX dead_message_oldest ON stacksaga.dead_message (subscription_id, dead_since, tick, number)
    WHERE discarded_at IS NULL;
CREATE INDEX dead_message_topic ON stacksaga.dead_message
    (subscription_id, topic, dead_since, tick, number)
    WHERE discarded_at IS NULL;
CREATE INDEX dead_message_discarded ON stacksaga.dead_message (discarded_at)
    WHERE discarded_at IS NOT NULL;
CREATE INDEX dead_message_failed ON stacksaga.dead_message (failed_in) WHERE failed_in IS NOT NULL;
CREATE INDEX dead_message_blocking ON stacksaga.dead_message (subscription_id, since)
    WHERE discarded_at IS NULL AND key IS NOT NULL;
COMMENT ON TABLE stacksaga.dead_message IS
    'Messages that failed for good, until an operator redrives or discards them; discarded ones are kept for the record';
COMMENT ON COLUMN stacksaga.dead_message.subscription_id IS 'The subscription';
COMMENT ON COLUMN stacksaga.dead_message.token IS
    'Its place on the ring: the token of its key, or of its id where it has none';
COMMENT ON COLUMN stacksaga.dead_message.number IS 'Its number in the log';
COMMENT ON COLUMN stacksaga.dead_message.tick IS
    'The tick whose window it was in: messages of a key are delivered by (tick, number)';
COMMENT ON COLUMN stacksaga.dead_message.partition IS 'The partition of the subscription that its token falls into';
COMMENT ON COLUMN stacksaga.dead_message.attempts IS 'How often it was given to a consumer';
COMMENT ON COLUMN stacksaga.dead_message.since IS 'Since when it has blocked the later messages of its key';
COMMENT ON COLUMN stacksaga.dead_message.dead_since IS 'Since when it has failed for good';
COMMENT ON COLUMN stacksaga.dead_message.published_at IS 'When it was published';
COMMENT ON COLUMN stacksaga.dead_message.failed_in IS
    'The batch in which it failed last: that batch acknowledges no later message of its key';
COMMENT ON COLUMN stacksaga.dead_message.message_id IS 'The same for every delivery';
COMMENT ON COLUMN stacksaga.dead_message.topic IS 'The topic that it was published to';
COMMENT ON COLUMN stacksaga.dead_message.key IS 'The key whose order it is in; null: in none';
COMMENT ON COLUMN stacksaga.dead_message.type IS 'What publish() got as its type';
COMMENT ON COLUMN stacksaga.dead_message.payload IS 'What was published';
COMMENT ON COLUMN stacksaga.dead_message.headers IS 'Headers, such as a traceparent';
COMMENT ON COLUMN stacksaga.dead_message.last_error IS 'Its last error';
COMMENT ON COLUMN stacksaga.dead_message.error_details IS
    'PostgreSQL''s DETAIL and CONTEXT of its last ten errors that had one, which may hold values of rows: for operators';
COMMENT ON COLUMN stacksaga.dead_message.discarded_at IS 'When it was discarded; null: it was not';
COMMENT ON COLUMN stacksaga.dead_message.discarded_by IS 'The role that discarded it';
COMMENT ON COLUMN stacksaga.dead_message.discard_reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.dead_message.in_doubt IS
    'Whether an attempt may have taken effect, since its lease ran out or its consumer reported it unknown';
COMMENT ON INDEX stacksaga.dead_message_id IS 'Dead messages by the id that operators know';
COMMENT ON INDEX stacksaga.dead_message_oldest IS 'What redrive_messages() takes';
COMMENT ON INDEX stacksaga.dead_message_blocking IS 'Messages that block the later ones of their key, the oldest first';
COMMENT ON INDEX stacksaga.dead_message_topic IS 'What redrive_messages() takes of one topic';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_number_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_generation_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_message', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_message_0', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_message_1', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_message_2', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.outbox_tick', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.subscription', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.subscription_subscription_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.subscription_position', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.message_batch_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.message_batch', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.lost_batch', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.message_retry', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.dead_message', '');
COMMENT ON SEQUENCE stacksaga.subscription_subscription_id_seq IS 'Numbers subscriptions';
