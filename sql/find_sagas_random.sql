-- find_sagas() against plain SQL: random sagas, random filters, all pages of them.

TRUNCATE stacksaga.saga, stacksaga.saga_attribute, stacksaga.work, stacksaga.effect, stacksaga.failure;
CREATE SCHEMA random_find;
SELECT setseed(0.27);
CREATE FUNCTION random_find.one_of(choices text[]) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT choices[1 + floor(random() * cardinality(choices))::int]
$$;
-- Few values of each, so that filters meet; often several sagas of one instant.
DO $$
DECLARE
    version int;
BEGIN
    FOR version IN 1..2 LOOP
        PERFORM stacksaga.define_saga('find ' || name, ARRAY[stacksaga.queue_step('only', 'find ' || version, compensable => true)])
           FROM unnest('{a,b,c}'::text[]) AS name;
        FOR n IN 1..60 LOOP
            PERFORM stacksaga.start_sagas('find ' || random_find.one_of('{a,b,c}'),
                    (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, size) AS i),
                    (SELECT array_agg(CASE WHEN random() < 0.7 THEN random_find.one_of('{x,xy,y,%,ÿ}') || '-' || n || '-' || i END) FROM generate_series(1, size) AS i),
                    attributes => (SELECT array_agg(jsonb_strip_nulls(jsonb_build_object(
                        'n', CASE WHEN random() < 0.5 THEN floor(random() * 4) END, 'flag', CASE WHEN random() < 0.5 THEN random() < 0.3 END,
                        'text', CASE WHEN random() < 0.5 THEN random_find.one_of('{1,true,de}') END))) FROM generate_series(1, size) AS i))
               FROM (SELECT 1 + floor(random() * 9)::int AS size) AS s;
        END LOOP;
    END LOOP;
END
$$;
-- Into all statuses.
SELECT count(*) > 0 AS claimed FROM stacksaga.claim_steps('find 1', 'w', 150);
SELECT count(stacksaga.complete_step(saga_id, step, lease)) > 0 AS completed FROM stacksaga.claim_steps('find 1', 'w', 60);
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')) > 0 AS failed FROM stacksaga.claim_steps('find 2', 'w', 60);
SELECT count(stacksaga.cancel_saga(saga_id, 'no')) > 0 AS cancelled
  FROM (SELECT saga_id FROM stacksaga.saga WHERE status = 'running' ORDER BY input, saga_id LIMIT 20) AS s;
SELECT count(stacksaga.suspend_saga(saga_id, 'no')) > 0 AS suspended
  FROM (SELECT saga_id FROM stacksaga.saga WHERE status IN ('pending', 'running') ORDER BY input, saga_id LIMIT 30) AS s;
SELECT count(DISTINCT status) > 4 AS many_statuses, count(*) > 400 AS many_sagas, count(DISTINCT created_at) < count(*) / 2 AS shared_instants FROM stacksaga.saga;

-- Whether all pages of a filter are what plain SQL returns, in its order.
CREATE FUNCTION random_find.check_one(saga text, status text, prefix text, attributes jsonb, before timestamptz, page int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    expected uuid[];
    found uuid[] = '{}';
    row record;
    last_at timestamptz = before;
    last_id uuid;
    rows int;
BEGIN
    SELECT coalesce(array_agg(s.saga_id ORDER BY s.created_at DESC, s.saga_id DESC), '{}') INTO expected
      FROM stacksaga.sagas v JOIN stacksaga.saga s USING (saga_id)
     WHERE (check_one.saga IS NULL OR v.saga = check_one.saga) AND (check_one.status IS NULL OR v.status = check_one.status)
       AND (prefix IS NULL OR starts_with(v.key, prefix)) AND (check_one.attributes IS NULL OR check_one.attributes = '{}' OR s.attributes @> check_one.attributes)
       AND (before IS NULL OR v.created_at < before);
    LOOP
        rows = 0;
        FOR row IN SELECT f.* FROM stacksaga.find_sagas(saga, status, prefix, attributes, last_at, last_id, page) AS f LOOP
            rows = rows + 1;
            found = found || row.saga_id;
            last_at = row.created_at;
            last_id = row.saga_id;
        END LOOP;
        EXIT WHEN rows < page;
    END LOOP;
    IF found = expected THEN
        RETURN CASE WHEN cardinality(found) = 0 THEN 'none' ELSE 'some' END;
    END IF;
    RAISE NOTICE 'find_sagas(%, %, %, %, %, max_sagas => %): % of %', saga, status, prefix, attributes, before, page, cardinality(found), cardinality(expected);
    RETURN 'differs';
END
$$;
SELECT result, count(*) > 50 AS often FROM (
    SELECT random_find.check_one(
               CASE WHEN random() < 0.4 THEN random_find.one_of('{find a,find b,find c}') END,
               CASE WHEN random() < 0.5 THEN random_find.one_of('{pending,running,compensating,completed,failed,parked,suspended}') END,
               CASE WHEN random() < 0.4 THEN random_find.one_of('{x,xy,xy-1,y-,%,ÿ,x-7-1,z}') END,
               CASE WHEN random() < 0.5 THEN jsonb_strip_nulls(jsonb_build_object(
                   'n', CASE WHEN random() < 0.5 THEN floor(random() * 4) END, 'flag', CASE WHEN random() < 0.4 THEN random() < 0.3 END,
                   'text', CASE WHEN random() < 0.4 THEN random_find.one_of('{1,true,de}') END)) END,
               CASE WHEN random() < 0.4 THEN (SELECT created_at FROM stacksaga.saga ORDER BY random() LIMIT 1) END,
               (random_find.one_of('{1,2,7,50,1000}'))::int) AS result
      FROM generate_series(1, 400)) AS r
 GROUP BY result ORDER BY result;

SET client_min_messages = warning;
DROP SCHEMA random_find CASCADE;
TRUNCATE stacksaga.saga, stacksaga.saga_attribute, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action;
