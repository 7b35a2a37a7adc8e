CREATE TABLE stacksaga.usage_grant (
    role     name NOT NULL,
    kind     text NOT NULL CHECK (kind IN ('service', 'coordinator', 'operator', 'support', 'monitor')),
    role_oid oid,
    PRIMARY KEY (role, kind)
);
COMMENT ON TABLE stacksaga.usage_grant IS
    'Records what grant_usage() granted, so that an update can grant what is new';
COMMENT ON COLUMN stacksaga.usage_grant.role IS 'The name of the role';
COMMENT ON COLUMN stacksaga.usage_grant.kind IS 'The kind of user that it was granted';
COMMENT ON COLUMN stacksaga.usage_grant.role_oid IS
    'The role that had the name when the row was written: another role of the name was granted nothing';
SELECT pg_catalog.pg_extension_config_dump('stacksaga.usage_grant', '');
