-- Where an effect is, and what doctor() says of handlers whose effects are not committed with their
-- marker: in foreign tables, and in unlogged ones.

CREATE SCHEMA place;
CREATE FOREIGN DATA WRAPPER place_wrapper;
CREATE SERVER place_server FOREIGN DATA WRAPPER place_wrapper;
CREATE FOREIGN TABLE place."Far away" (n int) SERVER place_server;
CREATE UNLOGGED TABLE place.cache (n int);
CREATE TABLE place.account (n int);
CREATE FUNCTION place.plain(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO place.account VALUES (1);
    SELECT NULL::jsonb;
END;
CREATE FUNCTION place.atomic(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO place.cache VALUES (1);
    SELECT NULL::jsonb;
END;
CREATE FUNCTION place.far(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO place."Far away" VALUES (1);
    INSERT INTO place.Cache VALUES (1);
    RETURN NULL;
END $$;
-- A longer name that holds one is another one.
CREATE FUNCTION place.similar(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM place.account AS cache_of_accounts;
    RETURN NULL;
END $$;
CREATE FUNCTION place.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS 'INSERT INTO place.cache VALUES (1)';
SELECT stacksaga.define_saga('place', ARRAY[
    stacksaga.sql_step('plain', 'place.plain(stacksaga.step_call)'),
    stacksaga.sql_step('similar', 'place.similar(stacksaga.step_call)'),
    stacksaga.sql_step('atomic', 'place.atomic(stacksaga.step_call)'),
    stacksaga.sql_step('undone far', 'place.plain(stacksaga.step_call)', 'place.far(stacksaga.step_call)'),
    stacksaga.queue_step('queue', 'place', compensable => false),
    stacksaga.message_step('message', 'place'),
    stacksaga.signal_step('signal', 's'), stacksaga.timer_step('timer', '1 s')]);
SELECT stacksaga.create_subscription('place handled', 'place', 'place.handle(stacksaga.message)'),
       stacksaga.create_subscription('place fetched', 'place');
SELECT source, step, CASE domain WHEN current_database() THEN 'here' ELSE domain END AS domain, placement FROM stacksaga.effects
 WHERE source LIKE 'place%' ORDER BY source, step;
SELECT severity, detail, fix FROM stacksaga.doctor() WHERE check_name = 'effects' AND detail LIKE '%place%' ORDER BY detail;
-- Whoever may read the view may read what it computes.
CREATE ROLE place_service;
SELECT stacksaga.grant_usage('place_service', 'service');
SET ROLE place_service;
SELECT count(*) FROM stacksaga.effects WHERE source LIKE 'place%' AND placement <> 'local';
RESET ROLE;
-- Fixed.
ALTER TABLE place.cache SET LOGGED;
DROP FOREIGN TABLE place."Far away";
SELECT placement, count(*) FROM stacksaga.effects WHERE source LIKE 'place%' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'effects' AND detail LIKE '%place%';

SELECT stacksaga.drop_subscription('place handled', true), stacksaga.drop_subscription('place fetched', true);
DELETE FROM stacksaga.definition_step USING stacksaga.saga_definition d
 WHERE d.definition_id = definition_step.definition_id AND d.saga = 'place';
DELETE FROM stacksaga.saga_definition WHERE saga = 'place';
DROP OWNED BY place_service;
DELETE FROM stacksaga.usage_grant WHERE role = 'place_service';
DROP ROLE place_service;
SET client_min_messages = warning;
DROP SERVER place_server CASCADE;
DROP FOREIGN DATA WRAPPER place_wrapper;
DROP SCHEMA place CASCADE;
