-- A key that is begun and finished in one transaction is one row, written once; whatever comes between the
-- two finds the key as if its row had been there since the begin.

\set SHOW_CONTEXT errors
SET client_min_messages = warning;
TRUNCATE stacksaga.idempotency_key;
CREATE SCHEMA begun;
CREATE TABLE begun.charge (amount int);
-- What this transaction has done to the table so far, if it is its session's first.
CREATE VIEW begun.writes AS
    SELECT pg_stat_get_xact_tuples_inserted(oid) AS ins, pg_stat_get_xact_tuples_updated(oid) AS upd,
           pg_stat_get_xact_tuples_deleted(oid) AS del
      FROM pg_class WHERE oid = 'stacksaga.idempotency_key'::regclass;
CREATE VIEW begun.state AS
    SELECT key, attempt, completed_at IS NOT NULL AS completed, recovery_point, response
      FROM stacksaga.idempotency_key ORDER BY key COLLATE "C";
-- Begins and keeps the lease in a setting; the outcome, or the error in a subtransaction that is gone.
-- (Unquoted, psql would look for the END of a body in SQL.)
CREATE FUNCTION begun."begin"(key text, lease interval DEFAULT '60 seconds') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    b record;
BEGIN
    SELECT * INTO b FROM stacksaga.idempotency_begin('begun', begin.key, lease => begin.lease);
    PERFORM set_config('begun.' || translate(key, ' ', '_'), b.lease::text, false);
    RETURN concat_ws(' ', b.outcome, b.attempt, b.recovery_point, b.response);
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
CREATE FUNCTION begun.lease(key text) RETURNS bigint LANGUAGE sql AS $$
    SELECT nullif(current_setting('begun.' || translate(key, ' ', '_'), true), '')::bigint
$$;
CREATE FUNCTION begun.finish(key text, response jsonb DEFAULT '"done"') RETURNS void LANGUAGE sql AS $$
    SELECT stacksaga.idempotency_finish('begun', $1, begun.lease($1), $2)
$$;

-- One transaction, one row; two keys are two.
\c -
BEGIN;
SELECT begun.begin('a'), begun.begin('b');
SELECT * FROM begun.writes;
SELECT begun.finish('b');
SELECT begun.finish('a');
SELECT * FROM begun.writes;
-- A finish repeated, a replay and a begin of a third key, which commits in progress.
SELECT begun.finish('a'), begun.begin('a'), begun.begin('c');
SELECT * FROM begun.writes;
COMMIT;
SELECT * FROM begun.state;
SELECT begun.begin('c');
SELECT begun.finish('c');
SELECT begun.begin('c');
-- Nothing is left in the session for the next transaction.
BEGIN;
SELECT begun.begin('gone'), begun.lease('gone') AS lease \gset
ROLLBACK;
\set VERBOSITY terse
SELECT count(*) FROM stacksaga.idempotency_finish('begun', 'gone', :lease);
\set VERBOSITY default
SELECT count(*) FROM begun.state WHERE key = 'gone';
-- More keys than are kept.
BEGIN;
SELECT count(begun.begin('many ' || n)) FROM generate_series(1, 40) AS n;
SELECT count(begun.finish('many ' || n)) FROM generate_series(40, 1, -1) AS n;
COMMIT;
SELECT count(*), bool_and(completed) FROM begun.state WHERE key LIKE 'many %';
TRUNCATE stacksaga.idempotency_key;

