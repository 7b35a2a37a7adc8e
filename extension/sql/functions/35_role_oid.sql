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

-- A definer is believed, so only the extension itself writes one. Other roles can have the right to write every table:
-- members of pg_write_all_data, and then only this says no.
CREATE OR REPLACE FUNCTION stacksaga_internal.guard_definers() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'USAGE') THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = format('role "%s" may not write table %s', current_user, TG_RELID::regclass),
        DETAIL = 'It says which functions run, and as which role.',
        HINT = 'Call define_saga(), create_subscription(), create_schedule() or grant_usage().';
END
$$;
COMMENT ON FUNCTION stacksaga_internal.guard_definers IS
    'Internal: raises 42501 where another role than the owner of the extension writes what says who runs what';
CREATE OR REPLACE TRIGGER saga_definition_guard BEFORE INSERT OR UPDATE OR DELETE ON stacksaga.saga_definition
    FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
COMMENT ON TRIGGER saga_definition_guard ON stacksaga.saga_definition IS
    'Lets nobody but the owner of the extension say who runs what';
CREATE OR REPLACE TRIGGER definition_step_guard BEFORE INSERT OR UPDATE OR DELETE ON stacksaga.definition_step
    FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
COMMENT ON TRIGGER definition_step_guard ON stacksaga.definition_step IS
    'Lets nobody but the owner of the extension say who runs what';
CREATE OR REPLACE TRIGGER subscription_guard
    BEFORE INSERT OR UPDATE OF handler, handler_oid, takes_batch, fallback, fallback_oid, definer, definer_oid, search_path ON stacksaga.subscription
    FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
COMMENT ON TRIGGER subscription_guard ON stacksaga.subscription IS
    'Lets nobody but the owner of the extension say who runs what';
CREATE OR REPLACE TRIGGER schedule_guard
    BEFORE INSERT OR UPDATE OF saga, input, definer, definer_oid ON stacksaga.schedule
    FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
COMMENT ON TRIGGER schedule_guard ON stacksaga.schedule IS
    'Lets nobody but the owner of the extension say who runs what';
CREATE OR REPLACE TRIGGER usage_grant_guard BEFORE INSERT OR UPDATE OR DELETE ON stacksaga.usage_grant
    FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
COMMENT ON TRIGGER usage_grant_guard ON stacksaga.usage_grant IS
    'Lets nobody but the owner of the extension say who runs what';

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
