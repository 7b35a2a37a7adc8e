-- Removing finished sagas (extension/src/saga/retention.cpp); the workers do it by themselves.

CREATE OR REPLACE FUNCTION stacksaga.expire_sagas(max_sagas integer DEFAULT 1000) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_expire_sagas';
COMMENT ON FUNCTION stacksaga.expire_sagas IS
    'Removes finished sagas of the session''s ring whose retention is over, with all that belongs to them, and returns how many; the workers do so by themselves. Raises SG400';
