CREATE OR REPLACE FUNCTION stacksaga.forget_work(reason text, database text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_forget_work';
COMMENT ON FUNCTION stacksaga.forget_work IS
    'In a copy of a live database: ends every lease as lost, suspends every saga in flight, pauses every queue, subscription and schedule, and returns how many sagas it suspended. `database` is the name of the copy. Raises SG400';
