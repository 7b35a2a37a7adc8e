-- doctor(), continued: transactions that hold sagas, and rows that no retention can remove.

-- Workers pass over a saga whose row another transaction holds: its steps, timers and leases wait for that one. Of each
-- slot the work that is due longest is looked at.
CREATE OR REPLACE FUNCTION stacksaga_internal.holder_of_saga(saga_id uuid) RETURNS xid
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_holder_of_saga';
COMMENT ON FUNCTION stacksaga_internal.holder_of_saga IS
    'Internal: returns the transaction that holds the row of a saga, another one than this; NULL where none does';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_locked_sagas()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), since AS MATERIALIZED (
        SELECT stacksaga.clock_now() - interval '1 second' AS due_at
    ), due AS MATERIALIZED (
        SELECT w.saga_id
          FROM since, stacksaga.slot o, LATERAL (
               SELECT w.saga_id FROM stacksaga.work w
                WHERE w.ring_id = o.ring_id AND w.slot = o.slot AND w.rank = 3 AND w.due_at <= since.due_at
                  AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)
                ORDER BY w.due_at LIMIT 8) AS w
        UNION
        SELECT w.saga_id
          FROM since, stacksaga.ring r, generate_series(0, 5) AS n(rank), LATERAL (
               SELECT w.saga_id FROM stacksaga.work w
                WHERE w.ring_id = r.ring_id AND w.rank = n.rank AND w.rank <> 3 AND w.due_at <= since.due_at
                  AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)
                LIMIT 1000) AS w
    ), held AS MATERIALIZED (
        SELECT h.holder, CASE WHEN count(*) < 1000 THEN count(*)::text ELSE '1000 or more' END AS sagas
          FROM due, LATERAL (SELECT stacksaga_internal.holder_of_saga(due.saga_id) AS holder OFFSET 0) AS h
         WHERE h.holder IS NOT NULL GROUP BY h.holder
    )
    SELECT 'warning', 'locked_sagas', format(
               'process %s (%s, role "%s") holds %s sagas whose work is due, in a transaction since %s: '
               'workers pass over them', a.pid, coalesce(nullif(a.application_name, ''), a.backend_type),
               a.usename, h.sagas, date_trunc('second', a.xact_start)),
           format('SELECT pg_terminate_backend(%s); -- unless it ends by itself: '
                  'SELECT state, query FROM pg_stat_activity WHERE pid = %1$s', a.pid)
      FROM held h JOIN pg_stat_activity a ON a.backend_xid = h.holder AND a.datname = current_database()
     WHERE a.backend_type <> 'stacksaga worker' AND a.xact_start < clock_timestamp() - interval '1 second'
    UNION ALL
    SELECT 'warning', 'locked_sagas', format(
               'prepared transaction %L holds %s sagas whose work is due, since %s: workers pass over them',
               p.gid, h.sagas, date_trunc('second', p.prepared)),
           format('COMMIT PREPARED %L; -- or ROLLBACK PREPARED', p.gid)
      FROM held h JOIN pg_prepared_xacts p ON p.transaction = h.holder AND p.database = current_database()
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_locked_sagas IS
    'Internal: returns what doctor() says of transactions that hold sagas whose work is due';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_retention()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'warning', 'retention', format(
               '%s of stacksaga.%s cannot be removed after the retention, the first since %s: %s (row %s)',
               CASE WHEN k.n = 1 THEN '1 row' ELSE k.n || ' rows' END, k.relation,
               date_trunc('second', k.since), k.error, k.row_key),
           format('SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = ''f'' AND '
                  'confrelid::regclass::text LIKE ''stacksaga.%%''; -- remove the rows that refer to it, or '
                  'the constraint; it is tried again each hour')
      FROM (SELECT relation, count(*) AS n, min(since) AS since,
                   (array_agg(error ORDER BY since, row_key))[1] AS error,
                   (array_agg(row_key ORDER BY since, row_key))[1] AS row_key
              FROM stacksaga.kept_row GROUP BY relation) AS k
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_retention IS
    'Internal: returns what doctor() says of rows that could not be removed';
