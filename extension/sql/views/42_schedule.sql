-- Schedules as people read them. Columns may be added at the end only.

CREATE OR REPLACE VIEW stacksaga.schedules AS
SELECT s.schedule,
       s.saga,
       s.cron,
       s.timezone,
       s.paused,
       CASE WHEN NOT s.paused AND isfinite(s.next_run) THEN s.next_run END AS next_run,
       s.last_run,
       s.last_saga_id,
       s.catch_up,
       s.overlap,
       s.input,
       s.definer::text AS role,
       s.failures,
       s.failed_since,
       s.last_error,
       CASE WHEN s.failures > 0 AND NOT s.paused THEN s.due_at END AS next_attempt,
       p.acted_at AS paused_since,
       p.reason AS pause_reason,
       r.region,
       r.cluster,
       s.skipped,
       s.skipped_since
  FROM stacksaga.schedule s
  JOIN stacksaga.ring r ON r.ring_id = s.ring_id
  LEFT JOIN LATERAL (
       SELECT a.acted_at, a.reason
         FROM stacksaga.schedule_action a
        WHERE a.schedule = s.schedule AND a.token OPERATOR(stacksaga.=) s.token
        ORDER BY a.action_no DESC LIMIT 1) AS p ON s.paused;
COMMENT ON VIEW stacksaga.schedules IS
    'Schedules: when each runs next, what it started last, and why it fails or is paused';
