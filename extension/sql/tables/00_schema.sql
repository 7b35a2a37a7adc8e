-- The schema is a member of the extension and belongs to who creates the extension. This fails where
-- there is one: its owner could put operators before PostgreSQL's own, and exchange what is in it
-- later. The control file says pg_catalog, where nothing is made, so that the script runs with
-- search_path = pg_catalog, pg_temp.

CREATE SCHEMA stacksaga;
COMMENT ON SCHEMA stacksaga IS
    'Sagas, idempotency keys, the outbox and the token ring; made by the extension stacksaga';