-- Answers other than the finish.
\c -
SET client_min_messages = warning;
BEGIN;
SELECT begun.begin('a');
SELECT stacksaga.idempotency_checkpoint('begun', 'a', begun.lease('a'), 'half');
SELECT * FROM begun.state;
SELECT begun.finish('a');
SELECT begun.begin('b');
SELECT stacksaga.idempotency_release('begun', 'b', begun.lease('b'));
SELECT * FROM begun.writes;
SELECT begun.lease('b') AS old \gset
SELECT begun.begin('b');
SELECT begun.lease('b') <> :old AS other_lease;
COMMIT;
SELECT * FROM begun.state;
BEGIN;
SELECT begun.begin('c');
SAVEPOINT s;
SELECT count(*) FROM stacksaga.idempotency_finish('begun', 'c', 1);
ROLLBACK TO s;
SELECT begun.begin('c');
SELECT begun.finish('c');
COMMIT;
SELECT * FROM begun.state WHERE key = 'c';
-- A second begin when the lease has run out resumes, also in the same transaction.
BEGIN;
SELECT begun.begin('d', '1 second');
SELECT begun.lease('d') AS first \gset
SET LOCAL stacksaga.clock_offset = '1 minute';
SELECT begun.begin('d');
SAVEPOINT s;
\set VERBOSITY terse
SELECT stacksaga.idempotency_finish('begun', 'd', :first) IS NULL;
\set VERBOSITY default
ROLLBACK TO s;
SELECT begun.finish('d');
COMMIT;
SELECT * FROM begun.state WHERE key = 'd';
-- A late finish counts if nobody has taken over.
BEGIN;
SELECT begun.begin('e', '1 second');
SET LOCAL stacksaga.clock_offset = '1 minute';
SELECT begun.finish('e');
COMMIT;
SELECT completed_at - created_at > '59 seconds' AS took_a_minute, lease_until < completed_at AS was_late,
       sweep_at - created_at = retention AS swept_later
  FROM stacksaga.idempotency_key WHERE key = 'e';
TRUNCATE stacksaga.idempotency_key;

-- Savepoints: the begin goes with its own, and what is done inside of one is undone with that.
BEGIN;
SELECT begun.begin('outer');
SAVEPOINT one;
SELECT begun.begin('inner');
SELECT begun.finish('outer', '1');
ROLLBACK TO one;
SAVEPOINT finish_in_parent;
SELECT begun.begin('inner');
RELEASE finish_in_parent;
SELECT begun.finish('inner', '2');
SAVEPOINT two;
SAVEPOINT three;
SELECT begun.begin('nested');
RELEASE three;
SELECT begun.finish('outer', '3');
ROLLBACK TO two;
SELECT begun.begin('nested');
SAVEPOINT four;
SELECT stacksaga.idempotency_checkpoint('begun', 'nested', begun.lease('nested'), 'undone');
ROLLBACK TO four;
SELECT stacksaga.idempotency_release('begun', 'nested', begun.lease('nested'));
ROLLBACK TO four;
SAVEPOINT five;
SELECT stacksaga.idempotency_checkpoint('begun', 'nested', begun.lease('nested'), 'kept');
RELEASE four;
SELECT begun.finish('outer', '4');
COMMIT;
SELECT * FROM begun.state;
SELECT begun.finish('nested', '5');
TRUNCATE stacksaga.idempotency_key;
-- A whole transaction whose only write lies in a savepoint that is rolled back.
BEGIN;
SAVEPOINT s;
SELECT begun.begin('undone');
ROLLBACK TO s;
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT begun.begin('undone');
SELECT begun.finish('undone');
ROLLBACK TO s;
COMMIT;
SELECT * FROM begun.state;
-- Blocks of PL/pgSQL with an exception, and a procedure that commits.
DO $$
BEGIN
    PERFORM begun.begin('block');
    BEGIN
        PERFORM begun.finish('block', '"undone"');
        PERFORM begun.begin('inside');
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        PERFORM begun.finish('block', '"handled"');
    END;
    PERFORM begun.begin('committed');
    COMMIT;
    PERFORM begun.begin('next');
    ROLLBACK;
    PERFORM begun.finish('committed');
END $$;
SELECT * FROM begun.state;
TRUNCATE stacksaga.idempotency_key;

-- What reads the table in another way finds the row; what changes it, too.
BEGIN;
SELECT begun.begin('a');
SELECT rung, state FROM stacksaga.dedupe_state('begun', 'a');
SELECT begun.begin('b');
SELECT stacksaga.expire_dedupe();
SELECT key FROM begun.state;
SELECT begun.begin('c');
COPY (SELECT key FROM begun.state) TO STDOUT;
SELECT begun.finish('c');
SELECT begun.begin('locked');
LOCK TABLE stacksaga.idempotency_key;
SELECT key FROM begun.state;
COMMIT;
BEGIN;
SELECT begun.begin('d');
TRUNCATE stacksaga.idempotency_key;
COMMIT;
SELECT * FROM begun.state;
-- Dropping the extension: here the drop is undone, in test/tap/dedupe_begun.pl it is not.
BEGIN;
SELECT begun.begin('a');
SAVEPOINT s;
DROP EXTENSION stacksaga CASCADE;
ROLLBACK TO s;
SELECT begun.finish('a');
COMMIT;
SELECT * FROM stacksaga.idempotency_begin('begun', 'a') AS b WHERE b.outcome = 'replay';

