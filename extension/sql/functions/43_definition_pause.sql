-- Pauses of definitions (extension/src/operate/definition_pause.cpp, src/definition/definition_pauses.hpp).

CREATE OR REPLACE FUNCTION stacksaga.pause_definition(
    saga   text,
    reason text,
    until  timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_pause_definition';
COMMENT ON FUNCTION stacksaga.pause_definition IS
    'From its commit on no attempt of a step of a saga begins, in any version and ring, until an instant or resume_definition(); what has begun goes on, and compensations are done. Raises SG400, SG404, SG409 (it is paused)';

CREATE OR REPLACE FUNCTION stacksaga.resume_definition(saga text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_definition';
COMMENT ON FUNCTION stacksaga.resume_definition IS
    'Ends the pause of a definition: its steps are due at the instants that they had. Raises SG400, SG404, SG409 (it is not paused)';

CREATE OR REPLACE FUNCTION stacksaga_internal.definition_pauses() RETURNS SETOF stacksaga.definition_pause
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.saga, p.paused_at, p.paused_until, p.pause_reason
      FROM stacksaga.definition_pause p
     WHERE stacksaga_internal.is_paused(p.paused_at, p.paused_until)
$$;
COMMENT ON FUNCTION stacksaga_internal.definition_pauses IS
    'Internal: returns the pauses of definitions that are in force';

CREATE OR REPLACE FUNCTION stacksaga_internal.held_back_steps(saga text, enough integer) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT count(*)
      FROM (SELECT FROM stacksaga.work w
             WHERE w.paused_saga = held_back_steps.saga COLLATE "C" LIMIT greatest(enough, 0)) AS held
$$;
COMMENT ON FUNCTION stacksaga_internal.held_back_steps IS
    'Internal: returns how many steps the pause of a definition has held back, counted up to a number';
