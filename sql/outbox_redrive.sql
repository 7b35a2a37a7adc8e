-- Dead messages that an operator redrives together: the oldest ones, over a while, in the order of
-- their keys.

\set SHOW_CONTEXT never
CREATE SCHEMA redrive;
CREATE FUNCTION redrive.put(first int, last int, key text, topic text DEFAULT 'orders')
RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish(topic, jsonb_build_object('n', n), key))
      FROM generate_series(first, last) n
$$;
-- Receives everything that is due; those of `dead` fail for good, the others are acknowledged.
CREATE FUNCTION redrive.receive(dead int[] DEFAULT '{}', failing int[] DEFAULT '{}') RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    m stacksaga.message;
    batch bigint;
    got int[];
BEGIN
    FOR m IN SELECT * FROM stacksaga.receive_messages('redrive', 'c', 2000) LOOP
        batch := m.batch_id;
        got := got || (m.payload ->> 'n')::int;
        IF (m.payload ->> 'n')::int = ANY (dead) THEN
            PERFORM stacksaga.fail_message(batch, m.message_id, 'error ' || (m.payload ->> 'n'), 'non_retryable');
        ELSIF (m.payload ->> 'n')::int = ANY (failing) THEN
            PERFORM stacksaga.fail_message(batch, m.message_id, 'busy', retry_after => '3 minutes');
        END IF;
    END LOOP;
    PERFORM stacksaga.ack_messages(batch) WHERE batch IS NOT NULL;
    RETURN got;
END
$$;
CREATE VIEW redrive.retries AS
    SELECT (payload -> 'n')::int AS n, key, state, attempt,
           CASE WHEN due_at < 'infinity'
                THEN round(extract(epoch FROM due_at - stacksaga.clock_now()) / 60) END AS minute
      FROM stacksaga.message_retry ORDER BY tick, number;
CREATE VIEW redrive.dead AS
    SELECT (payload -> 'n')::int AS n, topic, key, last_error FROM stacksaga.dead_messages ORDER BY 1;
SELECT stacksaga.create_subscription('redrive', '*');

SELECT redrive.put(1, 3, 'k'), redrive.put(4, 6, NULL), redrive.put(7, 8, NULL, 'other'), redrive.put(9, 10, 'k');
SELECT cardinality(redrive.receive('{1,2,4,5,6,7,8}'));
SELECT * FROM redrive.dead;

-- A dry run, which is the default, says what would be redriven, the oldest first, and changes nothing.
SELECT topic, key, last_error, dead_since <= stacksaga.clock_now() AS since
  FROM stacksaga.redrive_messages('redrive');
SELECT last_error FROM stacksaga.redrive_messages('redrive', max_messages => 2);
SELECT last_error FROM stacksaga.redrive_messages('redrive', 'other');
-- Of the topics that begin so.
SELECT last_error, topic FROM stacksaga.redrive_messages('redrive', 'oth*');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', '*');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', 'x*');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', 'oth%*');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', 'nobody', dry_run => false);
SELECT count(*) FROM redrive.dead;

-- Of one topic, so many, with all their attempts.
SELECT last_error FROM stacksaga.redrive_messages('redrive', 'other', 1, 'back', false);
SELECT * FROM redrive.retries;
SELECT action, regexp_replace(object, '[0-9a-f-]{36}', '(id)') AS object, role_name = current_user AS mine, reason
  FROM stacksaga.operator_actions WHERE reason = 'back' AND object LIKE 'message % of subscription redrive';
SELECT redrive.receive('{7}');
SELECT last_error FROM stacksaga.redrive_messages('redrive', 'other', dry_run => false);
SELECT redrive.receive();

-- Over ten minutes: they are due at even distances, and those of a key in their order.
SELECT last_error FROM stacksaga.redrive_messages('redrive', dry_run => false, spread => '10 minutes');
SELECT * FROM redrive.retries;
SELECT redrive.receive();
SET stacksaga.clock_offset = '2 minutes 30 seconds';
-- The second one of the key fails again: those behind it wait, those of no key do not.
SELECT redrive.receive(failing => '{2}');
SET stacksaga.clock_offset = '4 minutes 30 seconds';
SELECT redrive.receive();
SELECT * FROM redrive.retries;
SET stacksaga.clock_offset = '10 minutes';
SELECT redrive.receive(), redrive.receive(), redrive.receive();
SELECT * FROM redrive.dead;
SELECT count(*) FROM stacksaga.message_retry;

