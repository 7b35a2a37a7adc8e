-- What operators did, from every table that records it. Each branch reads one table whose index gives
-- its newest rows first, so the newest of all are merged and the rest is not read: a join in a branch
-- would have all of it sorted.

CREATE OR REPLACE VIEW stacksaga.operator_actions AS
SELECT a.acted_at AS at, a.role::text AS role_name, a.on_behalf_of, a.action, a.object, a.reason,
       nullif(concat_ws(', ', a.detail, 'by the handler of ' || a.handler), '') AS detail
  FROM stacksaga.operator_action a
UNION ALL
SELECT a.acted_at, a.role::text, a.on_behalf_of, a.action, 'saga ' || a.saga_id::text, a.reason,
       nullif(concat_ws(', ',
           (SELECT concat_ws(' ', 'step', d.step, replace(a.outcome, '_', ' '))
              FROM stacksaga.saga s
              JOIN stacksaga.definition_step d ON d.definition_id = s.definition_id
             WHERE a.step_no IS NOT NULL AND s.saga_id = a.saga_id
               AND s.token OPERATOR(stacksaga.=) a.token AND d.step_no = a.step_no),
           'by the handler of ' || a.handler), '')
  FROM stacksaga.saga_action a
UNION ALL
SELECT a.acted_at, a.role::text, a.on_behalf_of, a.action, 'schedule ' || a.schedule, a.reason,
       'by the handler of ' || a.handler
  FROM stacksaga.schedule_action a
UNION ALL
SELECT a.adopted_at, a.role::text, a.on_behalf_of, 'adopt',
       (SELECT format('ring (%s, %s)', r.region, r.cluster)
          FROM stacksaga.ring r WHERE r.ring_id = a.from_ring_id),
       a.reason,
       (SELECT format('by ring (%s, %s), sagas: %s', r.region, r.cluster, a.sagas)
          FROM stacksaga.ring r WHERE r.ring_id = a.to_ring_id)
  FROM stacksaga.ring_adoption a;
COMMENT ON VIEW stacksaga.operator_actions IS
    'Shows every action of an operator: which role took it, whom it acted for, on what and why';