-- A trigger of somebody's own sees the same rows as ever, also a deferred one.
CREATE TABLE begun.seen (n serial, event text, deferred boolean);
CREATE FUNCTION begun.see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO begun.seen (event, deferred) VALUES (TG_OP || ' ' || NEW.key, TG_NAME = 'late');
    RETURN NULL;
END $$;
CREATE TRIGGER soon AFTER INSERT OR UPDATE ON stacksaga.idempotency_key FOR EACH ROW EXECUTE FUNCTION begun.see();
CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON stacksaga.idempotency_key
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION begun.see();
BEGIN;
SELECT begun.begin('watched'), begun.begin('open');
SELECT begun.finish('watched');
COMMIT;
SELECT event, deferred FROM begun.seen ORDER BY n;
TRUNCATE begun.seen;
DROP TRIGGER soon ON stacksaga.idempotency_key;
DROP TRIGGER late ON stacksaga.idempotency_key;
-- One that is made between begin and finish sees the finish.
BEGIN;
SELECT begun.begin('between');
CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON stacksaga.idempotency_key
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION begun.see();
SELECT begun.finish('between');
COMMIT;
SELECT event, deferred FROM begun.seen ORDER BY n;
DROP TRIGGER late ON stacksaga.idempotency_key;
-- A role that may only call the functions needs nothing else, whatever its search_path is.
CREATE ROLE begun_service;
SELECT stacksaga.grant_usage('begun_service', 'service');
CREATE SCHEMA begun_service AUTHORIZATION begun_service;
CREATE TRIGGER soon AFTER INSERT OR UPDATE ON stacksaga.idempotency_key FOR EACH ROW EXECUTE FUNCTION begun.see();
ALTER FUNCTION begun.see() SET search_path = pg_catalog;
TRUNCATE begun.seen;
SET ROLE begun_service;
SET search_path = begun_service, pg_catalog;
CREATE FUNCTION begun_service.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE OPERATOR begun_service.= (LEFTARG = text, RIGHTARG = text, FUNCTION = begun_service.equal);
BEGIN;
SELECT lease FROM stacksaga.idempotency_begin('begun', 'as a service') \gset
SELECT stacksaga.idempotency_finish('begun', 'as a service', :lease);
COMMIT;
SELECT outcome FROM stacksaga.idempotency_begin('begun', 'as a service');
SELECT * FROM stacksaga.idempotency_key;
RESET search_path;
RESET ROLE;
SELECT event FROM begun.seen ORDER BY n;
DROP TRIGGER soon ON stacksaga.idempotency_key;
SET ROLE begun_service;
SELECT outcome, lease FROM stacksaga.idempotency_begin('begun', 'as a service, directly') \gset
\echo :outcome
SELECT stacksaga.idempotency_finish('begun', 'as a service, directly', :lease);
RESET ROLE;
SET client_min_messages = error;
DROP OWNED BY begun_service;
DROP ROLE begun_service;
SET client_min_messages = warning;

-- A transaction that has become read-only commits what it has begun before, and finishes nothing.
BEGIN;
SELECT begun.begin('read only');
SAVEPOINT s;
SET TRANSACTION READ ONLY;
SELECT begun.finish('read only') IS NULL;
ROLLBACK TO s;
SET TRANSACTION READ ONLY;
SELECT rung, state FROM stacksaga.dedupe_state('begun', 'read only');
COMMIT;
SELECT * FROM begun.state WHERE key = 'read only';
BEGIN;
SELECT begun.begin('read only at the end');
SET TRANSACTION READ ONLY;
COMMIT;
SELECT * FROM begun.state WHERE key = 'read only at the end';
BEGIN READ ONLY;
SELECT outcome FROM stacksaga.idempotency_begin('begun', 'never');
ROLLBACK;
-- In a parallel query.
CREATE FUNCTION begun.in_parallel() RETURNS text LANGUAGE sql PARALLEL SAFE AS $$
    SELECT outcome FROM stacksaga.idempotency_begin('begun', 'parallel')
