-- Last: nothing is granted to PUBLIC. IMMUTABLE functions that read no table stay free for all.

DO $$
DECLARE
    function_oid oid;
BEGIN
    FOR function_oid IN
        SELECT p.oid FROM pg_catalog.pg_proc p
         WHERE p.pronamespace = 'stacksaga'::regnamespace
           AND p.provolatile <> 'i' AND p.prokind IN ('f', 'a', 'p')
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC',
                                  function_oid::regprocedure);
    END LOOP;
END
$$;
