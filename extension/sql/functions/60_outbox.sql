-- The outbox (extension/src/outbox/publish.cpp, subscription.cpp, receive.cpp, dead_message.cpp).

-- The two that publish pin no search_path, which would cost a fourth of a call: they look up only
-- qualified names (docs/decisions/0016-publishing-without-a-pinned-path.md).

CREATE OR REPLACE FUNCTION stacksaga.publish(
    topic      text,
    payload    jsonb,
    key        text        DEFAULT NULL,
    type       text        DEFAULT NULL,
    headers    jsonb       DEFAULT '{}',
    message_id uuid        DEFAULT NULL,
    deliver_at timestamptz DEFAULT NULL
) RETURNS uuid
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER AS 'MODULE_PATHNAME', 'stacksaga_publish';
COMMENT ON FUNCTION stacksaga.publish IS
    'Publishes a message with this transaction and returns its id; messages of one key are delivered in order. Raises SG400, SG409 (the log has a trigger, a check or an unexpected column), SG413';

CREATE OR REPLACE FUNCTION stacksaga.publish_batch(
    topic    text,
    payloads jsonb[],
    keys     text[] DEFAULT NULL,
    types    text[] DEFAULT NULL
) RETURNS SETOF uuid
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER AS 'MODULE_PATHNAME', 'stacksaga_publish_batch';
COMMENT ON FUNCTION stacksaga.publish_batch IS
    'Publishes a message for each element of the arrays and returns their ids, in order. Raises SG400, SG409 (the log has a trigger, a check or an unexpected column), SG413';

