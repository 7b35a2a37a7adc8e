-- Sagas that need an operator, and what the operator may call.

-- What parked a saga is in its row and in the last failure of the step that parked it. Names in the
-- comment of a hint hold no line break: what follows it would not be a comment.
CREATE OR REPLACE VIEW stacksaga.parked_sagas AS
SELECT p.saga_id, p.saga, p.key, p.step, p.direction, p.since,
       CASE WHEN p.is_parked_by_deadline THEN p.saga_error ELSE p.error END AS error,
       concat(CASE
       WHEN p.sqlstate = 'SG424' AND p.error LIKE 'function % cannot be run: %' THEN
           p.retry || format(' -- once there is a function %s again that role %s may execute',
                             p.function, p.definer)
       WHEN p.sqlstate = '57P02' AND p.kind = 'sql' THEN
           p.retry || format(' -- once function %s no longer ends its process', p.function)
       WHEN p.direction = 'compensate' AND p.outcome_known IS NULL THEN
           p.resolve || ' -- once you have undone it: a person did this step, so no service is asked'
       WHEN p.direction = 'compensate' AND p.in_doubt_since + p.dedupe_retention < stacksaga.clock_now()
            AND (p.kind <> 'child' OR p.by_fallback) THEN
           p.resolve || ' -- once it is undone; or with not_done, and retry_saga() tries it again: its service may have '
           'forgotten the key'
       WHEN p.direction = 'compensate' THEN
           p.retry || ' -- tries the compensation again; or resolve_step(), if you undid it by hand'
       WHEN p.in_doubt_since IS NOT NULL AND p.kind = 'child' AND p.by_fallback IS NOT TRUE THEN
           p.retry || ' -- waits again for the saga that the step started: that one says what became of it'
       WHEN p.in_doubt_since IS NOT NULL AND (p.effect = 'irreversible' OR p.saga_direction = 'compensate') THEN
           p.resolve || ' -- if it happened, or never once it cannot happen any more: the database cannot know'
       WHEN p.in_doubt_since + p.dedupe_retention < stacksaga.clock_now() AND p.effect <> 'idempotent'
            AND p.direction = 'act' AND p.kind <> 'child' AND p.verify IS NULL THEN
           p.resolve || ' -- if it happened, or never once it cannot happen any more: its service may have forgotten '
           'the key, so the step is not tried again'
       WHEN p.is_past_pivot THEN
           p.retry || ' -- tries the step again, as the saga cannot compensate past an irreversible one; '
           'or resolve_step(), if you did it by hand'
       WHEN p.is_parked_by_deadline THEN
           p.retry || ' -- goes on, and the whole deadline begins again; or compensate_saga(), which undoes what was done'
       ELSE
           p.retry || ' -- tries the step again, once what failed is repaired; or compensate_saga(), which undoes what '
           'was done; or resolve_step(), if you did it by hand'
       END,
       CASE WHEN p.in_doubt_since + p.dedupe_retention >= stacksaga.clock_now() AND p.effect <> 'idempotent'
            THEN format('; a service remembers the key of this step until %s at least',
                        date_trunc('second', p.in_doubt_since + p.dedupe_retention)) END,
       CASE WHEN p.parent_id IS NOT NULL
            THEN format('; saga %s waits for this one', p.parent_id) END) AS hint,
       p.parent_id
  FROM (SELECT k.saga_id, d.saga, s.key, ds.step, s.parked_direction::text AS direction, k.since,
               coalesce(f.error, s.error) AS error, f.sqlstate, f.outcome_known, f.by_fallback, ds.kind, ds.effect, ds.verify, s.parent_id,
               (SELECT min(u.started_at) FROM stacksaga.failure u
                 WHERE u.saga_id = s.saga_id AND u.token OPERATOR(stacksaga.=) s.token
                   AND u.step_no = s.parked_step AND u.direction = s.parked_direction AND NOT u.outcome_known) AS in_doubt_since,
               coalesce(current_setting('stacksaga.dedupe_retention', true), '7 days')::interval AS dedupe_retention,
               regexp_replace(d.definer, '[[:cntrl:]]', ' ', 'g') AS definer,
               s.direction::text AS saga_direction, s.error AS saga_error,
               coalesce(s.compensation_requested = 'deadline', false) AND d.on_failure = 'park'
                   AND (f.error IS NULL OR EXISTS ( -- the step has not failed for good: it is the first that is open
                        SELECT FROM stacksaga.work o
                         WHERE o.saga_id = s.saga_id AND o.token OPERATOR(stacksaga.=) s.token
                           AND o.purpose = 'step' AND o.step_no = s.parked_step AND o.direction = 'act'))
                   AS is_parked_by_deadline,
               EXISTS (SELECT FROM stacksaga.effect e
                         JOIN stacksaga.definition_step i
                           ON i.definition_id = s.definition_id AND i.step_no = e.step_no AND i.effect = 'irreversible'
                        WHERE e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) s.token
                          AND e.direction = 'act') AS is_past_pivot,
               regexp_replace(CASE s.parked_direction WHEN 'act' THEN ds.action
                                                      ELSE ds.compensation END,
                              '[[:cntrl:]]', ' ', 'g') AS function,
               format('SELECT stacksaga.retry_saga(%L, ''why'');', k.saga_id) AS retry,
               format('SELECT stacksaga.resolve_step(%L, %L, ''done'', reason => ''why'', direction => %L);',
                      k.saga_id, ds.step, s.parked_direction) AS resolve
          FROM stacksaga.parked_saga k
         CROSS JOIN LATERAL ( -- the limit keeps the planner from reading all sagas
               SELECT s.* FROM stacksaga.saga s
                WHERE s.saga_id = k.saga_id AND s.token OPERATOR(stacksaga.=) k.token
                  AND s.status = 'parked' LIMIT 1) AS s
          JOIN stacksaga.saga_definition d ON d.definition_id = s.definition_id
          LEFT JOIN stacksaga.definition_step ds
            ON ds.definition_id = s.definition_id AND ds.step_no = s.parked_step
          LEFT JOIN LATERAL (
               SELECT f.error, f.sqlstate, f.outcome_known, f.by_fallback
                 FROM stacksaga.failure f
                WHERE f.saga_id = s.saga_id AND f.token OPERATOR(stacksaga.=) s.token
                  AND f.step_no = s.parked_step AND f.direction = s.parked_direction
                ORDER BY f.attempt DESC LIMIT 1) AS f ON true) AS p;
COMMENT ON VIEW stacksaga.parked_sagas IS
    'Shows the sagas that need an operator: the step that parked each, since when and why, and the SQL that continues it';
