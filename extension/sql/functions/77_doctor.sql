-- What is wrong here, and the SQL that fixes it. A check is a SELECT that returns a row for each
-- finding; ages are by stacksaga's clock, so that tests can move it.

CREATE OR REPLACE FUNCTION stacksaga_internal.handler_objection(
    signature text, returns regtype, definer name
) RETURNS text
LANGUAGE c STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_handler_objection';
COMMENT ON FUNCTION stacksaga_internal.handler_objection IS
    'Internal: returns why a function cannot be a handler that returns jsonb or text for a role, NULL when it can';

-- A name in double quotes may hold commas, blanks and, doubled, quotes.
CREATE OR REPLACE FUNCTION stacksaga_internal.listed_names(list text)
RETURNS TABLE (name text, is_quoted boolean)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 5 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(replace(m[1], '""', '"'), rtrim(m[2])), m[1] IS NOT NULL
      FROM regexp_matches(list, E'\\s*(?:"((?:[^"]|"")*)"|([^",\\s][^,]*))\\s*(?:,|$)', 'g') AS m
$$;
COMMENT ON FUNCTION stacksaga_internal.listed_names IS
    'Internal: returns the names of a setting that is a list, without their quotes';

CREATE OR REPLACE FUNCTION stacksaga_internal.listed_databases() RETURNS SETOF text
LANGUAGE sql STABLE PARALLEL SAFE ROWS 5 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN n.is_quoted THEN n.name ELSE lower(n.name COLLATE "C") END
      FROM stacksaga_internal.listed_names(stacksaga_internal.setting('databases')) AS n
$$;
COMMENT ON FUNCTION stacksaga_internal.listed_databases IS
    'Internal: returns the databases that stacksaga.databases names';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_settings()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH preloaded AS (
        SELECT n.name AS library
          FROM stacksaga_internal.listed_names(current_setting('shared_preload_libraries')) AS n
    ), wrong (severity, name, value, better, what) AS (VALUES
        ('error', 'fsync', 'off', 'on', 'a crash of the machine can destroy committed sagas'),
        ('error', 'full_page_writes', 'off', 'on', 'a crash of the machine can destroy committed sagas'),
        ('error', 'track_counts', 'off', 'on', 'autovacuum does not learn what it has to clean'),
        ('error', 'autovacuum', 'off', 'on', 'the tables of live work are never cleaned and become slow'),
        ('warning', 'synchronous_commit', 'off', 'on',
         'a crash can lose the answer of a step whose effect outside has happened'),
        ('warning', 'wal_level', 'minimal', 'replica',
         'there can be no standby and no archive: sagas are lost with the machine')
    )
    SELECT 'warning', 'preload',
           'stacksaga is not preloaded: its workers do not come back when the server starts',
           format('ALTER SYSTEM SET shared_preload_libraries = %s; -- and restart the server',
                  (SELECT string_agg(quote_literal(l), ', ')
                     FROM (SELECT library FROM preloaded UNION ALL SELECT 'stacksaga') AS s(l)))
     WHERE NOT EXISTS (SELECT FROM preloaded WHERE library ~ '(^|/)stacksaga$')
    UNION ALL
    SELECT w.severity, w.name, format('%s is %s: %s', w.name, w.value, w.what),
           format('ALTER SYSTEM SET %I = %L; -- and %s the server', w.name, w.better,
                  CASE s.context WHEN 'postmaster' THEN 'restart' ELSE 'reload' END)
      FROM wrong w JOIN pg_settings s ON s.name = w.name AND s.setting = w.value
    UNION ALL
    SELECT 'error', 'clock_offset',
           format('stacksaga.clock_offset is %s: leases, retries and deadlines go by a wrong clock',
                  s.setting),
           CASE s.source
           WHEN 'session' THEN 'RESET stacksaga.clock_offset;'
           WHEN 'configuration file'
           THEN 'ALTER SYSTEM RESET stacksaga.clock_offset; -- and reload the server'
           ELSE format('ALTER DATABASE %I RESET stacksaga.clock_offset; -- or the role', current_database())
           END
      FROM pg_settings s
     WHERE s.name = 'stacksaga.clock_offset' AND s.setting::interval <> '0'
    UNION ALL
    SELECT 'warning', 'databases', format(
               'stacksaga.databases names database "%s", which does not exist', l),
           format('CREATE DATABASE %I; -- or take it out of stacksaga.databases', l)
      FROM stacksaga_internal.listed_databases() AS l
     WHERE NOT EXISTS (SELECT FROM pg_database d WHERE d.datname = l)
    UNION ALL
    SELECT 'warning', 'databases', format(
               'the server has %s background worker slots, and stacksaga alone wants %s',
               current_setting('max_worker_processes'), n),
           format('ALTER SYSTEM SET max_worker_processes = %s; -- and restart the server', n + 8)
      FROM (SELECT 1 + count(*) * (1 + stacksaga_internal.setting('workers')::integer)
              FROM stacksaga_internal.listed_databases()) AS wanted(n)
     WHERE n > current_setting('max_worker_processes')::integer
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_settings IS
    'Internal: returns what doctor() says of settings';

