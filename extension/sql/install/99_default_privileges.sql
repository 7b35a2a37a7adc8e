-- The end of the script: what ALTER DEFAULT PRIVILEGES gave away while the script ran is revoked, from
-- PUBLIC as from roles by name, and PUBLIC gets what it has without such defaults. An update does so for
-- what it made: what roles hold of the rest stays, and stays theirs for pg_dump.

DO $$
DECLARE
    member  record;
    grantee record;
BEGIN
    FOR member IN
        WITH member AS (
            SELECT d.classid, d.objid
              FROM pg_catalog.pg_depend d
              JOIN pg_catalog.pg_extension e
                ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.refobjid = e.oid
             WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
               AND pg_catalog.age(d.xmin)
                   <= pg_catalog.age(pg_catalog.pg_current_xact_id()::xid)
        )
        SELECT 'SCHEMA' AS kind, n.nspname::text AS name, n.nspacl AS acl, n.nspowner AS owner,
               NULL AS for_public
          FROM member m
          JOIN pg_catalog.pg_namespace n
            ON m.classid = 'pg_catalog.pg_namespace'::regclass AND n.oid = m.objid
        UNION ALL
        SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text,
               c.relacl, c.relowner, NULL
          FROM member m
          JOIN pg_catalog.pg_class c
            ON m.classid = 'pg_catalog.pg_class'::regclass AND c.oid = m.objid
         WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        UNION ALL
        SELECT 'ROUTINE', p.oid::regprocedure::text, p.proacl, p.proowner,
               CASE WHEN p.provolatile = 'i' THEN 'EXECUTE' END
          FROM member m
          JOIN pg_catalog.pg_proc p
            ON m.classid = 'pg_catalog.pg_proc'::regclass AND p.oid = m.objid
        UNION ALL
        SELECT 'TYPE', t.oid::regtype::text, t.typacl, t.typowner, 'USAGE'
          FROM member m
          JOIN pg_catalog.pg_type t
            ON m.classid = 'pg_catalog.pg_type'::regclass AND t.oid = m.objid
    LOOP
        FOR grantee IN
            SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'
                            ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END
                            AS name
              FROM pg_catalog.aclexplode(member.acl) a
             WHERE a.grantee <> member.owner
        LOOP
            EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', member.kind, member.name,
                                      grantee.name);
        END LOOP;
        IF member.acl IS NOT NULL AND member.for_public IS NOT NULL THEN
            EXECUTE pg_catalog.format('GRANT %s ON %s %s TO PUBLIC', member.for_public, member.kind,
                                      member.name);
        END IF;
    END LOOP;
END
$$;
