-- CPU of a consumer's session for subscriptions of 1 to 256 partitions: a poll that finds nothing, on a
-- quiet log and on one that others publish to, and a message that is received and acknowledged.
--   test/tools/with-postgres psql -f test/bench/partitions.sql

\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stacksaga;
SELECT stacksaga.create_subscription('p' || p, 'a.*', partitions => p)
  FROM unnest('{1,16,64,256}'::int[]) AS p \g /dev/null
CREATE TABLE figure (run int, partitions int, what text, us numeric);
-- This session's CPU time in microseconds.
CREATE FUNCTION cpu() RETURNS numeric LANGUAGE sql VOLATILE AS
    $$ SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::numeric / 1000 $$;

CREATE PROCEDURE idle(run int, p int) LANGUAGE plpgsql AS $$
DECLARE before numeric;
BEGIN
    before := cpu();
    FOR i IN 1 .. 300 LOOP
        PERFORM stacksaga.receive_messages('p' || p, 'c');
        COMMIT;
    END LOOP;
    INSERT INTO figure VALUES (run, p, 'an idle poll', (cpu() - before) / 300);
END
$$;
-- Each poll finds a new tick, which a message for others made due.
CREATE PROCEDURE unconcerned(run int, p int) LANGUAGE plpgsql AS $$
DECLARE before numeric;
        spent numeric := 0;
BEGIN
    FOR i IN 1 .. 300 LOOP
        PERFORM stacksaga.publish('b', '{}');
        COMMIT;
        before := cpu();
        PERFORM stacksaga.receive_messages('p' || p, 'c');
        COMMIT;
        spent := spent + cpu() - before;
    END LOOP;
    INSERT INTO figure VALUES (run, p, 'a poll after a message for others', spent / 300);
END
$$;
CREATE PROCEDURE publish(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n / 1000 LOOP
        PERFORM stacksaga.publish('a.' || i % 5, '{"n": 1}', 'key ' || j) FROM generate_series(1, 1000) AS j;
        COMMIT;
    END LOOP;
END
$$;
CREATE PROCEDURE drain(run int, p int, consumers int) LANGUAGE plpgsql AS $$
DECLARE before numeric;
        batches bigint[];
        batch bigint;
        received bigint := 0;
        n bigint;
BEGIN
    before := cpu();
    LOOP
        batches := '{}';
        -- So many consumers hold a batch each, of at most 100 messages together.
        FOR i IN 1 .. consumers LOOP
            SELECT max(batch_id), count(*) INTO batch, n
              FROM stacksaga.receive_messages('p' || p, 'c' || i, greatest(100 / consumers, 1));
            COMMIT;
            EXIT WHEN batch IS NULL;
            batches := batches || batch;
            received := received + n;
        END LOOP;
        EXIT WHEN batches = '{}';
        FOREACH batch IN ARRAY batches LOOP
            PERFORM stacksaga.ack_messages(batch);
            COMMIT;
        END LOOP;
    END LOOP;
    INSERT INTO figure VALUES (run, p, format('a message, %s consumer%s', consumers, left('s', consumers - 1)),
                               (cpu() - before) / nullif(received, 0));
END
$$;
CREATE PROCEDURE measure(run int) LANGUAGE plpgsql AS $$
DECLARE p int;
BEGIN
    CALL publish(10000);
    FOREACH p IN ARRAY '{1,16,64,256}'::int[] LOOP
        CALL drain(run, p, 1);
        CALL idle(run, p);
        CALL unconcerned(run, p);
    END LOOP;
    CALL publish(10000);
    FOREACH p IN ARRAY '{16,64,256}'::int[] LOOP
        CALL drain(run, p, 16);
    END LOOP;
    CALL drain(run, 1, 1);
END
$$;
CALL measure(1);
CALL measure(2);
CALL measure(3);
\pset footer off
SELECT what AS "CPU, microseconds", round(min(us) FILTER (WHERE partitions = 1), 1) AS "1 partition",
       round(min(us) FILTER (WHERE partitions = 16), 1) AS "16",
       round(min(us) FILTER (WHERE partitions = 64), 1) AS "64",
       round(min(us) FILTER (WHERE partitions = 256), 1) AS "256"
  FROM figure WHERE us IS NOT NULL GROUP BY 1 ORDER BY 1;
