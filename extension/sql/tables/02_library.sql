-- The library that the server runs fits the version that is installed. This comes first, and first in each
-- update too: a function that only a later library has would fail with an error that says nothing of a restart.

CREATE OR REPLACE FUNCTION stacksaga_internal.library_version() RETURNS text
LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_library_version';
COMMENT ON FUNCTION stacksaga_internal.library_version IS
    'Internal: returns the version of the library that this session has loaded';

DO $$
DECLARE
    library text := stacksaga_internal.library_version();
    wanted  text := (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'stacksaga');
BEGIN
    IF string_to_array(library, '.')::integer[] < string_to_array(wanted, '.')::integer[] THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('version %s of the extension needs its library, and this server runs that of '
                             'version %s', wanted, library),
            DETAIL = 'A server that preloads the library keeps it until it restarts, and a session that '
                     'loaded it until it ends.',
            HINT = format('Restart the server with the library of version %s installed, and repeat the '
                          'statement.', wanted);
    END IF;
END
$$;
