-- A session that looks into many queues that nothing names, as one that makes up names does, holds few locks for
-- doctor() to see.

SELECT bool_and(claimed.count = 0) AS claims_nothing
  FROM generate_series(1, 200) AS n, LATERAL (SELECT count(*) FROM stacksaga.claim_steps('no such queue ' || n, 'w')) AS claimed;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'userlock';
SELECT count(*) FROM stacksaga.claim_steps('no such queue 200', 'w');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'userlock';
