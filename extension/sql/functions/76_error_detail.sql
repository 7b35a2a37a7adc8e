-- PostgreSQL's DETAIL and CONTEXT of handlers' errors, which may hold values of rows: for operators. The
-- errors themselves are in the views, for everybody who reads those.

CREATE OR REPLACE FUNCTION stacksaga.saga_error_detail(saga_id uuid)
RETURNS TABLE (step text, direction text, attempt integer, detail text, context text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ds.step, f.direction::text, f.attempt, f.error_detail, f.error_context
      FROM stacksaga.saga s
      JOIN stacksaga.failure f ON f.saga_id = s.saga_id AND f.token OPERATOR(stacksaga.=) s.token
      JOIN stacksaga.definition_step ds ON ds.definition_id = s.definition_id AND ds.step_no = f.step_no
     WHERE s.saga_id = saga_error_detail.saga_id
       AND s.token OPERATOR(stacksaga.=) stacksaga.token_uuid(saga_error_detail.saga_id)::stacksaga.ring_token
       AND (f.error_detail IS NOT NULL OR f.error_context IS NOT NULL)
     ORDER BY f.started_at, f.finished_at, f.attempt
$$;
COMMENT ON FUNCTION stacksaga.saga_error_detail IS
    'Returns DETAIL and CONTEXT of the errors that handlers of a saga raised, one row an attempt, which may hold values of rows';

CREATE OR REPLACE FUNCTION stacksaga.message_error_detail(subscription text, message_id uuid)
RETURNS TABLE (attempt integer, detail text, context text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT e.attempt, e.detail, e.context
      FROM (SELECT d.error_details FROM stacksaga.subscription s
              JOIN stacksaga.dead_message d ON d.subscription_id = s.subscription_id
             WHERE s.subscription = message_error_detail.subscription COLLATE "C"
               AND d.message_id = message_error_detail.message_id
            UNION ALL
            SELECT r.error_details FROM stacksaga.subscription s
              JOIN stacksaga.message_retry r ON r.subscription_id = s.subscription_id
             WHERE s.subscription = message_error_detail.subscription COLLATE "C"
               AND r.message_id = message_error_detail.message_id) AS m,
           LATERAL ROWS FROM (jsonb_to_recordset(m.error_details) AS (attempt integer, detail text, context text))
               WITH ORDINALITY AS e(attempt, detail, context, n)
     ORDER BY e.n
$$;
COMMENT ON FUNCTION stacksaga.message_error_detail IS
    'Returns DETAIL and CONTEXT of the last ten errors that a handler raised for a message that has not been handled yet, which may hold values of rows';
