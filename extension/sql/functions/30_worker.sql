-- Background workers (extension/src/worker/worker.cpp, launcher.cpp, worker_process.cpp).

CREATE OR REPLACE FUNCTION stacksaga.worker_ensure() RETURNS integer
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_worker_ensure';
COMMENT ON FUNCTION stacksaga.worker_ensure IS
    'Starts the workers of this database that do not run and returns how many run, also without preloading. Raises 53000 (no free background worker slot), 25006 (on a standby)';
