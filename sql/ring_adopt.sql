-- adopt_ring: the work of a ring that died goes to another, fenced.
CREATE FUNCTION pg_temp.refused(statement text, OUT code text, OUT message text, OUT detail text)
LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    message := 'not refused';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    IF hint = '' THEN
        message := message || ' (without a hint)';
    END IF;
END
$$;
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
CREATE SCHEMA adopt;
CREATE TABLE adopt.done (saga_id uuid, step text);
CREATE FUNCTION adopt.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO adopt.done VALUES (call.saga_id, call.step) RETURNING '{}'::jsonb $$;
SELECT stacksaga.define_saga('adopt_me', ARRAY[
    stacksaga.queue_step('ask', 'adopt_questions', compensable => false),
    stacksaga.sql_step('act', 'adopt.act(stacksaga.step_call)')]);
SELECT stacksaga.create_ring('adopt', 'old', slots => 64) > 1 AS created;
SELECT stacksaga.create_ring('adopt', 'new', slots => 1024) > 1 AS created;
SELECT stacksaga.create_ring('adopt', 'other', slots => 64) > 1 AS created;
SELECT pg_temp.set_clock('2031-01-01 00:00:00 UTC');

-- Twenty sagas of the old ring, ten of them with an answered first step, one of the other ring.
SET stacksaga.region = 'adopt';
SET stacksaga.cluster = 'old';
SELECT count(*) FROM stacksaga.start_sagas('adopt_me', array_fill('{}'::jsonb, ARRAY[20]));
CREATE TABLE adopt.claimed AS SELECT * FROM stacksaga.claim_steps('adopt_questions', 'someone', 15);
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM (SELECT * FROM adopt.claimed ORDER BY saga_id LIMIT 10) AS c;
-- And messages, for a handler of that ring.
CREATE TABLE adopt.handled (n int);
CREATE FUNCTION adopt.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO adopt.handled VALUES ((m.payload -> 'n')::int) $$;
SELECT stacksaga.create_subscription('adopted', 'adopt', 'adopt.handle(stacksaga.message)');
SELECT count(stacksaga.publish('adopt', jsonb_build_object('n', n), 'k')) FROM generate_series(1, 3) n;
SET stacksaga.cluster = 'other';
SELECT created FROM stacksaga.start_saga('adopt_me');
SELECT stacksaga.register_node('adopt-n1', 'adopt', 'old') AS n1 \gset

-- Refused while a node may still be at work, and for what makes no sense.
SELECT r.* FROM unnest(ARRAY[
    $$SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'new', 'gone')$$,
    $$SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'old', 'gone')$$,
    $$SELECT stacksaga.adopt_ring('adopt', 'none', 'adopt', 'new', 'gone')$$,
    $$SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'none', 'gone')$$,
    $$SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'new', '')$$,
    $$SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'new', NULL)$$,
    $$SELECT stacksaga.adopt_ring(NULL, 'old', 'adopt', 'new', 'gone')$$
]) AS statement, pg_temp.refused(statement) AS r;
SELECT count(*) FROM stacksaga.sagas WHERE region = 'adopt' AND cluster = 'old';

-- Dead, it is adopted: every saga, its work at the slots of the new ring, the old slots nobody's.
SELECT pg_temp.set_clock('2031-01-01 00:00:31 UTC');
SELECT epoch AS epoch_before FROM stacksaga.ring_state('adopt', 'old') \gset
SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'new', 'its machine burnt');
SELECT cluster, count(*) FROM stacksaga.sagas WHERE region = 'adopt' GROUP BY cluster ORDER BY cluster;
SELECT count(*), bool_and(w.slot = stacksaga.slot(w.token::bigint, 1024)) AS in_their_slots
  FROM stacksaga.work w JOIN stacksaga.ring r ON r.ring_id = w.ring_id
 WHERE r.region = 'adopt' AND r.cluster = 'new';
SELECT count(*) AS slots, count(node) AS owned, count(DISTINCT epoch) AS epochs,
       bool_and(epoch > :epoch_before) AS raised
  FROM stacksaga.ring_slots('adopt', 'old');
SELECT from_cluster, to_cluster, sagas, role = current_user AS by_me, reason,
       date_trunc('second', adopted_at AT TIME ZONE 'UTC') AS adopted_at
  FROM stacksaga.ring_adoptions WHERE from_region = 'adopt';

-- What was claimed before is answered as if nothing had happened; the rest goes on in the new ring.
SET stacksaga.cluster = 'new';
SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease))
  FROM adopt.claimed c WHERE c.saga_id NOT IN (SELECT s.saga_id FROM adopt.claimed s ORDER BY saga_id LIMIT 10);
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('adopt_questions', 'someone', 15);
SELECT stacksaga.run_pending(100);
SELECT count(*), count(DISTINCT saga_id) AS sagas FROM adopt.done;
SELECT cluster, status, count(*) FROM stacksaga.sagas WHERE region = 'adopt' GROUP BY 1, 2 ORDER BY 1, 2;

SELECT n FROM adopt.handled;

-- While the old ring has an owner again its messages are its own.
SET stacksaga.cluster = 'old';
SELECT count(stacksaga.publish('adopt', jsonb_build_object('n', n), 'k')) FROM generate_series(4, 5) n;
BEGIN;
UPDATE stacksaga.slot SET owner = 1 WHERE slot = 0 AND ring_id = (
    SELECT ring_id FROM stacksaga.ring WHERE region = 'adopt' AND cluster = 'old');
SET LOCAL stacksaga.cluster = 'new';
SELECT stacksaga.run_pending();
ROLLBACK;
SET stacksaga.cluster = 'other';
SELECT stacksaga.run_pending();
SET stacksaga.cluster = 'new';
SELECT stacksaga.run_pending();
SELECT n FROM adopt.handled;
SET stacksaga.cluster = 'old';
SELECT stacksaga.drop_subscription('adopted', true);
TRUNCATE stacksaga.outbox_message;

-- Again: nothing is left to move.
SELECT stacksaga.adopt_ring('adopt', 'old', 'adopt', 'new', 'to be sure');

RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT set_config('stacksaga.clock_offset', '0', false);
-- The tests that come after this one count what they find.
DELETE FROM stacksaga.work w USING stacksaga.ring r WHERE w.ring_id = r.ring_id AND r.region = 'adopt';
DELETE FROM stacksaga.effect e USING stacksaga.saga s, stacksaga.ring r
 WHERE e.saga_id = s.saga_id AND s.ring_id = r.ring_id AND r.region = 'adopt';
DELETE FROM stacksaga.saga s USING stacksaga.ring r WHERE s.ring_id = r.ring_id AND r.region = 'adopt';
