-- A handler runs as its definer and in nobody else's name: neither what it leaves for the end of the
-- transaction, nor what its caller has left for it.

\set SHOW_CONTEXT never
CREATE SCHEMA escape;
CREATE ROLE escape_definer;
CREATE ROLE escape_caller;
SELECT stacksaga.grant_usage('escape_definer', 'operator'),
    stacksaga.grant_usage('escape_caller', 'operator'), stacksaga.grant_usage('escape_caller', 'service');
GRANT CREATE, USAGE ON SCHEMA escape TO escape_definer, escape_caller;
CREATE TABLE escape.log (what text, role text DEFAULT current_user);
GRANT SELECT, INSERT ON escape.log TO escape_definer, escape_caller;

-- The query of a cursor WITH HOLD runs at the commit, as the role that commits.
SET ROLE escape_definer;
CREATE FUNCTION escape.peek() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO escape.log VALUES ('a cursor is read');
    RETURN 1;
END $$;
CREATE FUNCTION escape.hold(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE call.input ->> 0;
    RETURN '1';
END $$;
CREATE FUNCTION escape.hold(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE m.payload ->> 0;
END $$;
SELECT stacksaga.define_saga('escape_hold', ARRAY[
    stacksaga.sql_step('hold', 'escape.hold(stacksaga.step_call)')]);
SELECT stacksaga.create_subscription('escape', 'escape', 'escape.hold(stacksaga.message)');
RESET ROLE;
SELECT created FROM stacksaga.start_saga('escape_hold',
    '["DECLARE later CURSOR WITH HOLD FOR SELECT escape.peek()"]', 'held');
SELECT created FROM stacksaga.start_saga('escape_hold',
    '["DECLARE at_once CURSOR FOR SELECT escape.peek(); CLOSE at_once"]', 'plain');
SELECT stacksaga.publish('escape', '["DECLARE later CURSOR WITH HOLD FOR SELECT escape.peek()"]')
    IS NOT NULL AS published;
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT key, status, last_error FROM stacksaga.sagas WHERE saga = 'escape_hold' ORDER BY key;
SELECT last_error FROM stacksaga.dead_messages WHERE subscription = 'escape';
SELECT * FROM escape.log;
SELECT name FROM pg_cursors WHERE is_holdable;
-- Nor what would last in the session.
SELECT created FROM stacksaga.start_sagas('escape_hold', ARRAY['["PREPARE lasting AS SELECT 1"]',
    '["DEALLOCATE ALL"]', '["LISTEN lasting"]', '["UNLISTEN *"]', '["DISCARD TEMP"]']::jsonb[],
    ARRAY['s1', 's2', 's3', 's4', 's5']);
SELECT stacksaga.run_pending();
SELECT key, status, last_error FROM stacksaga.sagas WHERE key LIKE 's_' ORDER BY key;
SELECT count(*) FROM pg_prepared_statements WHERE name = 'lasting';
SELECT count(*) FROM pg_listening_channels();
PREPARE lasting AS SELECT 'the session''s own' AS of;
EXECUTE lasting;
DEALLOCATE lasting;
-- The caller's own cursor is none of its business.
BEGIN;
DECLARE mine CURSOR WITH HOLD FOR SELECT 'the caller''s' AS of;
SELECT created FROM stacksaga.start_saga('escape_hold', '["SELECT 1"]', 'beside');
SELECT stacksaga.run_pending();
COMMIT;
FETCH mine;
CLOSE mine;
SELECT status FROM stacksaga.sagas WHERE key = 'beside';

-- What the caller has deferred is fired as the caller, with the caller's search_path, before a
-- handler's.
SET ROLE escape_caller;
SET search_path = escape;
CREATE TABLE mine (id integer);
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO log VALUES ('a deferred trigger');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fires AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION fires();
BEGIN;
INSERT INTO mine VALUES (1);
SELECT created FROM stacksaga.start_saga('escape_hold', '["SELECT 1"]', 'fired');
SELECT stacksaga.run_pending();
COMMIT;
RESET search_path;
RESET ROLE;
SELECT * FROM escape.log;
SELECT status FROM stacksaga.sagas WHERE key = 'fired';

-- A deferred trigger that defers another one fires it as the definer, too, ...
SET ROLE escape_definer;
CREATE TABLE escape.queue (what text, again integer);
CREATE FUNCTION escape.queue_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SET CONSTRAINTS ALL DEFERRED;
    INSERT INTO escape.log VALUES (new.what || ' ' || new.again);
    IF new.again <> 0 THEN
        INSERT INTO escape.queue VALUES (new.what, new.again - 1);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER queue_again AFTER INSERT ON escape.queue DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION escape.queue_again();
RESET ROLE;
SELECT created FROM stacksaga.start_saga('escape_hold', '["INSERT INTO escape.queue VALUES (''handler'', 2)"]', 'queues');
SELECT stacksaga.publish('escape', '["INSERT INTO escape.queue VALUES (''message'', 2)"]') IS NOT NULL AS published;
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT status FROM stacksaga.sagas WHERE key = 'queues';
SELECT role, what FROM escape.log WHERE what LIKE 'handler%' OR what LIKE 'message%' ORDER BY what DESC;
-- ... at most 1,000 times: then it has failed for good.
SELECT created FROM stacksaga.start_saga('escape_hold', '["INSERT INTO escape.queue VALUES (''endless'', -1)"]', 'endless');
SELECT stacksaga.run_pending();
SELECT status, last_error FROM stacksaga.sagas WHERE key = 'endless';
-- So does one that the caller has deferred: the handler behind it fires nothing of the caller's.
GRANT ALL ON escape.queue TO escape_caller;
SET ROLE escape_caller;
BEGIN;
INSERT INTO escape.queue VALUES ('caller', 2);
SELECT created FROM stacksaga.start_saga('escape_hold', '["SELECT 1"]', 'after the caller');
SELECT stacksaga.run_pending();
COMMIT;
BEGIN;
INSERT INTO escape.queue VALUES ('endless', -1);
SELECT stacksaga.run_pending();
ROLLBACK;
RESET ROLE;
SELECT role, what FROM escape.log WHERE what LIKE 'caller%' ORDER BY what DESC;
SELECT status FROM stacksaga.sagas WHERE key = 'after the caller';

-- What is deferred from the start is so for every handler, and for the caller afterwards.
CREATE TABLE escape.parent (id integer PRIMARY KEY);
CREATE TABLE escape.child (id integer REFERENCES escape.parent DEFERRABLE INITIALLY DEFERRED);
GRANT ALL ON escape.parent, escape.child TO escape_definer;
SELECT created FROM stacksaga.start_sagas('escape_hold',
    ARRAY['["INSERT INTO escape.child VALUES (1); INSERT INTO escape.parent VALUES (1)"]',
          '["INSERT INTO escape.child VALUES (2); INSERT INTO escape.parent VALUES (2)"]']::jsonb[],
    ARRAY['first', 'second']);
BEGIN;
SELECT stacksaga.run_pending();
INSERT INTO escape.child VALUES (3);
INSERT INTO escape.parent VALUES (3);
COMMIT;
SELECT key, status, last_error FROM stacksaga.sagas WHERE key IN ('first', 'second') ORDER BY key;
SELECT id FROM escape.child ORDER BY id;
-- Whose constraint is violated is told, and no other.
SELECT created FROM stacksaga.start_saga('escape_hold', '["SELECT 1"]', 'innocent');
BEGIN;
INSERT INTO escape.child VALUES (4);
SELECT stacksaga.run_pending();
ROLLBACK;
SELECT status, attempt FROM stacksaga.sagas WHERE key = 'innocent';

-- Nor does what is done at the end of a transaction find what its caller has put before PostgreSQL's.
CREATE FUNCTION escape.trap(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'trapped as %', current_user; END $$;
CREATE OPERATOR escape.>= (FUNCTION = escape.trap, LEFTARG = bigint, RIGHTARG = bigint);
SELECT stacksaga.create_subscription('escape_received', 'escape');
SELECT stacksaga.publish('escape', '["SELECT 1"]') IS NOT NULL AS published;
SET ROLE escape_caller;
BEGIN;
SET LOCAL search_path = escape, pg_catalog;
SELECT count(*) FROM stacksaga.receive_messages('escape_received', 'c');
COMMIT;
SELECT batch_id FROM stacksaga.receive_messages('escape_received', 'c') \gset
SELECT stacksaga.ack_messages(:batch_id);
RESET ROLE;

SET client_min_messages = warning;
SELECT stacksaga.drop_subscription('escape', true), stacksaga.drop_subscription('escape_received', true);
DROP SCHEMA escape CASCADE;
DROP OWNED BY escape_definer, escape_caller;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'escape%';
DROP ROLE escape_definer, escape_caller;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.parked_saga;
TRUNCATE stacksaga.outbox_message;
