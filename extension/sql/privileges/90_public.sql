-- Last: nothing is granted to PUBLIC. IMMUTABLE functions that read no table stay free for all.
--
-- Only of functions that this script made: a REVOKE in an update would make what roles hold of an older function
-- part of the extension, and pg_dump would leave it out.

DO $$
DECLARE
    function_oid oid;
BEGIN
    FOR function_oid IN
        SELECT p.oid FROM pg_catalog.pg_proc p
          JOIN pg_catalog.pg_depend d
            ON d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
           AND pg_catalog.age(d.xmin) <= pg_catalog.age(pg_catalog.pg_current_xact_id()::xid)
         WHERE p.pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
           AND p.provolatile <> 'i' AND p.prokind IN ('f', 'a', 'p')
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC',
                                  function_oid::regprocedure);
    END LOOP;
END
$$;
