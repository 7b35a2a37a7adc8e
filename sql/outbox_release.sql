-- A consumer gives its batch back: its messages keep attempt and order, and no consumer gets its partitions before the instant
-- that it named. It is no loss.

\set SHOW_CONTEXT never
CREATE SCHEMA release;
CREATE FUNCTION release.later(seconds numeric) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + make_interval(secs => seconds::float8))::text, false)
$$;
CREATE FUNCTION release.receive(name text, consumer text DEFAULT 'c', max_messages int DEFAULT 100) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s:%s', payload -> 'n', attempt), ' ') FROM stacksaga.receive_messages(name, consumer, max_messages)
$$;
CREATE FUNCTION release.batch(name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT max(batch_id) FROM stacksaga.message_batch JOIN stacksaga.subscription USING (subscription_id) WHERE subscription = name
$$;
CREATE FUNCTION release.id_of(name text, n int) RETURNS uuid LANGUAGE sql AS $$
    SELECT message_id FROM stacksaga.outbox_message WHERE topic = name AND payload -> 'n' = to_jsonb($2)
$$;
CREATE FUNCTION release.publish(name text, first int, last int, key text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish(name, jsonb_build_object('n', n), key)) FROM generate_series(first, last) AS n
$$;
-- What a release may not touch, and what operators see of it.
CREATE FUNCTION release.seen(name text, OUT lost bigint, OUT dead bigint, OUT retries text, OUT "until" interval, OUT reason text)
LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM stacksaga.lost_batch AS l JOIN stacksaga.subscription AS s USING (subscription_id)
             WHERE s.subscription = name),
           dead_messages,
           (SELECT string_agg(format('%s %s', state, attempt), ', ' ORDER BY m.due_at, m.tick, m.number)
              FROM stacksaga.message_retry AS m JOIN stacksaga.subscription AS s USING (subscription_id)
             WHERE s.subscription = name),
           date_trunc('minute', released_until - stacksaga.clock_now() + interval '30 s'), release_reason
      FROM stacksaga.subscriptions WHERE subscription = name
$$;
SET stacksaga.clock_offset = '0 s';
SELECT stacksaga.create_subscription(name, name, partitions => 2, retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '1 s', jitter => 0))
  FROM unnest('{plain,keyed,lost,lone,dead,given,repeat,log,handler}'::text[]) AS name;

-- Bad input.
\set VERBOSITY default
SELECT stacksaga.release_batch(NULL);
SELECT stacksaga.release_batch(-1);
SELECT stacksaga.release_batch(-1, NULL);
SELECT stacksaga.release_batch(-1, '-1 s');
SELECT stacksaga.release_batch(-1, '1 h 1 us');
SELECT stacksaga.release_batch(-1, '1 month');
SELECT stacksaga.release_batch(-1, reason => '');
SELECT stacksaga.release_batch(-1, reason => repeat('x', 4097));

-- Without a pause another consumer gets them at once, with the same attempts and in the same order.
SELECT release.publish('plain', 1, 6, 'k');
SELECT release.receive('plain');
SELECT release.receive('plain', 'd') AS nothing;
SELECT stacksaga.release_batch(release.batch('plain'), reason => 'the broker is away');
SELECT * FROM release.seen('plain');
-- It is over: neither acknowledged nor prolonged nor failed.
\set VERBOSITY sqlstate
SELECT stacksaga.ack_messages(release.batch('plain'));
SELECT stacksaga.extend_batch(release.batch('plain'));
SELECT stacksaga.fail_message(release.batch('plain'), release.id_of('plain', 1), 'too late');
\set VERBOSITY default
SELECT release.receive('plain', 'd');
-- The reason stands until a batch is acknowledged.
SELECT reason FROM release.seen('plain');
SELECT stacksaga.ack_messages(release.batch('plain'));
SELECT * FROM release.seen('plain');
SELECT release.receive('plain') AS nothing;
-- So it does where the batch was of another partition.
SELECT release.publish('plain', 7, 26);
SELECT count(*) FROM stacksaga.receive_messages('plain', 'c', 1) \gset
SELECT release.batch('plain') AS one \gset
SELECT count(*) > 0 AS of_the_other FROM stacksaga.receive_messages('plain', 'd');
SELECT stacksaga.release_batch(:one, '1 hour', 'not now');
SELECT "until", reason FROM release.seen('plain');
SELECT stacksaga.ack_messages(release.batch('plain')) > 0 AS acknowledged;
SELECT "until", reason FROM release.seen('plain');
-- Its own pause goes on.
SELECT release.receive('plain', 'd') AS nothing;
SELECT release.later(3599);
SELECT release.receive('plain', 'd') AS nothing;
SELECT release.later(2);
SELECT release.receive('plain', 'd') IS NOT NULL AS something, stacksaga.ack_messages(release.batch('plain')) > 0 AS acknowledged;

