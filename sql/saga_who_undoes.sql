-- What undoes a step is asked for, and goes to who acted.

CREATE SCHEMA who;
-- Starts it alone.
CREATE FUNCTION who.start(saga text, input jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga;
    SELECT set_config('stacksaga.clock_offset', '0', false);
    SELECT saga_id FROM stacksaga.start_saga(saga, input)
$$;
-- Claims from a queue and completes; the key without the saga's id.
CREATE FUNCTION who.serve(queue text)
RETURNS TABLE (step text, direction text, by_fallback boolean, key text, status text) LANGUAGE sql AS $$
    SELECT step, direction, by_fallback, substr(idempotency_key, 38),
           stacksaga.complete_step(saga_id, step, lease, to_jsonb(queue))
      FROM stacksaga.claim_steps(queue, 'w')
$$;
-- Claims from a queue and refuses for good.
CREATE FUNCTION who.refuse(queue text) RETURNS text LANGUAGE sql AS $$
    SELECT stacksaga.fail_step(saga_id, step, lease, 'refused', 'non_retryable')
      FROM stacksaga.claim_steps(queue, 'w')
$$;

-- A queue of its own for the compensation.
SELECT stacksaga.define_saga('refunded', ARRAY[
    stacksaga.queue_step('charge', 'who pays', compensation_queue => 'who refunds'),
    stacksaga.queue_step('ship', 'who ships', compensable => false)]);
SELECT step, queue, compensation_queue, effect FROM stacksaga.definition_step
  JOIN stacksaga.saga_definition USING (definition_id) WHERE saga = 'refunded' ORDER BY step_no;
SELECT line FROM stacksaga.saga_diagram('refunded') AS line WHERE line ~ 'charge|c1';
SELECT who.start('refunded') AS id \gset
SELECT * FROM who.serve('who pays');
SELECT who.refuse('who ships');
SELECT * FROM who.serve('who pays');
SELECT queue, waiting FROM stacksaga.queues WHERE queue ~ '^who' ORDER BY queue;
SELECT * FROM who.serve('who refunds');
SELECT status FROM stacksaga.saga_result(:'id');

-- Each way to say what undoes a step, and what follows for its effect.
SELECT said, stacksaga.define_saga('said', ARRAY[step]) AS version
  FROM (VALUES ('compensation_queue', stacksaga.queue_step('one', 'q', compensation_queue => 'undo')),
               ('compensable', stacksaga.queue_step('one', 'q', compensable => true)),
               ('both', stacksaga.queue_step('one', 'q', true, effect => 'compensable', compensation_queue => 'undo')),
               ('not compensable', stacksaga.queue_step('one', 'q', compensable => false)),
               ('guarded', stacksaga.queue_step('one', 'q', effect => 'guarded')),
               ('idempotent', stacksaga.queue_step('one', 'q', compensable => false, effect => 'idempotent')),
               ('irreversible', stacksaga.queue_step('one', 'q', effect => 'irreversible')),
               ('fallback', stacksaga.message_step('one', 't', 'undo', fallback => 'f',
                                                   fallback_compensation_topic => 'undo f')),
               ('signal', stacksaga.signal_step('one', 's', effect => 'compensable', fallback => 'f')))
       AS ways(said, step);
SELECT version, ds.kind, ds.effect, ds.compensation_queue, ds.fallback_compensation_topic
  FROM stacksaga.saga_definition JOIN stacksaga.definition_step ds USING (definition_id)
 WHERE saga = 'said' ORDER BY version;

-- An argument that came later is no new content where it is left out.
SELECT content ~ 'compensation_queue' AS names_the_queue, count(*) FROM stacksaga.saga_definition
  JOIN stacksaga.definition_step USING (definition_id)
 WHERE saga = 'refunded' GROUP BY 1;
SELECT stacksaga.define_saga('plain', ARRAY[stacksaga.queue_step('charge', 'who pays', compensable => true)]);
SELECT content ~ 'compensation_queue|fallback_compensation_topic' AS names_them FROM stacksaga.saga_definition
 WHERE saga = 'plain';

-- The fallback has keys of its own.
SELECT stacksaga.define_saga('spare', ARRAY[
    stacksaga.queue_step('charge', 'who pays', compensable => true, fallback => 'who lends'),
    stacksaga.queue_step('ship', 'who ships', compensable => false)]);
SELECT who.start('spare') AS id \gset
SELECT who.refuse('who pays');
SELECT * FROM who.serve('who lends');

SET client_min_messages = warning;
DROP SCHEMA who CASCADE;
