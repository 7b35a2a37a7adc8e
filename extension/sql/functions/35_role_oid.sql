-- Who a name stands for. A role that is dropped and created again has the name, and must not inherit
-- what was the other role's; an oid means nothing in another cluster. So rows that name a role keep its
-- oid too, found when the row is written. A restore writes rows: there a name stands for the role that
-- has it, as in the owners and grants that pg_dump writes. pg_upgrade keeps the oids of roles.

CREATE OR REPLACE FUNCTION stacksaga_internal.find_definer() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.definer_oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = NEW.definer);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.find_definer IS
    'Internal: finds the role that has the name of a definer now';

CREATE OR REPLACE FUNCTION stacksaga_internal.find_grantee() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.role_oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = NEW.role);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.find_grantee IS
    'Internal: finds the role that has the name of a grantee now';

CREATE OR REPLACE TRIGGER saga_definition_definer BEFORE INSERT ON stacksaga.saga_definition
    FOR EACH ROW EXECUTE FUNCTION stacksaga_internal.find_definer();
COMMENT ON TRIGGER saga_definition_definer ON stacksaga.saga_definition IS
    'Records the oid of the definer';
CREATE OR REPLACE TRIGGER subscription_definer BEFORE INSERT ON stacksaga.subscription
    FOR EACH ROW EXECUTE FUNCTION stacksaga_internal.find_definer();
COMMENT ON TRIGGER subscription_definer ON stacksaga.subscription IS
    'Records the oid of the definer';
CREATE OR REPLACE TRIGGER schedule_definer BEFORE INSERT ON stacksaga.schedule
    FOR EACH ROW EXECUTE FUNCTION stacksaga_internal.find_definer();
COMMENT ON TRIGGER schedule_definer ON stacksaga.schedule IS
    'Records the oid of the definer';
CREATE OR REPLACE TRIGGER usage_grant_role BEFORE INSERT ON stacksaga.usage_grant
    FOR EACH ROW EXECUTE FUNCTION stacksaga_internal.find_grantee();
COMMENT ON TRIGGER usage_grant_role ON stacksaga.usage_grant IS
    'Records the oid of the role';

-- NULL of a role that has the name and the oid.
CREATE OR REPLACE FUNCTION stacksaga_internal.role_objection(role name, role_oid oid) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN r.oid IS NULL THEN 'does not exist'
                WHEN r.oid IS DISTINCT FROM role_oid
                THEN 'was dropped, and another role has its name' END
      FROM (SELECT) AS one LEFT JOIN pg_roles r ON r.rolname = role_objection.role
$$;
COMMENT ON FUNCTION stacksaga_internal.role_objection IS
    'Internal: returns why a name no longer stands for the role that had an oid, NULL when it does';
