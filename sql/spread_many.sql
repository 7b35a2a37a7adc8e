-- Ten thousand parked sagas, and as many dead messages, come back over ten minutes and not at once.

\set SHOW_CONTEXT never
TRUNCATE stacksaga.saga, stacksaga.saga_attribute, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga, stacksaga.operator_action;
CREATE SCHEMA many;
CREATE ROLE many_support;
SELECT stacksaga.grant_usage('many_support', 'support');
SELECT stacksaga.define_saga('spread_many', ARRAY[stacksaga.queue_step('charge', 'spread_many_open', effect => 'irreversible'),
    stacksaga.queue_step('send', 'spread_many', effect => 'guarded')]);
SELECT count(*) FROM stacksaga.start_sagas('spread_many', array_fill('{}'::jsonb, '{10000}'),
    group_keys => ARRAY(SELECT 'tenant ' || n % 7 FROM generate_series(1, 10000) n),
    attributes => ARRAY(SELECT jsonb_build_object('incident', 42) FROM generate_series(1, 10000)));
DO $$
BEGIN
    FOR n IN 1..10 LOOP
        PERFORM stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('spread_many_open', 'w', 1000);
    END LOOP;
    FOR n IN 1..10 LOOP
        PERFORM stacksaga.fail_step(saga_id, step, lease, 'no driver', 'non_retryable') FROM stacksaga.claim_steps('spread_many', 'w', 1000);
    END LOOP;
END
$$;
SELECT status, count(*) FROM stacksaga.sagas GROUP BY status;
-- How evenly instants lie over ten minutes, which begin with the first of them.
CREATE FUNCTION many.evenness(due timestamptz[])
RETURNS TABLE (due integer, distance_is_ms numeric, first_to_last interval, each_minute_has_a_tenth boolean) LANGUAGE sql AS $$
    WITH instant AS (SELECT d, d - lag(d) OVER (ORDER BY d) AS distance, floor(extract(epoch FROM d - min(d) OVER ()) / 60) AS minute
                       FROM unnest(due) AS d),
         per_minute AS (SELECT minute, count(*) AS n FROM instant GROUP BY minute)
    SELECT cardinality(due), round((1000 * extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY distance))), -1),
           date_trunc('second', max(d) - min(d) + interval '0.5 s'),
           (SELECT count(*) = 10 AND bool_and(n BETWEEN 980 AND 1020) FROM per_minute WHERE minute < 10)
      FROM instant $$;
-- The ids are those that find_sagas() returned, page by page, to whom is on call.
SET ROLE many_support;
CREATE FUNCTION pg_temp.found(status text) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    ids uuid[] = '{}';
    last_at timestamptz;
    last_id uuid;
    page uuid[];
BEGIN
    LOOP
        SELECT array_agg(f.saga_id), min(f.created_at), (array_agg(f.saga_id ORDER BY f.created_at, f.saga_id))[1]
          INTO page, last_at, last_id
          FROM stacksaga.find_sagas('spread_many', status, attributes => '{"incident": 42}', created_before => last_at,
                                    before_saga_id => last_id, max_sagas => 1000) AS f;
        EXIT WHEN page IS NULL;
        ids = ids || page;
    END LOOP;
    RETURN ids;
END
$$;
SELECT set_config('many.ids', pg_temp.found('parked')::text, false) IS NULL AS none;
SELECT cardinality(ids) AS ids, (SELECT count(DISTINCT id) FROM unnest(ids) AS id) AS different
  FROM (SELECT current_setting('many.ids')::uuid[] AS ids) AS s;
-- What would be, which changes nothing and records nothing.
SELECT status_before, status_after, sqlstate, count(*)
  FROM stacksaga.retry_sagas(current_setting('many.ids')::uuid[], 'the bank is back', spread => '10 minutes') GROUP BY 1, 2, 3;
SELECT status, count(*) FROM stacksaga.sagas GROUP BY status;
SELECT count(*) FROM stacksaga.operator_actions WHERE reason = 'the bank is back';
SET stacksaga.on_behalf_of = 'carol';
SELECT status_before, status_after, sqlstate, count(*)
  FROM stacksaga.retry_sagas(current_setting('many.ids')::uuid[], 'the bank is back', false, '10 minutes') GROUP BY 1, 2, 3;
RESET stacksaga.on_behalf_of;
SELECT action, role_name, on_behalf_of, count(DISTINCT object) FROM stacksaga.operator_actions
 WHERE reason = 'the bank is back' GROUP BY 1, 2, 3;
RESET ROLE;
SELECT * FROM many.evenness(ARRAY(SELECT due_at FROM stacksaga.work WHERE purpose = 'step' AND lease_until IS NULL AND due_at < 'infinity'));
-- A service gets them at that pace. (The calls up to here took less than two minutes.)
SELECT min(due_at) AS first FROM stacksaga.work \gset
SELECT set_config('stacksaga.clock_offset', (:'first'::timestamptz + interval '3 minutes' - clock_timestamp())::text, false) IS NULL AS none;
CREATE FUNCTION many.claim() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM stacksaga.claim_steps('spread_many', 'w', 1000, '1 hour') $$;
SELECT many.claim() + many.claim() + many.claim() + many.claim() + many.claim() BETWEEN 2990 AND 3700 AS three_tenths;
RESET stacksaga.clock_offset;
-- Dead messages. (Of one key, they wait for each other as well: outbox_redrive.)
SELECT stacksaga.create_subscription('spread_many', 'spread_many');
SELECT count(stacksaga.publish('spread_many', jsonb_build_object('n', n))) FROM generate_series(1, 10000) n;
CREATE FUNCTION many.receive(fails boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
    number bigint = 0;
    of_batch bigint;
BEGIN
    LOOP
        SELECT m.batch_id, count(CASE WHEN fails THEN stacksaga.fail_message(m.batch_id, m.message_id, 'no', 'non_retryable') END IS NULL)
          INTO batch, of_batch FROM stacksaga.receive_messages('spread_many', 'c', 1000) AS m GROUP BY m.batch_id;
        EXIT WHEN batch IS NULL;
        PERFORM stacksaga.ack_messages(batch);
        number = number + of_batch;
    END LOOP;
    RETURN number;
END
$$;
SELECT many.receive(true);
SELECT count(*) FROM stacksaga.dead_messages;
SELECT count(*) FROM stacksaga.redrive_messages('spread_many', max_messages => 10000, reason => 'fixed', spread => '10 minutes');
SELECT count(*) FROM stacksaga.dead_messages;
SELECT count(*) FROM stacksaga.redrive_messages('spread_many', max_messages => 10000, reason => 'fixed', dry_run => false, spread => '10 minutes');
SELECT count(*) FROM stacksaga.dead_messages;
SELECT * FROM many.evenness(ARRAY(SELECT due_at FROM stacksaga.message_retry));
SELECT action, count(*) FROM stacksaga.operator_actions WHERE reason = 'fixed' GROUP BY action;
SELECT many.receive(false) < 2000 AS few;
SET stacksaga.clock_offset = '10 minutes';
SELECT many.receive(false) > 8000 AS the_rest;
SELECT count(*) FROM stacksaga.message_retry;
SELECT stacksaga.drop_subscription('spread_many', true);

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.saga_attribute, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga, stacksaga.operator_action;
DROP SCHEMA many CASCADE;
DELETE FROM stacksaga.usage_grant WHERE role = 'many_support';
DROP OWNED BY many_support;
DROP ROLE many_support;