$$;
BEGIN;
SELECT count(set_config(name, 'on', true)) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
\set SHOW_CONTEXT never
SELECT begun.in_parallel() FROM pg_class LIMIT 1;
\set SHOW_CONTEXT errors
ROLLBACK;

-- Somebody writes the row by hand in between: the transaction fails, at the finish or at the commit, and says why.
CREATE PROCEDURE begun.write_by_hand(key text) LANGUAGE sql AS $$
    INSERT INTO stacksaga.idempotency_key (token, lease, lease_until, sweep_at, created_at, attempt,
           fingerprint_version, lease_length, retention, scope, key)
    VALUES (stacksaga.token('begun' || chr(31) || write_by_hand.key), 1, now(), now(), now(), 1, 1, '1 s', '1 s',
            'begun', write_by_hand.key)
$$;
\set VERBOSITY terse
BEGIN;
SELECT begun.begin('by hand');
CALL begun.write_by_hand('by hand');
COMMIT;
SELECT count(*) FROM begun.state WHERE key = 'by hand';
BEGIN;
SELECT begun.begin('by hand');
CALL begun.write_by_hand('by hand');
SELECT begun.finish('by hand');
COMMIT;
\set VERBOSITY default
DO $$
DECLARE
    hint text; context text;
BEGIN
    PERFORM begun.begin('by hand');
    CALL begun.write_by_hand('by hand');
    PERFORM stacksaga.dedupe_state('begun', 'by hand');
EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
    RAISE WARNING E'%\n%', hint, split_part(context, E'\n', 1);
END $$;
SELECT begun.begin('by hand');

-- At the end of the transaction: a deferred trigger and a cursor WITH HOLD that begin keys, and finish them.
CREATE FUNCTION begun.charged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM begun.begin('deferred ' || NEW.amount);
    IF NEW.amount > 1 THEN
        PERFORM begun.finish('deferred ' || NEW.amount);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER charged AFTER INSERT ON begun.charge DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION begun.charged();
BEGIN;
INSERT INTO begun.charge VALUES (1), (2);
DECLARE held CURSOR WITH HOLD FOR SELECT begun.begin('held ' || n) FROM generate_series(1, 3) AS n;
FETCH held;
COMMIT;
FETCH ALL FROM held;
SELECT * FROM begun.state WHERE key LIKE 'held %' OR key LIKE 'deferred %';
CLOSE held;
TRUNCATE stacksaga.idempotency_key;

-- In the handlers of a saga, several in one transaction: the second one sees the key of the first, and a
-- handler that fails takes its keys with it.
CREATE FUNCTION begun.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    outcome text := begun.begin(call.input->>'key');
BEGIN
    IF call.input ? 'finishes' THEN
        PERFORM begun.finish(call.input->>'key');
    ELSIF call.input ? 'fails' THEN
        RAISE EXCEPTION 'no' USING ERRCODE = 'P0001';
    END IF;
    RETURN to_jsonb(outcome);
END $$;
CREATE FUNCTION begun.look(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO begun.seen (event)
    SELECT 'key ' || key || ' after ' || (call.results->>'act') FROM stacksaga.idempotency_key
     WHERE key = call.input->>'key';
    SELECT 'null'::jsonb
$$;
TRUNCATE begun.seen;
SELECT stacksaga.define_saga('begun', ARRAY[
    stacksaga.sql_step('act', 'begun.act(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 1)),
    stacksaga.sql_step('look', 'begun.look(stacksaga.step_call)')]);
SELECT count(*)
  FROM unnest(ARRAY['{"key": "one"}', '{"key": "two", "finishes": 1}', '{"key": "three", "fails": 1}',
                    '{"key": "one"}']::jsonb[]) WITH ORDINALITY AS s (input, n),
       stacksaga.start_saga('begun', s.input, 'begun ' || n);
SELECT stacksaga.run_pending(100) > 0 AS ran;
SELECT key, status FROM stacksaga.sagas WHERE saga = 'begun' ORDER BY key;
SELECT event FROM begun.seen ORDER BY event COLLATE "C";
SELECT * FROM begun.state;

DROP SCHEMA begun CASCADE;
TRUNCATE stacksaga.idempotency_key;