CREATE OR REPLACE FUNCTION stacksaga_internal.is_ring_served(region text, cluster text) RETURNS boolean
LANGUAGE c STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_is_ring_served';
COMMENT ON FUNCTION stacksaga_internal.is_ring_served IS
    'Internal: returns whether stacksaga.worker_rings lists a ring, or is empty';

CREATE OR REPLACE FUNCTION stacksaga_internal.running_handlers()
RETURNS TABLE (
    worker integer, pid integer, saga_id uuid, step_no smallint, subscription_id integer,
    timeout_at timestamptz, since timestamptz
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_running_handlers';
COMMENT ON FUNCTION stacksaga_internal.running_handlers IS
    'Internal: returns the handlers that workers of this database are running, or ran when they ended';

CREATE OR REPLACE FUNCTION stacksaga_internal.handlers_at_work()
RETURNS TABLE (
    worker integer, pid integer, handler text, saga_id uuid, since timestamptz, timeout_at timestamptz
)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT h.worker, h.pid,
           CASE WHEN h.saga_id IS NULL THEN format('a handler of subscription "%s"', u.subscription)
                ELSE format('step "%s" of saga %s', d.step, h.saga_id) END,
           h.saga_id, h.since, h.timeout_at
      FROM stacksaga_internal.running_handlers() AS h
      JOIN pg_stat_activity AS a
        ON a.pid = h.pid AND a.backend_type = 'stacksaga worker' AND a.datname = current_database()
      LEFT JOIN stacksaga.saga AS s ON s.saga_id = h.saga_id
      LEFT JOIN stacksaga.definition_step AS d
        ON d.definition_id = s.definition_id AND d.step_no = h.step_no
      LEFT JOIN stacksaga.subscription AS u ON u.subscription_id = h.subscription_id
$$;
COMMENT ON FUNCTION stacksaga_internal.handlers_at_work IS
    'Internal: returns which handler each worker of this database is in, since when, and until when it may run';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_workers()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), number AS (
        SELECT stacksaga_internal.setting('workers')::integer AS wanted,
               (SELECT count(*) FROM pg_stat_activity a
                 WHERE a.backend_type = 'stacksaga worker' AND a.datname = current_database())
                   AS running
    )
    SELECT 'warning', 'workers', 'stacksaga.workers is 0: only run_pending() does due work',
           'ALTER SYSTEM SET stacksaga.workers = 1; -- and reload the server'
      FROM number WHERE wanted = 0
    UNION ALL
    SELECT CASE WHEN running = 0 THEN 'error' ELSE 'warning' END, 'workers',
           format('%s of %s workers run for this database', running, wanted),
           'SELECT stacksaga.worker_ensure();'
      FROM number WHERE running < wanted AND NOT pg_is_in_recovery()
    UNION ALL
    SELECT 'error', 'running_handlers', format(
               'worker-%s (process %s) has been in %s for %s longer than its timeout', h.worker, h.pid,
               h.handler, date_trunc('second', clock_timestamp() - h.timeout_at)),
           format('SELECT pg_terminate_backend(%s); -- if it goes on; and fix the function', h.pid)
      FROM stacksaga_internal.handlers_at_work() AS h
     WHERE h.timeout_at < clock_timestamp()
    UNION ALL
    SELECT CASE WHEN count(*) OVER () >= number.running THEN 'warning' ELSE 'info' END,
           'running_handlers', format(
               'worker-%s (process %s) has been in %s since %s', h.worker, h.pid, h.handler,
               date_trunc('second', h.since)),
           'SQL steps and message handlers of its slots wait for it. Raise stacksaga.workers, or make the step '
           'a queue step.'
      FROM stacksaga_internal.handlers_at_work() AS h, number
     WHERE h.since < clock_timestamp() - interval '2 seconds'
       AND (h.timeout_at IS NULL OR h.timeout_at >= clock_timestamp())
    UNION ALL
    SELECT 'warning', 'rings', format(
               'stacksaga.region and stacksaga.cluster name the ring (%s, %s), which does not exist: no work can be '
               'started there', s.region, s.cluster),
           format('SELECT stacksaga.create_ring(%L, %L); -- or correct stacksaga.region and stacksaga.cluster',
                  s.region, s.cluster)
      FROM (SELECT stacksaga_internal.setting('region'), stacksaga_internal.setting('cluster')) AS s(region, cluster)
     WHERE NOT EXISTS (SELECT FROM stacksaga.ring r WHERE r.region = s.region AND r.cluster = s.cluster)
    UNION ALL
    SELECT 'warning', 'rings', format(
               'no background worker serves ring (%s, %s), and work of it is due since %s', r.region, r.cluster, d.due_at),
           format('ALTER SYSTEM SET stacksaga.worker_rings = %L; -- and reload the server',
                  concat(stacksaga_internal.setting('worker_rings'), ', ',
                         quote_ident(r.region || '/' || r.cluster)))
      FROM stacksaga.ring r,
           LATERAL (SELECT stacksaga_internal.oldest_due_of_workers(r.ring_id)) AS d(due_at)
     WHERE NOT stacksaga_internal.is_ring_served(r.region, r.cluster)
       AND d.due_at < stacksaga.clock_now() - interval '5 seconds'
    UNION ALL
    SELECT 'info', 'standby', 'this server is a standby: nothing runs here before it is promoted',
           'Look at the primary.'
     WHERE pg_is_in_recovery()
    UNION ALL
    SELECT 'warning', 'databases', format(
               'stacksaga.databases does not name database "%s": its workers do not come back when '
               'the server starts', current_database()),
           format('ALTER SYSTEM SET stacksaga.databases = %L; -- and reload the server',
                  (SELECT string_agg(quote_ident(l), ', ')
                     FROM (SELECT stacksaga_internal.listed_databases()
                           UNION ALL SELECT current_database()) AS s(l)))
     WHERE EXISTS (SELECT FROM stacksaga_internal.listed_names(current_setting('shared_preload_libraries')) AS n
                    WHERE n.name ~ '(^|/)stacksaga$')
       AND current_database() NOT IN (SELECT stacksaga_internal.listed_databases())
    UNION ALL
    SELECT 'error', 'version', format(
               'the extension is version %s, and the library of the server is version %s',
               e.extversion, stacksaga_internal.library_version()),
           CASE WHEN string_to_array(e.extversion, '.')::integer[]
                     < string_to_array(stacksaga_internal.library_version(), '.')::integer[]
                THEN 'ALTER EXTENSION stacksaga UPDATE;'
                ELSE 'Restart the server, so that it loads the library of this version.' END
      FROM pg_extension e
     WHERE e.extname = 'stacksaga' AND e.extversion <> stacksaga_internal.library_version()
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_workers IS
    'Internal: returns what doctor() says of workers and versions';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_definitions()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), definition AS (
        SELECT d.*, stacksaga_internal.role_objection(d.definer, d.definer_oid) AS objection
          FROM stacksaga.saga_definition d WHERE d.is_current
    ), handler AS (
        SELECT d.saga, d.version, d.definer, s.step, h.what, h.signature, h.returns
          FROM definition d
          JOIN stacksaga.definition_step s ON s.definition_id = d.definition_id
         CROSS JOIN LATERAL (VALUES
               ('step', s.action, 'jsonb'::regtype), ('compensation of step', s.compensation, 'jsonb'),
               ('fallback of step', CASE s.kind WHEN 'sql' THEN s.fallback END, 'jsonb'),
               ('verify of step', s.verify, 'text')) AS h(what, signature, returns)
         WHERE d.objection IS NULL AND h.signature IS NOT NULL
    )
    SELECT 'error', 'handlers', format(
               'the %s "%s" of saga "%s" (version %s) cannot run %s: %s', h.what, h.step, h.saga,
               h.version, h.signature, o),
           CASE WHEN o LIKE '%USAGE%'
                THEN format('GRANT USAGE ON SCHEMA ... TO %I; -- the schema of %s', h.definer, h.signature)
                ELSE format('CREATE FUNCTION %1$s RETURNS %2$s ...; or GRANT EXECUTE ON FUNCTION %1$s '
                            'TO %3$I; or define the saga again', h.signature, h.returns, h.definer)
                END
      FROM handler h, stacksaga_internal.handler_objection(h.signature, h.returns, h.definer) AS o
     WHERE o IS NOT NULL
    UNION ALL
    SELECT 'error', 'definers', format('saga "%s" (version %s) was defined by role "%s", which %s',
                                       d.saga, d.version, d.definer, d.objection),
           format('SET ROLE ...; SELECT stacksaga.define_saga(%L, ...); -- as a superuser, with the '
                  'same content, as the role that its steps are to run as', d.saga)
      FROM definition d WHERE d.objection IS NOT NULL
    UNION ALL
    SELECT 'warning', 'definers', format('the steps of saga "%s" (version %s) run as superuser "%s"',
                                         d.saga, d.version, d.definer),
           format('Define saga %L as a role that has what its steps need, and no more.', d.saga)
      FROM definition d JOIN pg_roles r ON r.rolname = d.definer AND r.rolsuper
     WHERE d.objection IS NULL AND EXISTS (SELECT FROM stacksaga.definition_step s
                    WHERE s.definition_id = d.definition_id AND s.action IS NOT NULL)
    UNION ALL
    SELECT 'warning', 'retries', format('step "%s" of saga "%s": %s', e.step, d.saga, e.warning),
           format('SELECT * FROM stacksaga.explain_retries(%L); -- fewer attempts, or a longer '
                  'stacksaga.dedupe_retention', d.saga)
      FROM definition d, stacksaga.explain_retries(d.saga) AS e
     WHERE e.warning LIKE '%effects are remembered for%'
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_definitions IS
    'Internal: returns what doctor() says of the current definitions';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_grants()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH lacking AS (
        SELECT g.role, g.kind, p.object
          FROM stacksaga.usage_grant g
          JOIN pg_roles r ON r.rolname = g.role AND r.oid = g.role_oid
          JOIN stacksaga.privilege p ON p.kind = g.kind
          LEFT JOIN pg_proc f
            ON f.proname = p.object AND f.pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
          LEFT JOIN pg_class c
            ON c.relname = p.object AND c.relnamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
         WHERE NOT coalesce(has_function_privilege(g.role, f.oid, 'EXECUTE'),
                            has_table_privilege(g.role, c.oid, 'SELECT'))
            OR NOT has_schema_privilege(g.role, 'stacksaga', 'USAGE')
            OR NOT has_schema_privilege(g.role, 'stacksaga_internal', 'USAGE')
    )
    SELECT 'error', 'grants', format('role "%s" of kind %s may not use %s%s', role, kind,
               string_agg(object, ', ' ORDER BY object) FILTER (WHERE place <= 5),
               CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) ELSE '' END),
           format('SELECT stacksaga.grant_usage(%L, %L);', role, kind)
      FROM (SELECT *, row_number() OVER (PARTITION BY role, kind ORDER BY object) AS place
              FROM lacking) AS l
     GROUP BY role, kind
    UNION ALL
    SELECT 'warning', 'grants', format('role "%s", which was granted kind %s, %s', g.role, g.kind,
                                       stacksaga_internal.role_objection(g.role, g.role_oid)),
           format('DELETE FROM stacksaga.usage_grant WHERE role = %L; -- then grant_usage() to the '
                  'role that is to have it', g.role)
      FROM stacksaga.usage_grant g
     WHERE stacksaga_internal.role_objection(g.role, g.role_oid) IS NOT NULL
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_grants IS
    'Internal: returns what doctor() says of grants';
