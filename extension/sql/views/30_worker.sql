-- Background workers that run now, as they last reported.

CREATE OR REPLACE VIEW stacksaga.worker_stats AS
SELECT pg_catalog.current_database()::text AS database,
       w.pid, w.started_at, w.turns, w.items, w.failures, w.last_turn_ms, w.mode,
       w.deferred
  FROM stacksaga.worker w
 WHERE EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
                WHERE a.pid = w.pid AND a.datname = pg_catalog.current_database());
COMMENT ON VIEW stacksaga.worker_stats IS
    'Shows the background workers of this database and what they did since they started, as of some seconds ago';
