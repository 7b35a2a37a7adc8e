-- Who asks: the role whose rights decide, and which is recorded, whatever calls.

\set SHOW_CONTEXT never
CREATE SCHEMA asks;
CREATE ROLE asks_alice;
CREATE ROLE asks_bob;
CREATE ROLE asks_member IN ROLE asks_alice;
SELECT stacksaga.grant_usage(role, 'operator') FROM unnest('{asks_alice,asks_bob,asks_member}'::name[]) AS role;
GRANT CREATE, USAGE ON SCHEMA asks TO asks_alice, asks_bob, asks_member;
CREATE TABLE asks.log (call text, outcome text);
GRANT SELECT, INSERT ON asks.log TO asks_bob;

-- ANALYZE evaluates an operator's expression index in the session of a superuser; so does autovacuum.
SET SESSION AUTHORIZATION asks_alice;
CREATE FUNCTION asks.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION asks.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$ SELECT $$;
SELECT stacksaga.define_saga('asks', ARRAY[stacksaga.sql_step('only', 'asks.act(stacksaga.step_call)')]);
SELECT stacksaga.create_subscription('asks', 'asks', 'asks.handle(stacksaga.message)');
SELECT stacksaga.create_schedule('asks', 'asks', '0 0 1 1 *');
RESET SESSION AUTHORIZATION;
SELECT saga_id FROM stacksaga.start_saga('asks', key => 'asks', run_at => stacksaga.clock_now() + '1 day') \gset
SET SESSION AUTHORIZATION asks_bob;
CREATE FUNCTION asks.act_of_bob(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION asks.handle_of_bob(m stacksaga.message) RETURNS void LANGUAGE sql AS $$ SELECT $$;
CREATE FUNCTION asks.calls(call text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT ' || call;
    INSERT INTO asks.log VALUES (call, 'done');
    RETURN 1;
EXCEPTION WHEN OTHERS THEN
    INSERT INTO asks.log VALUES (call, sqlstate);
    RETURN 1;
END $$;
CREATE FUNCTION asks.attack(call text) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN asks.calls(call);
END $$;
CREATE TABLE asks.analyzed (call text);
INSERT INTO asks.analyzed VALUES
    ($$stacksaga.define_saga('asks', ARRAY[stacksaga.sql_step('only', 'asks.act_of_bob(stacksaga.step_call)')])$$),
    ($$stacksaga.define_saga('asks_bob', ARRAY[stacksaga.sql_step('only', 'asks.act_of_bob(stacksaga.step_call)')])$$),
    ($$stacksaga.create_subscription('asks', 'asks', 'asks.handle_of_bob(stacksaga.message)')$$),
    ($$stacksaga.create_subscription('asks_bob', 'asks', 'asks.handle_of_bob(stacksaga.message)')$$),
    ($$stacksaga.alter_subscription('asks', 'asks.handle_of_bob(stacksaga.message)')$$),
    ($$stacksaga.drop_subscription('asks')$$),
    ($$stacksaga.create_schedule('asks_bob', 'asks', '0 0 1 1 *')$$),
    ($$stacksaga.pause_schedule('asks', 'why')$$),
    ($$stacksaga.cancel_saga((SELECT saga_id FROM stacksaga.sagas WHERE key = 'asks'), 'why')$$),
    ($$count(*) FROM stacksaga.cancel_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE key = 'asks'), 'why', false)$$),
    ($$stacksaga.set_queue('asks', 1)$$),
    ($$stacksaga.run_pending()$$),
    ($$count(*) FROM stacksaga.sagas$$),
    ($$count(*) FROM stacksaga.find_sagas()$$);
CREATE INDEX analyzed_calls ON asks.analyzed (asks.attack(call));
RESET SESSION AUTHORIZATION;
TRUNCATE asks.log;
ANALYZE asks.analyzed;
SELECT call, string_agg(DISTINCT outcome, ', ') FROM asks.log GROUP BY call ORDER BY call COLLATE "C";
SET SESSION AUTHORIZATION asks_bob;
DROP INDEX asks.analyzed_calls;
-- In a session's own statement bob is who asks, and may do what an operator may.
RESET SESSION AUTHORIZATION;
TRUNCATE asks.log;
SET SESSION AUTHORIZATION asks_bob;
SELECT count(asks.calls(call)) FROM asks.analyzed;
SELECT call, outcome FROM asks.log ORDER BY call COLLATE "C";
RESET SESSION AUTHORIZATION;