-- The first one of the key fails again, until after the next ones are due: they wait for it.
SELECT redrive.put(11, 13, 'k');
SELECT redrive.receive('{11,12,13}');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', dry_run => false, spread => '3 minutes');
SELECT redrive.receive(failing => '{11}');
SET stacksaga.clock_offset = '12 minutes 30 seconds';
SELECT redrive.receive();
SELECT * FROM redrive.retries;
SET stacksaga.clock_offset = '14 minutes';
SELECT redrive.receive(), redrive.receive();

-- What lies behind a dead message that stays is held, as redrive_message() holds it.
SELECT redrive.put(21, 21, 'k', 'stays'), redrive.put(22, 23, 'k');
SELECT redrive.receive('{21,22,23}');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', 'orders', dry_run => false);
SELECT * FROM redrive.retries;
SELECT redrive.receive();
SELECT count(*) FROM stacksaga.redrive_messages('redrive', dry_run => false);
SELECT redrive.receive(), redrive.receive();

-- Where a failure does not stop its key, nothing is held.
SELECT stacksaga.alter_subscription('redrive', stop_on_first_failure => false);
SELECT redrive.put(31, 33, 'k');
SELECT redrive.receive('{31,33}');
SELECT count(*) FROM stacksaga.redrive_messages('redrive', max_messages => 1, dry_run => false);
SELECT count(*) FROM stacksaga.redrive_messages('redrive', dry_run => false);
SELECT redrive.receive();

-- What is not taken costs nothing.
SELECT redrive.put(1001, 2000, NULL), redrive.put(2001, 2003, NULL, 'other');
SELECT cardinality(redrive.receive(ARRAY(SELECT generate_series(1001, 2003))));
CREATE FUNCTION redrive.read() RETURNS numeric LANGUAGE sql AS $$
    SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_all_tables
     WHERE relid IN ('stacksaga.dead_message'::regclass, 'stacksaga.message_retry'::regclass)
$$;
BEGIN;
SELECT redrive.read() AS before \gset
SELECT count(*) FROM stacksaga.redrive_messages('redrive', max_messages => 10, dry_run => false);
SELECT count(*) FROM stacksaga.redrive_messages('redrive', 'other', 2, dry_run => false);
SELECT redrive.read() - :before < 100 AS is_little;
COMMIT;

-- Bad input.
CREATE FUNCTION redrive.try(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    d text;
    h text;
BEGIN
    EXECUTE format('SELECT FROM stacksaga.redrive_messages(%s)', call);
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', sqlstate, sqlerrm, d, h);
END
$$;
SELECT redrive.try(call) FROM unnest(ARRAY['NULL', $$'nobody'$$,
    $$'redrive', max_messages => 0$$, $$'redrive', max_messages => 10001$$, $$'redrive', max_messages => NULL$$,
    $$'redrive', dry_run => NULL$$, $$'redrive', spread => '8 days'$$,
    $$'redrive', reason => repeat('x', 70000)$$]) AS call;

-- A discarded message is kept for the record as long as the log is; the others stay.
SELECT redrive.put(91, 93, NULL);
SELECT cardinality(redrive.receive('{91,92,93}'));
SELECT count(stacksaga.discard_message('redrive', message_id, 'of no use')) FROM stacksaga.dead_messages
 WHERE payload ->> 'n' IN ('91', '93');
UPDATE stacksaga.dead_message SET discarded_at = stacksaga.clock_now() - CASE payload ->> 'n' WHEN '91' THEN interval '4 days' ELSE '2 days' END
 WHERE discarded_at IS NOT NULL AND payload ->> 'n' IN ('91', '93');
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT payload -> 'n' AS n, discarded_at IS NOT NULL AS discarded FROM stacksaga.dead_message
 WHERE payload ->> 'n' IN ('91', '92', '93') ORDER BY 1;

SELECT stacksaga.drop_subscription('redrive', true);
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.outbox_message, stacksaga.message_batch;
SET client_min_messages = warning;
DROP SCHEMA redrive CASCADE;
