-- What each declared effect relies on when it is repeated, and where the promise ends.

CREATE OR REPLACE VIEW stacksaga.effects AS
SELECT d.saga AS source,
       s.step,
       s.effect,
       CASE WHEN s.effect = 'idempotent' THEN 'algebra'
            WHEN s.kind IN ('queue', 'message') THEN 'dedupe record'
            ELSE 'transaction' END AS rung,
       CASE WHEN s.kind IN ('signal', 'timer', 'child') THEN
                'happens once, in this database'
            WHEN s.kind = 'sql' THEN
                'committed once with its marker, in this database; what it does elsewhere may be repeated'
                || CASE s.effect WHEN 'idempotent' THEN ', which changes nothing' ELSE '' END
            WHEN s.effect = 'idempotent' THEN
                'offered at least once; a repetition changes nothing'
            ELSE
                'offered at least once; applied once where the service records the idempotency key with its effect' END
       || CASE s.effect
            WHEN 'compensable' THEN ', and undone by its compensation if the saga fails'
            WHEN 'irreversible' THEN ', and never undone: an unknown outcome waits for an operator'
            ELSE '' END AS guarantee,
       d.version,
       CASE s.kind WHEN 'queue' THEN 'queue ' || s.queue
                   WHEN 'message' THEN 'topic ' || s.topic
                   ELSE current_database()::text END AS domain,
       CASE WHEN s.kind IN ('queue', 'message') THEN 'service'
            WHEN s.kind = 'sql' THEN stacksaga_internal.effect_placement(s.definition_id, s.step_no, NULL)
            ELSE 'local' END AS placement
  FROM stacksaga.saga_definition d
  JOIN stacksaga.definition_step s USING (definition_id)
UNION ALL
SELECT s.subscription,
       s.handler,
       'guarded',
       CASE WHEN s.handler IS NULL THEN 'dedupe record' ELSE 'transaction' END,
       CASE WHEN s.handler IS NULL THEN
                'delivered at least once; applied once where the consumer calls accept_message() with its effect'
            ELSE
                'committed once with its position, in this database; what it does elsewhere may be repeated' END,
       NULL,
       CASE WHEN s.handler IS NULL THEN 'topic ' || s.topic ELSE current_database()::text END,
       CASE WHEN s.handler IS NULL THEN 'service'
            ELSE stacksaga_internal.effect_placement(NULL, NULL, s.subscription_id) END
  FROM stacksaga.subscription s;
COMMENT ON VIEW stacksaga.effects IS
    'Every declared effect of sagas and subscriptions with its rung of the dedupe ladder (algebra, dedupe record, transaction), where its guarantee ends, where it is applied (domain), and where the effect is (placement): local, service, foreign or unlogged';