-- A subscription that has functions is altered and dropped by the role that they run as.
SET SESSION AUTHORIZATION asks_bob;
SELECT stacksaga.alter_subscription('asks', 'asks.handle_of_bob(stacksaga.message)');
SELECT stacksaga.alter_subscription('asks', stop_on_first_failure => false);
SELECT stacksaga.drop_subscription('asks');
SELECT stacksaga.create_subscription('asks_service', 'asks');
SET SESSION AUTHORIZATION asks_member;
SELECT stacksaga.alter_subscription('asks', stop_on_first_failure => false);
SELECT stacksaga.drop_subscription('asks_service');
RESET SESSION AUTHORIZATION;
SELECT definer FROM stacksaga.subscription WHERE subscription = 'asks';
-- Nor may bob have a superuser do it by a function of his own.
SET SESSION AUTHORIZATION asks_bob;
CREATE FUNCTION asks.of_bob() RETURNS void LANGUAGE sql SECURITY DEFINER AS
    $$ SELECT stacksaga.drop_subscription('asks') $$;
RESET SESSION AUTHORIZATION;
SELECT asks.of_bob();

SELECT status FROM stacksaga.sagas WHERE key = 'asks';
SELECT saga_id FROM stacksaga.start_saga('asks', key => 'asks 2', run_at => stacksaga.clock_now() + '1 day') \gset
-- What a handler does, its definer has done, whoever's session runs it and whatever it sets.
SET SESSION AUTHORIZATION asks_alice;
CREATE FUNCTION asks.operates(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL stacksaga.on_behalf_of = 'somebody else';
    PERFORM stacksaga.suspend_saga((call.input ->> 0)::uuid, 'by a step');
    PERFORM stacksaga.set_queue('asks', 1);
    PERFORM stacksaga.resume_schedule('asks', 'by a step');
    RETURN '1';
END $$;
CREATE FUNCTION asks.operates(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL stacksaga.on_behalf_of = 'somebody else';
    PERFORM stacksaga.resume_saga((m.payload ->> 0)::uuid, 'by a message');
    PERFORM stacksaga.set_queue('asks', 2);
END $$;
SELECT stacksaga.define_saga('asks_operates', ARRAY[stacksaga.sql_step('acts', 'asks.operates(stacksaga.step_call)')]);
SELECT stacksaga.create_subscription('asks_operates', 'operates', 'asks.operates(stacksaga.message)');
RESET SESSION AUTHORIZATION;
TRUNCATE stacksaga.operator_action, stacksaga.saga_action, stacksaga.schedule_action;
SELECT created FROM stacksaga.start_saga('asks_operates', to_jsonb(ARRAY[:'saga_id']), saga_id => '00000000-0000-0000-0000-000000000001');
SELECT stacksaga.publish('operates', to_jsonb(ARRAY[:'saga_id'])) IS NOT NULL AS published;
SET stacksaga.on_behalf_of = 'the caller''s person';
SELECT saga_id AS before FROM stacksaga.start_saga('asks', run_at => stacksaga.clock_now() + '1 day') \gset
SELECT stacksaga.suspend_saga(:'before', 'by a person');
SET SESSION AUTHORIZATION asks_bob;
SELECT stacksaga.run_pending();
RESET SESSION AUTHORIZATION;
SELECT role_name, on_behalf_of, action, replace(object, :'saga_id', 'ID'), reason, detail
  FROM stacksaga.operator_actions WHERE object <> 'saga ' || :'before' AND action <> 'adopt' ORDER BY reason, action, object, detail;
SELECT role_name = current_user AS by_me, on_behalf_of, detail FROM stacksaga.operator_actions WHERE object = 'saga ' || :'before';

SET client_min_messages = warning;
SELECT stacksaga.drop_subscription(s, true) FROM unnest('{asks,asks_operates,asks_bob}'::text[]) AS s;
SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules WHERE schedule LIKE 'asks%';
SELECT stacksaga.drop_queue('asks');
DROP SCHEMA asks CASCADE;
DROP OWNED BY asks_alice, asks_bob, asks_member;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'asks%';
DROP ROLE asks_alice, asks_bob, asks_member;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action, stacksaga.operator_action, stacksaga.schedule_action;
TRUNCATE stacksaga.outbox_message;
