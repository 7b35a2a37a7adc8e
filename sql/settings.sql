-- A session keeps what it was configured to do when the library is loaded while a query runs in parallel.
CREATE TABLE settings_city (name text) WITH (parallel_workers = 2);
INSERT INTO settings_city VALUES ('Reykjavik');
CREATE FUNCTION settings_token(name text) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS
$$BEGIN RETURN stacksaga.token(name); END$$;

\connect
SET stacksaga.on_behalf_of = 'ada';
SET max_parallel_workers = 0; -- this session does it all
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT settings_token(name) FROM settings_city;
SELECT settings_token(name) FROM settings_city;
SHOW stacksaga.on_behalf_of;

DROP TABLE settings_city;
DROP FUNCTION settings_token;
