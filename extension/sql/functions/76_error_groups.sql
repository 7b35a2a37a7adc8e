-- Errors in groups: what many sagas and messages have in common.

-- Errors that differ only in words with a digit (ids, amounts, instants) are one.
CREATE OR REPLACE FUNCTION stacksaga_internal.error_pattern(error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT regexp_replace(left(error, 500), E'[^\\s"''()<>]*\\d[^\\s"''()<>]*', '...', 'g')
$$;
COMMENT ON FUNCTION stacksaga_internal.error_pattern IS
    'Internal: returns an error without its words that have a digit, which differ from saga to saga';

-- Why sagas stand still: what parked them, and the last error of steps that wait for another attempt.
CREATE OR REPLACE FUNCTION stacksaga_internal.failing_sagas()
RETURNS TABLE (saga_id uuid, definition_id integer, step_no smallint, since timestamptz, is_parked boolean, error text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 1000 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT k.saga_id, s.definition_id, s.parked_step, k.since, true, coalesce(f.error, s.error, '')
      FROM stacksaga.parked_saga k
     CROSS JOIN LATERAL ( -- the limit keeps the planner from reading all sagas
           SELECT s.definition_id, s.parked_step, s.parked_direction, s.error
             FROM stacksaga.saga s
            WHERE s.saga_id = k.saga_id AND s.token OPERATOR(stacksaga.=) k.token
              AND s.status = 'parked' LIMIT 1) AS s
      LEFT JOIN LATERAL (
           SELECT f.error FROM stacksaga.failure f
            WHERE f.saga_id = k.saga_id AND f.token OPERATOR(stacksaga.=) k.token
              AND f.step_no = s.parked_step AND f.direction = s.parked_direction
            ORDER BY f.attempt DESC LIMIT 1) AS f ON true
    UNION ALL
    SELECT w.saga_id, s.definition_id, w.step_no, f.finished_at, false, f.error
      FROM stacksaga.work w
     CROSS JOIN LATERAL (
           SELECT f.error, f.finished_at FROM stacksaga.failure f
            WHERE f.saga_id = w.saga_id AND f.token OPERATOR(stacksaga.=) w.token
              AND f.step_no = w.step_no AND f.direction = w.direction
            ORDER BY f.attempt DESC LIMIT 1) AS f
     CROSS JOIN LATERAL (
           SELECT s.definition_id FROM stacksaga.saga s
            WHERE s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token
              AND s.status <> 'parked' LIMIT 1) AS s
     WHERE w.purpose = 'step' AND w.attempt > 0
$$;
COMMENT ON FUNCTION stacksaga_internal.failing_sagas IS
    'Internal: returns each parked saga, and each step that waits for another attempt, with its last error';

-- Errors that differ only in words with a digit (ids, amounts, instants) are one. Of no more parked sagas
-- than a thousand is the error read.
CREATE OR REPLACE FUNCTION stacksaga_internal.parked_errors(count_max integer DEFAULT 1000)
RETURNS TABLE (saga text, step text, direction text, sagas bigint, since timestamptz, error text, saga_ids uuid[])
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), parked AS MATERIALIZED (
        SELECT k.saga_id, k.since, s.definition_id, s.parked_step, s.parked_direction,
               left(coalesce(f.error, s.error), 500) AS error
          FROM stacksaga.parked_saga k
         CROSS JOIN LATERAL ( -- the limit keeps the planner from reading all sagas
               SELECT s.definition_id, s.parked_step, s.parked_direction, s.error
                 FROM stacksaga.saga s
                WHERE s.saga_id = k.saga_id AND s.token OPERATOR(stacksaga.=) k.token
                  AND s.status = 'parked' LIMIT 1) AS s
          LEFT JOIN LATERAL (
               SELECT f.error FROM stacksaga.failure f
                WHERE f.saga_id = k.saga_id AND f.token OPERATOR(stacksaga.=) k.token
                  AND f.step_no = s.parked_step AND f.direction = s.parked_direction
                ORDER BY f.attempt DESC LIMIT 1) AS f ON true
         LIMIT greatest(count_max, 0)
    )
    SELECT d.saga, ds.step, p.parked_direction::text AS direction, count(*) AS sagas, min(p.since) AS since,
           CASE WHEN min(p.error) = max(p.error) THEN min(p.error) ELSE p.pattern END AS error,
           array_agg(p.saga_id ORDER BY p.since, p.saga_id) AS saga_ids
      FROM (SELECT *, regexp_replace(error, E'[^\\s"''()<>]*\\d[^\\s"''()<>]*', '…', 'g') AS pattern
              FROM parked) AS p
      JOIN stacksaga.saga_definition d ON d.definition_id = p.definition_id
      LEFT JOIN stacksaga.definition_step ds
        ON ds.definition_id = p.definition_id AND ds.step_no = p.parked_step
     GROUP BY d.saga, ds.step, p.parked_direction, p.pattern
     ORDER BY sagas DESC, since LIMIT 20
$$;
COMMENT ON FUNCTION stacksaga_internal.parked_errors IS
    'Internal: returns what parked sagas: of each saga, step and error how many there are, since when, and which';

CREATE OR REPLACE FUNCTION stacksaga_internal.saga_error_groups(max_groups integer DEFAULT 100)
RETURNS TABLE (pattern text, error text, first_seen timestamptz, last_seen timestamptz, parked bigint, retrying bigint,
               sagas text[], steps text[], versions integer[], first_parked uuid[])
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.pattern, CASE WHEN min(p.error) = max(p.error) THEN min(p.error) ELSE p.pattern END,
           min(p.since), max(p.since), count(*) FILTER (WHERE p.is_parked), count(*) FILTER (WHERE NOT p.is_parked),
           array_agg(DISTINCT d.saga), array_agg(DISTINCT ds.step) FILTER (WHERE ds.step IS NOT NULL),
           array_agg(DISTINCT d.version),
           (array_agg(p.saga_id ORDER BY p.since, p.saga_id) FILTER (WHERE p.is_parked))[1:5]
      FROM (SELECT f.saga_id, f.definition_id, f.step_no, f.since, f.is_parked, left(f.error, 500) AS error,
                   stacksaga_internal.error_pattern(f.error) AS pattern
              FROM stacksaga_internal.failing_sagas() AS f) AS p
      JOIN stacksaga.saga_definition d ON d.definition_id = p.definition_id
      LEFT JOIN stacksaga.definition_step ds
        ON ds.definition_id = p.definition_id AND ds.step_no = p.step_no
     GROUP BY p.pattern
     ORDER BY 3 DESC, p.pattern LIMIT greatest(max_groups, 0)
$$;
COMMENT ON FUNCTION stacksaga_internal.saga_error_groups IS
    'Internal: returns error_groups() with the whole error where all of a group are equal, and the ids of the five sagas that have been parked for longest';

CREATE OR REPLACE FUNCTION stacksaga.error_groups(max_groups integer DEFAULT 100)
RETURNS TABLE (pattern text, first_seen timestamptz, last_seen timestamptz, parked bigint, retrying bigint,
               sagas text[], steps text[], versions integer[], note text, link text)
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF max_groups IS NULL OR max_groups NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'argument "max_groups" is out of range' USING ERRCODE = 'SG400',
            DETAIL = format('The value is %s.', coalesce(max_groups::text, 'NULL')), HINT = 'Use 1 to 10000.';
    END IF;
    RETURN QUERY
    SELECT g.pattern, g.first_seen, g.last_seen, g.parked, g.retrying, g.sagas, g.steps, g.versions,
           NULL::text, NULL::text
      FROM stacksaga_internal.saga_error_groups(max_groups) AS g;
END $$;
COMMENT ON FUNCTION stacksaga.error_groups IS
    'Lists the errors of parked sagas and of steps that wait for another attempt, without their words that have a digit, the newest error first, each with how many sagas have it. Raises SG400';

-- By the id, so that an action on a group can go through it in pages.
CREATE OR REPLACE FUNCTION stacksaga_internal.parked_of_pattern(pattern text, after uuid DEFAULT NULL,
    max_sagas integer DEFAULT 1000)
RETURNS SETOF uuid
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 1000 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT f.saga_id
      FROM stacksaga_internal.failing_sagas() AS f
     WHERE f.is_parked AND stacksaga_internal.error_pattern(f.error) = parked_of_pattern.pattern
       AND (after IS NULL OR f.saga_id > after)
     ORDER BY f.saga_id LIMIT greatest(max_sagas, 0)
$$;
COMMENT ON FUNCTION stacksaga_internal.parked_of_pattern IS
    'Internal: returns the parked sagas of a group of error_groups() behind an id, in the order of their ids';

-- Messages that failed for good, and keys that a failed message blocks.
CREATE OR REPLACE FUNCTION stacksaga_internal.message_error_groups(max_groups integer DEFAULT 100)
RETURNS TABLE (subscription text, region text, cluster text, pattern text, error text, first_seen timestamptz,
               last_seen timestamptz, dead bigint, blocked bigint, topics text[])
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.subscription, r.region, r.cluster, p.pattern,
           CASE WHEN min(p.error) = max(p.error) THEN min(p.error) ELSE p.pattern END,
           min(p.since), max(p.since), coalesce(sum(p.dead), 0)::bigint, coalesce(sum(p.blocked), 0)::bigint,
           array_agg(DISTINCT p.topic)
      FROM (SELECT d.subscription_id, d.topic, d.dead_since AS since, 1 AS dead, 0 AS blocked,
                   left(coalesce(d.last_error, ''), 500) AS error,
                   stacksaga_internal.error_pattern(coalesce(d.last_error, '')) AS pattern
              FROM stacksaga.dead_message d
             WHERE d.discarded_at IS NULL
            UNION ALL
            SELECT s.subscription_id, b.topic, b.blocked_since, 0, 1, left(coalesce(b.last_error, ''), 500),
                   stacksaga_internal.error_pattern(coalesce(b.last_error, ''))
              FROM stacksaga.blocked_keys b
              JOIN stacksaga.ring r ON r.region = b.region AND r.cluster = b.cluster
              JOIN stacksaga.subscription s ON s.ring_id = r.ring_id AND s.subscription = b.subscription) AS p
      JOIN stacksaga.subscription s ON s.subscription_id = p.subscription_id
      JOIN stacksaga.ring r ON r.ring_id = s.ring_id
     GROUP BY s.subscription, r.region, r.cluster, p.pattern
     ORDER BY 6 DESC, s.subscription, p.pattern LIMIT greatest(max_groups, 0)
$$;
COMMENT ON FUNCTION stacksaga_internal.message_error_groups IS
    'Internal: returns the errors of dead messages and of blocked keys, of each subscription, the newest first, each with how many messages and keys have it';