-- An answer that is repeated is the same answer, until a consumer has the messages.
SELECT release.publish('repeat', 1, 8);
SELECT length(release.receive('repeat')), release.batch('repeat') AS first \gset
SELECT stacksaga.release_batch(:first, '10 min', 'once');
SELECT release.later(60);
SELECT stacksaga.release_batch(:first, '1 hour', 'again');
SELECT "until", reason FROM release.seen('repeat');
SELECT release.later(541);
SELECT stacksaga.release_batch(:first);
SELECT count(*) FROM stacksaga.receive_messages('repeat', 'd');
\set VERBOSITY sqlstate
SELECT stacksaga.release_batch(:first);
SELECT stacksaga.ack_messages(release.batch('repeat'));
SELECT stacksaga.release_batch(:first);
SELECT stacksaga.release_batch(release.batch('repeat'));
\set VERBOSITY default
-- It is remembered as long as no consumer has them, whatever the retention of batches.
SELECT release.publish('repeat', 9, 9);
SELECT release.receive('repeat'), release.batch('repeat') AS first \gset
SELECT stacksaga.release_batch(:first, '1 hour');
SELECT release.later(400 * 86400);
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT stacksaga.release_batch(:first);
-- What was not read for so long was copied out meanwhile, with its attempt.
SELECT release.receive('repeat'), stacksaga.ack_messages(release.batch('repeat'));

-- What failed in it stays failed, and the later messages of its key wait for it. Retries keep their attempt.
SELECT release.publish('keyed', 1, 3, 'k'), release.publish('keyed', 4, 5, 'l');
SELECT release.receive('keyed');
SELECT stacksaga.fail_message(release.batch('keyed'), release.id_of('keyed', 1), 'busy', retry_after => '20 min');
SELECT stacksaga.release_batch(release.batch('keyed'), '10 min');
SELECT * FROM release.seen('keyed');
SELECT release.receive('keyed', 'd') AS nothing;
SELECT release.later(601);
SELECT release.receive('keyed', 'd');
SELECT stacksaga.ack_messages(release.batch('keyed')), release.later(600);
SELECT release.receive('keyed', 'd');
SELECT retries FROM release.seen('keyed');
SELECT stacksaga.release_batch(release.batch('keyed'));
SELECT * FROM release.seen('keyed');
SELECT release.receive('keyed', 'e');
-- A message behind one that fails again is held, and stays so when the batch is given back.
SELECT stacksaga.ack_messages(release.batch('keyed'));
SELECT release.receive('keyed', 'e');
SELECT stacksaga.fail_message(release.batch('keyed'), release.id_of('keyed', 2), 'busy', retry_after => '0');
SELECT stacksaga.release_batch(release.batch('keyed'));
SELECT retries FROM release.seen('keyed');
SELECT release.receive('keyed', 'e');
SELECT stacksaga.ack_messages(release.batch('keyed'));
SELECT release.receive('keyed', 'e');
SELECT stacksaga.ack_messages(release.batch('keyed'));
SELECT release.receive('keyed') AS nothing;

-- Dead in it, redriven while nobody gets the partition.
SELECT release.publish('dead', 1, 3, 'k');
SELECT release.receive('dead');
SELECT stacksaga.fail_message(release.batch('dead'), release.id_of('dead', 1), 'no', 'non_retryable');
SELECT stacksaga.release_batch(release.batch('dead'), '10 min');
SELECT * FROM release.seen('dead');
SELECT stacksaga.redrive_message('dead', release.id_of('dead', 1), 'the broker is back');
SELECT release.receive('dead') AS nothing;
SELECT release.later(601);
SELECT release.receive('dead');
SELECT stacksaga.fail_message(release.batch('dead'), release.id_of('dead', 1), 'no', 'non_retryable');
SELECT stacksaga.release_batch(release.batch('dead'));
SELECT stacksaga.discard_message('dead', release.id_of('dead', 1), 'by order');
SELECT release.receive('dead');
SELECT stacksaga.ack_messages(release.batch('dead'));

-- The lease ran out: as long as no consumer has the messages the batch is given back, and is no loss.
SELECT release.publish('lost', 1, 8, 'k');
SELECT release.receive('lost'), release.later(31);
SELECT stacksaga.release_batch(release.batch('lost'));
SELECT * FROM release.seen('lost');
SELECT release.receive('lost'), release.later(31);
-- Now it is lost: four come. What is given back neither halves nor doubles.
SELECT release.receive('lost', 'd');
SELECT stacksaga.release_batch(release.batch('lost'));
SELECT release.receive('lost', 'd');
\set VERBOSITY sqlstate
SELECT stacksaga.release_batch(release.batch('lost') - 1);
SELECT lost FROM release.seen('lost');
SELECT stacksaga.release_batch(release.batch('lost'));
SELECT release.receive('lost', 'd');
SELECT stacksaga.ack_messages(release.batch('lost'));
SELECT release.receive('lost', 'd'), stacksaga.ack_messages(release.batch('lost'));
-- A batch whose messages others have: as ack_messages() has it.
SELECT release.publish('lost', 9, 9, 'k');
SELECT release.receive('lost'), release.batch('lost') AS first, release.later(31) \gset
SELECT release.receive('lost', 'd');
SELECT stacksaga.release_batch(:first);

