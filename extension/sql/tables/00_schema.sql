-- Both schemas are members of the extension and belong to who creates the extension. This fails where
-- there is one: its owner could put operators before PostgreSQL's own, and exchange what is in it
-- later. The control file says pg_catalog, where nothing is made, so that the script runs with
-- search_path = pg_catalog, pg_temp.

CREATE SCHEMA stacksaga;
COMMENT ON SCHEMA stacksaga IS
    'Sagas, idempotency keys, the outbox and the token ring; made by the extension stacksaga';

-- What nobody calls by hand, so that a list of the first schema's functions shows what people may use.
CREATE SCHEMA stacksaga_internal;
COMMENT ON SCHEMA stacksaga_internal IS
    'What the functions and views of the schema stacksaga are made of; nothing here stays as it is';