CREATE OR REPLACE FUNCTION stacksaga.create_subscription(
    subscription          text,
    topic                 text,
    handler               text                   DEFAULT NULL,
    stop_on_first_failure boolean                DEFAULT true,
    retry                 stacksaga.retry_policy DEFAULT NULL,
    start_at              text                   DEFAULT 'now',
    fallback              text                   DEFAULT NULL,
    partitions            integer                DEFAULT 16,
    successor_of          text                   DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'stacksaga_create_subscription';
COMMENT ON FUNCTION stacksaga.create_subscription IS
    'Subscribes to a topic, or to all topics that begin with the text before its *, for as many consumers at once as there are partitions; the handler is looked up in the caller''s search_path and runs as the caller; a successor goes on where another subscription stops. Raises SG400, SG404 (no such subscription to succeed), SG409 (it exists with other settings, or a session works on the other one)';

CREATE OR REPLACE FUNCTION stacksaga.alter_subscription(
    subscription          text,
    handler               text                   DEFAULT NULL,
    stop_on_first_failure boolean                DEFAULT NULL,
    retry                 stacksaga.retry_policy DEFAULT NULL,
    fallback              text                   DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'stacksaga_alter_subscription';
COMMENT ON FUNCTION stacksaga.alter_subscription IS
    'Changes settings of a subscription, null for no change; it keeps its position, its retries and its dead messages. Raises SG400, SG403 (its functions run as another role), SG404, SG409 (a consumer holds a batch, its own handler is calling, or a function of another role stays)';

CREATE OR REPLACE FUNCTION stacksaga.drop_subscription(
    subscription text, discard boolean DEFAULT false
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_drop_subscription';
COMMENT ON FUNCTION stacksaga.drop_subscription IS
    'Removes a subscription with its positions, and with discard also with the messages that it has not handled. Raises SG400, SG403 (its functions run as another role), SG404, SG409 (it has unread, waiting or dead messages, or a session works on them)';

CREATE OR REPLACE FUNCTION stacksaga.pause_subscription(
    subscription text, reason text, until timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_pause_subscription';
COMMENT ON FUNCTION stacksaga.pause_subscription IS
    'From its commit on nothing new of a subscription is delivered, until that instant or resume_subscription(); batches under a lease go on. Raises SG400, SG404, SG409 (it is paused)';

CREATE OR REPLACE FUNCTION stacksaga.resume_subscription(subscription text, reason text)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_subscription';
COMMENT ON FUNCTION stacksaga.resume_subscription IS
    'Ends the pause of a subscription. Raises SG400, SG404, SG409 (it is not paused)';

CREATE OR REPLACE FUNCTION stacksaga.receive_messages(
    subscription text,
    consumer     text,
    max_messages integer  DEFAULT 100,
    lease        interval DEFAULT '30 seconds'
) RETURNS SETOF stacksaga.message
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_receive_messages';
COMMENT ON FUNCTION stacksaga.receive_messages IS
    'Receives one batch of messages under a lease; messages of one key are in one batch at a time. Raises SG400, SG404, SG409 (the subscription has a handler)';

-- No SECURITY DEFINER and no SET: a procedure that has them cannot commit.
CREATE OR REPLACE PROCEDURE stacksaga.wait_for_messages(
    subscription text,
    wait         interval DEFAULT '20 seconds',
    consumer     text     DEFAULT NULL
)
LANGUAGE c
AS 'MODULE_PATHNAME', 'stacksaga_wait_for_messages';
COMMENT ON PROCEDURE stacksaga.wait_for_messages IS
    'Waits, without a snapshot, until receive_messages() may find something of a subscription, or for that time at most, a minute; not inside a transaction block. Raises SG400, SG404, SG409 (it has a handler, or in a transaction block)';

CREATE OR REPLACE FUNCTION stacksaga.extend_batch(
    batch_id bigint, extend_by interval DEFAULT '30 seconds'
) RETURNS timestamptz
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_extend_batch';
COMMENT ON FUNCTION stacksaga.extend_batch IS
    'Extends the lease on a batch, never shortens it, and returns until when. Raises SG400, SG404, SG412 (the lease is lost)';

CREATE OR REPLACE FUNCTION stacksaga.fail_message(
    batch_id    bigint,
    message_id  uuid,
    error       text,
    error_class text     DEFAULT 'retryable',
    retry_after interval DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_fail_message';
COMMENT ON FUNCTION stacksaga.fail_message IS
    'Reports that one message of a batch failed; it is delivered again, and later messages of its key wait for it. Raises SG400, SG404, SG412 (the lease is lost), SG413';

CREATE OR REPLACE FUNCTION stacksaga.ack_messages(batch_id bigint) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_ack_messages';
COMMENT ON FUNCTION stacksaga.ack_messages IS
    'Acknowledges a batch except for the messages that failed and those held behind them, and returns how many it acknowledged. Raises SG404, SG412 (the lease is lost)';

CREATE OR REPLACE FUNCTION stacksaga.release_batch(
    batch_id bigint, retry_after interval DEFAULT '0', reason text DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_release_batch';
COMMENT ON FUNCTION stacksaga.release_batch IS
    'Gives a batch back: its messages keep attempt and order, but for those that failed in it, and no consumer gets its partitions before retry_after. Raises SG400, SG404, SG412 (the lease is lost)';

CREATE OR REPLACE FUNCTION stacksaga.redrive_message(
    subscription          text,
    message_id            uuid,
    reason                text    DEFAULT NULL,
    past_dedupe_retention boolean DEFAULT false
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_redrive_message';
COMMENT ON FUNCTION stacksaga.redrive_message IS
    'Delivers a dead message again, with all its attempts, and what died behind it in its key where the subscription stops on failures. Raises SG400, SG404, SG409 (it is older than stacksaga.dedupe_retention), SG413';

CREATE OR REPLACE FUNCTION stacksaga.redrive_messages(
    subscription          text,
    topic                 text     DEFAULT NULL,
    max_messages          integer  DEFAULT 1000,
    reason                text     DEFAULT NULL,
    dry_run               boolean  DEFAULT true,
    spread                interval DEFAULT '0',
    past_dedupe_retention boolean  DEFAULT false
) RETURNS TABLE (message_id uuid, topic text, key text, dead_since timestamptz, last_error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_redrive_messages';
COMMENT ON FUNCTION stacksaga.redrive_messages IS
    'Delivers the oldest dead messages of a subscription, or of one topic or of those that begin with the text before its *, again, with all their attempts, and returns them; they fall due evenly over spread, those of a key in order; a dry run only returns them. Raises SG400, SG404, SG409 (some are older than stacksaga.dedupe_retention), SG413';

CREATE OR REPLACE FUNCTION stacksaga.discard_message(
    subscription text, message_id uuid, reason text
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_discard_message';
COMMENT ON FUNCTION stacksaga.discard_message IS
    'Ends a dead message for ever, so that its key continues; the reason and the role are kept. Raises SG400, SG404, SG413';

CREATE OR REPLACE FUNCTION stacksaga.cloudevent(
    topic        text,
    key          text,
    type         text,
    payload      jsonb,
    headers      jsonb,
    message_id   uuid,
    published_at timestamptz
) RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stacksaga_cloudevent';
COMMENT ON FUNCTION stacksaga.cloudevent IS
    'Makes a CloudEvents 1.0 envelope of a message; text headers whose names CloudEvents allows become its attributes';

CREATE OR REPLACE FUNCTION stacksaga.maintain_outbox(at_once boolean DEFAULT false) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_maintain_outbox';
COMMENT ON FUNCTION stacksaga.maintain_outbox IS
    'Maintains the log as a worker does from time to time: begins a new generation, copies out expired messages, truncates generations that every subscription has read; returns whether there is more to do. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga_internal.outbox_backlog(subscription_id integer)
RETURNS TABLE (messages bigint, seconds double precision)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_outbox_backlog';
COMMENT ON FUNCTION stacksaga_internal.outbox_backlog IS
    'Internal: returns how many messages a subscription has not handled, and the age of the oldest one';

CREATE OR REPLACE FUNCTION stacksaga_internal.outbox_unread_since(subscription_id integer)
RETURNS timestamptz
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_outbox_unread_since';
COMMENT ON FUNCTION stacksaga_internal.outbox_unread_since IS
    'Internal: returns when the first message was published that a subscription has not read; null: it has read all';

-- The newest row of each partition, by the key.
CREATE OR REPLACE FUNCTION stacksaga_internal.last_release(subscription_id integer, partitions integer)
RETURNS TABLE (released_until timestamptz, release_reason text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.released_until, p.release_reason
      FROM generate_series(0, least(greatest(last_release.partitions, 0), 256) - 1) AS n(partition)
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.subscription_position p
            WHERE p.subscription_id = last_release.subscription_id AND p.partition = n.partition::smallint
            ORDER BY p.version DESC LIMIT 1) AS p
     WHERE p.answered_at IS NOT NULL ORDER BY p.answered_at DESC LIMIT 1
$$;
COMMENT ON FUNCTION stacksaga_internal.last_release IS
    'Internal: returns until when and why the last answer of a subscription''s consumers gave its batch back; nulls: it acknowledged it';

CREATE OR REPLACE FUNCTION stacksaga.message_transitions()
RETURNS TABLE (from_state text, event text, to_state text, sentence text)
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 51
AS 'MODULE_PATHNAME', 'stacksaga_message_transitions';
COMMENT ON FUNCTION stacksaga.message_transitions IS
    'Returns what each event does to a message of a subscription in each state, with a sentence for each';