-- A message that is to come alone stays so, and no other consumer waits for it while nobody gets it.
SELECT count(stacksaga.publish('lone', jsonb_build_object('n', n), message_id => (
           SELECT id FROM (SELECT md5('lone' || i)::uuid AS id FROM generate_series(1, 1000) AS i) AS m
            WHERE stacksaga.slot(stacksaga.token_uuid(id), 2) = n - 1 LIMIT 1))) FROM generate_series(1, 2) AS n;
SELECT release.receive('lone', 'c', 1) IS NOT NULL AND release.receive('lone', 'c', 1) IS NOT NULL AS has_both, release.later(31);
SELECT release.receive('lone', 'c', 1) AS marks;
SELECT release.receive('lone', 'c', 1) IN ('1:1', '2:1') AS one, release.batch('lone') AS lone \gset
SELECT release.receive('lone', 'd', 1) IN ('1:1', '2:1') AS the_other;
SELECT stacksaga.release_batch(:lone, '10 min');
SELECT stacksaga.ack_messages(release.batch('lone'));
SELECT count(stacksaga.publish('lone', jsonb_build_object('n', i))) FROM generate_series(3, 20) AS i;
SELECT length(release.receive('lone', 'd', 1)) > 0 AS something, length(release.receive('lone', 'e', 1)) AS has_it;
SELECT release.later(601), stacksaga.ack_messages(release.batch('lone'));
SELECT release.receive('lone', 'd') IN ('1:1', '2:1') AS alone;
SELECT count(*) FROM stacksaga.message_retries WHERE subscription = 'lone';

-- The subscription is dropped, altered or succeeded while nobody gets its partitions.
SELECT release.publish('given', 1, 4);
SELECT length(release.receive('given'));
\set VERBOSITY terse
SELECT stacksaga.drop_subscription('given', true);
\set VERBOSITY sqlstate
SELECT stacksaga.release_batch(release.batch('given'), '1 hour', 'soon');
SELECT stacksaga.alter_subscription('given', stop_on_first_failure => false);
SELECT "until", reason FROM release.seen('given');
SELECT release.receive('given') AS nothing;
SELECT stacksaga.create_subscription('next', 'given', successor_of => 'given');
SELECT length(release.receive('next')), stacksaga.ack_messages(release.batch('next'));
SELECT release.batch('given') AS first, stacksaga.drop_subscription('given', true) IS NULL AS dropped \gset
SELECT stacksaga.release_batch(:first);
-- A handler that is added waits, too; what it has handled ends it.
CREATE TABLE release.handled (n int);
CREATE FUNCTION release.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO release.handled VALUES ((m.payload -> 'n')::int)
$$;
SELECT release.publish('handler', 1, 4);
SELECT length(release.receive('handler')), stacksaga.release_batch(release.batch('handler'), '1 hour', 'soon');
SELECT stacksaga.alter_subscription('handler', handler => 'release.handle(stacksaga.message)');
-- What status() says of each subscription.
SELECT count(v.released_until) > 0 AS are_released, count(v.release_reason) > 0 AS have_reasons, count(*) FILTER (
           WHERE ((s ->> 'released_until')::timestamptz, s ->> 'release_reason')
                 IS DISTINCT FROM (v.released_until, v.release_reason)) AS differ
  FROM jsonb_array_elements(stacksaga.status() -> 'subscriptions') AS s
  JOIN stacksaga.subscriptions v ON v.subscription = s ->> 'subscription' AND v.cluster = s ->> 'cluster';
SELECT stacksaga.run_pending(10000) IS NOT NULL AS ran, release.later(3601);
SELECT count(*) FROM release.handled;
SELECT stacksaga.run_pending(10000) IS NOT NULL AS ran;
SELECT array_agg(n ORDER BY n) FROM release.handled;
SELECT "until", reason FROM release.seen('handler');

-- A clock that was ahead: no setting explains a pause of more than an hour.
SELECT release.publish('log', 1, 2, 'k');
SELECT release.receive('log'), stacksaga.release_batch(release.batch('log'), '1 hour');
SELECT release.later(-86400);
SELECT count(*) FROM stacksaga.receive_messages('log', 'c');
SELECT DISTINCT kind, regexp_replace(object, '\d+', 'N') AS object, becomes IS NOT NULL AS is_reset
  FROM stacksaga.reset_instants('the clock was ahead', false) WHERE object LIKE '%"log"';
SELECT release.receive('log'), stacksaga.ack_messages(release.batch('log'));

SET stacksaga.clock_offset = '500 days';
SELECT stacksaga.drop_subscription(name, true) FROM unnest('{plain,keyed,lost,lone,dead,next,repeat,log,handler}'::text[]) AS name;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA release CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
