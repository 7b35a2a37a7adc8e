-- Removing finished sagas (extension/src/operate/retention.cpp) and records of actions
-- (extension/src/common/operator_action.cpp); the workers do it by themselves.

CREATE OR REPLACE FUNCTION stacksaga.expire_sagas(max_sagas integer DEFAULT 1000) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_expire_sagas';
COMMENT ON FUNCTION stacksaga.expire_sagas IS
    'Removes finished sagas of the session''s ring whose retention is over, with all that belongs to them, and returns how many; the workers do so by themselves. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.expire_actions(max_actions integer DEFAULT 1000) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_expire_actions';
COMMENT ON FUNCTION stacksaga.expire_actions IS
    'Removes records of operators'' actions that are older than stacksaga.failed_saga_retention, but not those on sagas, which go with them, and returns how many; the workers do so by themselves. Raises SG400';
