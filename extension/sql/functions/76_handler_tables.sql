-- Which tables a handler names whose rows may be kept without its marker, or lost without it.

-- What a function depends on is known of SQL-standard bodies (BEGIN ATOMIC, RETURN); of the text of
-- other bodies only whether a name occurs in it, which a comment or a string may hold as well. Not
-- known: what dynamic SQL, C and the functions, triggers and views behind it reach.
CREATE OR REPLACE FUNCTION stacksaga_internal.handler_tables(handler oid)
RETURNS TABLE (relation regclass, kind text, is_certain boolean)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.oid::regclass, CASE c.relkind WHEN 'f' THEN 'foreign' ELSE 'unlogged' END,
           d.depends
      FROM pg_proc p
     CROSS JOIN pg_class c
     CROSS JOIN LATERAL (
           SELECT EXISTS (SELECT FROM pg_depend d
                           WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                             AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid)) AS d(depends)
     WHERE p.oid = handler
       AND (c.relkind = 'f' OR c.relkind IN ('r', 'p') AND c.relpersistence = 'u')
       AND (d.depends
            OR p.prolang IN (SELECT l.oid FROM pg_language l WHERE l.lanname NOT IN ('c', 'internal'))
               AND p.prosrc ~* ('(^|[^[:alnum:]_$])' || regexp_replace(c.relname, '([^[:alnum:]_])', E'\\\\\\1', 'g')
                                || '($|[^[:alnum:]_$])'))
$$;
COMMENT ON FUNCTION stacksaga_internal.handler_tables IS
    'Internal: returns the foreign and unlogged tables that a function depends on (is_certain) or names in its text';

-- By number, since a reader of the view need not be allowed to look a handler up.
CREATE OR REPLACE FUNCTION stacksaga_internal.effect_placement(
    definition_id integer, step_no integer, subscription_id integer
) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT coalesce(min(t.kind), 'local')
      FROM (SELECT unnest(ARRAY[d.action, d.compensation, d.fallback])
              FROM stacksaga.definition_step d
             WHERE d.definition_id = $1 AND d.step_no = $2 AND d.kind = 'sql'
            UNION ALL
            SELECT unnest(ARRAY[s.handler, s.fallback])
              FROM stacksaga.subscription s WHERE s.subscription_id = $3) AS h(signature),
           stacksaga_internal.handler_tables(to_regprocedure(h.signature)) AS t
$$;
COMMENT ON FUNCTION stacksaga_internal.effect_placement IS
    'Internal: returns where the effects of a step in SQL, or of a subscription with a handler, are: local, or foreign or unlogged where a function of it names such a table';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_effects()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), handler AS (
        SELECT format('%s "%s" of saga "%s" (version %s)', h.what, s.step, d.saga, d.version) AS name,
               h.signature
          FROM stacksaga.saga_definition d
          JOIN stacksaga.definition_step s USING (definition_id)
         CROSS JOIN LATERAL (VALUES
               ('step', s.action), ('compensation of step', s.compensation),
               ('fallback of step', CASE s.kind WHEN 'sql' THEN s.fallback END)) AS h(what, signature)
         WHERE d.is_current
        UNION ALL
        SELECT format('%s of subscription "%s"', h.what, s.subscription), h.signature
          FROM stacksaga.subscription s
         CROSS JOIN LATERAL (VALUES ('handler', s.handler), ('fallback', s.fallback))
                    AS h(what, signature)
    )
    SELECT 'warning', 'effects',
           format('%s (%s) %s %s table %s: what it writes there %s', h.name, h.signature,
                  CASE WHEN t.is_certain THEN 'uses' ELSE 'names' END, t.kind, t.relation,
                  CASE t.kind WHEN 'foreign' THEN 'is committed on its own, before or without its marker'
                       ELSE 'is lost in a crash, while its marker is kept' END),
           CASE t.kind
           WHEN 'foreign'
           THEN format('Do it in a queue_step, or publish a message: a service there records the idempotency key '
                       'together with its effect. If %s is only read, nothing is wrong.', t.relation)
           ELSE format('ALTER TABLE %s SET LOGGED; -- unless it is only read, or may be lost', t.relation)
           END
      FROM handler h, stacksaga_internal.handler_tables(to_regprocedure(h.signature)) AS t
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_effects IS
    'Internal: returns what doctor() says of effects outside the promise';
