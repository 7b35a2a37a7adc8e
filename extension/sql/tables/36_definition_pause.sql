-- Definitions that are paused (extension/src/definition/definition_pauses.hpp). A row whose end has passed stays until
-- nothing is held back any more.

CREATE TABLE stacksaga.definition_pause (
    saga         text COLLATE "C" PRIMARY KEY,
    paused_at    timestamptz NOT NULL,
    paused_until timestamptz,
    pause_reason text NOT NULL
);
COMMENT ON TABLE stacksaga.definition_pause IS
    'One row per saga that is paused in all its versions, or whose pause has ended and whose steps are brought back';
COMMENT ON COLUMN stacksaga.definition_pause.saga IS 'The name of the saga';
COMMENT ON COLUMN stacksaga.definition_pause.paused_at IS 'Since when';
COMMENT ON COLUMN stacksaga.definition_pause.paused_until IS
    'From when on it is not paused; null: until resume_definition()';
COMMENT ON COLUMN stacksaga.definition_pause.pause_reason IS 'The reason that was given';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.definition_pause', '');
