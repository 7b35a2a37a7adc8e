-- Definitions explained: as a picture, and as what their retries add up to.

-- Mermaid decodes #NNN; in labels. Every character that Mermaid, or the HTML that it makes, could
-- interpret is written so: whatever a label says, it stays one label.
CREATE OR REPLACE FUNCTION stacksaga_internal.diagram_label(label text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(string_agg(
               CASE WHEN ascii(c) < 32 OR ascii(c) BETWEEN 127 AND 159 THEN ' '
                    WHEN stacksaga_internal.printable(c) <> c THEN stacksaga_internal.diagram_label(stacksaga_internal.printable(c))
                    WHEN ascii(c) > 159 OR c COLLATE "C" ~ '^[A-Za-z0-9 _.,()-]$' THEN c
                    ELSE '#' || ascii(c) || ';' END, '' ORDER BY place), '')
      FROM regexp_split_to_table(label, '') WITH ORDINALITY AS s(c, place)
$$;
COMMENT ON FUNCTION stacksaga_internal.diagram_label IS
    'Internal: returns a text as it is written between the quotes of a Mermaid label';

-- What a step, its fallback or its compensation does, in a few words.
CREATE OR REPLACE FUNCTION stacksaga_internal.diagram_action(kind text, handler text, target text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT stacksaga_internal.diagram_label(kind || ' ' || CASE
               WHEN kind = 'sql' THEN regexp_replace(handler, E'\\([^()]*\\)$', '') ELSE target END)
$$;
COMMENT ON FUNCTION stacksaga_internal.diagram_action IS
    'Internal: returns a line of a Mermaid label: a kind of step, and its function, queue or other target';

-- One line a statement. Nodes: sN is step N, fN its fallback, cN its compensation; gN is a stage of
-- several steps.
CREATE OR REPLACE FUNCTION stacksaga_internal.diagram_lines(definition_id integer)
RETURNS TABLE (part integer, place integer, line text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
AS $$
    WITH stacksaga_this_node AS (SELECT), step AS (
        SELECT ds.step_no AS no, ds.stage, ds.kind, ds.effect = 'irreversible' AS is_pivot,
               CASE WHEN ds.on_failure <> definition.on_failure THEN ds.on_failure END AS on_failure,
               ds.effect = 'compensable' AS is_compensable, ds.fallback IS NOT NULL AS has_fallback,
               count(*) OVER (PARTITION BY ds.stage) AS siblings,
               stacksaga_internal.diagram_label(ds.step) AS name,
               stacksaga_internal.diagram_action(ds.kind, ds.action, d.target) AS does,
               stacksaga_internal.diagram_action(CASE ds.kind WHEN 'signal' THEN 'queue' ELSE ds.kind END, ds.compensation,
                                      coalesce(CASE ds.kind WHEN 'signal' THEN ds.fallback END,
                                               ds.compensation_queue, ds.compensation_topic, d.target)) AS undoes,
               stacksaga_internal.diagram_action(CASE WHEN ds.kind IN ('sql', 'message') THEN ds.kind
                                      ELSE 'queue' END,
                                      ds.fallback, ds.fallback) AS falls_back
          FROM stacksaga.definition_step ds JOIN stacksaga.saga_definition definition USING (definition_id),
               coalesce(ds.queue, ds.signal, ds.delay::text, ds.child_saga, ds.topic) AS d(target)
         WHERE ds.definition_id = diagram_lines.definition_id
    ), node AS (
        SELECT no, stage, siblings, format(CASE kind WHEN 'sql' THEN 's%s["%s<br/>%s%s%s"]'
                                                     WHEN 'signal' THEN 's%s>"%s<br/>%s%s%s"]'
                                                     WHEN 'timer' THEN 's%s("%s<br/>%s%s%s")'
                                                     WHEN 'child' THEN 's%s[["%s<br/>%s%s%s"]]'
                                                     ELSE 's%s[/"%s<br/>%s%s%s"/]' END,
                      no, name, does, CASE WHEN is_pivot THEN '<br/>irreversible' END,
                      '<br/>on failure#58; ' || on_failure)
               || CASE WHEN is_pivot THEN ':::pivot' ELSE '' END AS text
          FROM step
    ), stage AS (
        SELECT stage, CASE WHEN count(*) > 1 THEN 'g' || stage ELSE 's' || min(no) END AS id
          FROM step GROUP BY stage
    ), undo_stage AS (
        SELECT stage, array_agg('c' || no ORDER BY no) AS ids
          FROM step WHERE is_compensable GROUP BY stage
    )
    SELECT 1, stage * 10000 + no, text FROM node WHERE siblings = 1
    UNION ALL
    SELECT 1, stage * 10000, format('subgraph g%s["stage %s, side by side"]', stage, stage)
      FROM stage WHERE id LIKE 'g%'
    UNION ALL
    SELECT 1, stage * 10000 + no, '    ' || text FROM node WHERE siblings > 1
    UNION ALL
    SELECT 1, stage * 10000 + 9999, 'end' FROM stage WHERE id LIKE 'g%'
    UNION ALL
    SELECT 1, 100000000 + no, format('f%s["fallback of %s<br/>%s"]', no, name, falls_back)
      FROM step WHERE has_fallback
    UNION ALL
    SELECT 2, no, format('c%s(["undo %s<br/>%s"]):::undo', no, name, undoes)
      FROM step WHERE is_compensable
    UNION ALL
    SELECT 3, stage, format('%s --> %s', lag(id, 1, 'begin') OVER forward, id)
      FROM stage WINDOW forward AS (ORDER BY stage)
    UNION ALL
    SELECT 3, 100000, id || ' --> completed'
      FROM (SELECT id FROM stage ORDER BY stage DESC LIMIT 1) AS last
    UNION ALL
    SELECT 4, no, format('s%s -. or else .-> f%s', no, no) FROM step WHERE has_fallback
    UNION ALL
    SELECT 5, no, format('s%s -. undone by .-> c%s', no, no) FROM step WHERE is_compensable
    UNION ALL
    SELECT 6, -later.stage, format('%s -.-> %s', array_to_string(later.ids, ' & '),
               coalesce(array_to_string(earlier.ids, ' & '), 'failed'))
      FROM undo_stage later
      LEFT JOIN LATERAL (SELECT ids FROM undo_stage u WHERE u.stage < later.stage
                          ORDER BY u.stage DESC LIMIT 1) AS earlier ON true
$$;
COMMENT ON FUNCTION stacksaga_internal.diagram_lines IS
    'Internal: returns the statements of saga_diagram() in order of part and place';

CREATE OR REPLACE FUNCTION stacksaga_internal.definition_id(saga text, version integer) RETURNS integer
LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_definition_id';
COMMENT ON FUNCTION stacksaga_internal.definition_id IS
    'Internal: returns the id of a version of a definition, NULL: the current one. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.saga_diagram(saga text, version integer DEFAULT NULL)
RETURNS text
LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT E'flowchart TD\n'
           || format(E'    begin(("%s<br/>version %s%s"))\n',
                     stacksaga_internal.diagram_label(d.saga), d.version,
                     CASE d.on_failure WHEN 'park' THEN '<br/>on failure#58; park' END)
           || string_agg('    ' || l.line, E'\n' ORDER BY l.part, l.place)
           || E'\n    completed((completed))'
           || CASE WHEN bool_or(l.part = 2)
                   THEN E'\n    failed((failed))\n    classDef undo stroke-dasharray:4' ELSE '' END
           || CASE WHEN bool_or(l.line LIKE '%:::pivot')
                   THEN E'\n    classDef pivot stroke-width:4px' ELSE '' END
      FROM stacksaga.saga_definition d, stacksaga_internal.diagram_lines(d.definition_id) AS l
     WHERE d.definition_id = stacksaga_internal.definition_id(saga_diagram.saga, saga_diagram.version)
     GROUP BY d.definition_id
$$;
COMMENT ON FUNCTION stacksaga.saga_diagram IS
    'Draws a definition, the current one or a version, as a Mermaid flowchart: solid arrows lead from step to step, dotted ones to fallbacks and compensations. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.explain_retries(
    saga text, outer_attempts integer[] DEFAULT '{}'
) RETURNS TABLE (step text, attempts integer, longest_window interval, worst_case_calls bigint,
                 dedupe_window interval, warning text)
LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER ROWS 10
SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
AS 'MODULE_PATHNAME', 'stacksaga_explain_retries';
COMMENT ON FUNCTION stacksaga.explain_retries IS
    'Returns what the retries of each step of a saga add up to: how often and for how long it may be tried, multiplied by the attempts of the layers around the saga, and whether the dedupe window outlasts that; NULL: without bound. Raises SG400, SG404';
