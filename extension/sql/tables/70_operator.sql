-- What operators do, where no table of its own holds it.

CREATE TABLE stacksaga.operator_action (
    acted_at     timestamptz NOT NULL,
    role         name NOT NULL,
    on_behalf_of text,
    action       text NOT NULL,
    object       text NOT NULL,
    reason       text,
    detail       text,
    handler      text
);
-- It has no key, and its old rows are deleted: without this a publication of all tables would make that an error.
ALTER TABLE stacksaga.operator_action REPLICA IDENTITY FULL;
CREATE INDEX operator_action_acted ON stacksaga.operator_action (acted_at);
COMMENT ON TABLE stacksaga.operator_action IS
    'What operators did to definitions, messages, subscriptions and rings; actions on sagas, schedules and dead rings have tables of their own';
COMMENT ON COLUMN stacksaga.operator_action.acted_at IS 'When it was';
COMMENT ON COLUMN stacksaga.operator_action.role IS 'The role that acted';
COMMENT ON COLUMN stacksaga.operator_action.action IS 'What it did';
COMMENT ON COLUMN stacksaga.operator_action.object IS 'What it was done to, such as a ring with its name';
COMMENT ON COLUMN stacksaga.operator_action.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.operator_action.detail IS
    'What else is to be known, such as a version or a setting and its value';
COMMENT ON COLUMN stacksaga.operator_action.handler IS
    'The step or the subscription whose handler acted, if one did';
COMMENT ON COLUMN stacksaga.operator_action.on_behalf_of IS
    'Whom the role acted for, by its own account: stacksaga.on_behalf_of of its session';
COMMENT ON INDEX stacksaga.operator_action_acted IS 'The newest actions';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.operator_action', '');
