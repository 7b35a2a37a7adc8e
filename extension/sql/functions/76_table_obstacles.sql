-- doctor(), continued: tables that somebody has changed. C++ reads and writes them without a statement
-- (extension/pg/table/table.hpp), so it compares them with what it expects.

CREATE OR REPLACE FUNCTION stacksaga_internal.table_obstacles()
RETURNS TABLE (table_name text, index_name text, obstacle text, is_read_only boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_table_obstacles';
COMMENT ON FUNCTION stacksaga_internal.table_obstacles IS
    'Internal: returns which tables and indexes are not as the extension made them, and in what';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_tables()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN o.is_read_only THEN 'error' ELSE 'warning' END, 'tables',
           format('table stacksaga.%s is not as CREATE EXTENSION made it: %s%s; %s', o.table_name,
                  o.obstacle, ' (' || o.index_name || ')',
                  CASE WHEN o.is_read_only THEN 'what reads it fails, or is slower'
                       ELSE 'each access of it is planned as a statement, which is slower' END),
           CASE o.obstacle
           WHEN 'an index is not complete'
           THEN coalesce(format('REINDEX INDEX CONCURRENTLY stacksaga.%I;', o.index_name),
                         format('REINDEX TABLE CONCURRENTLY stacksaga.%I;', o.table_name))
           WHEN 'it has other indexes' THEN format('Drop the indexes of stacksaga.%s that you added, or give '
                                                   'its own ones their names back.', o.table_name)
           WHEN 'it has a trigger' THEN format('Drop the trigger on stacksaga.%s that you added.', o.table_name)
           WHEN 'it has rules' THEN format('Drop the rule on stacksaga.%s.', o.table_name)
           WHEN 'it has row-level security'
           THEN format('ALTER TABLE stacksaga.%I DISABLE ROW LEVEL SECURITY;', o.table_name)
           ELSE format(E'Undo the change. In a new database, \\d stacksaga.%s shows the table as it was made.',
                       o.table_name) END
      FROM stacksaga_internal.table_obstacles() AS o
     WHERE o.obstacle <> 'Citus manages it'
       AND (o.table_name, o.obstacle) <> ('queue', 'it has a CHECK') -- its own
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_tables IS
    'Internal: returns what doctor() says of tables that somebody has changed';
