-- Characters that show nothing or turn the writing around are escaped where keys and names are printed, and a database
-- of encoding SQL_ASCII takes no name or key that is not UTF-8.

\set SHOW_CONTEXT never
\set VERBOSITY default
SET TimeZone = 'UTC';
SELECT stacksaga.define_saga(E'inv\u202Eisible', ARRAY[stacksaga.queue_step(E's\u200Btep', E'inv\u2066q', compensable => false)]);
SELECT (stacksaga.start_saga(E'inv\u202Eisible', key => E'order\u2028 7\U000E0041')).saga_id AS saga \gset
SELECT regexp_replace(line, '\d{4}-\d\d-\d\d [0-9:.]+', '(instant)') FROM stacksaga.saga_timeline(:'saga') AS line;
SELECT label FROM unnest(string_to_array(stacksaga.saga_diagram(E'inv\u202Eisible'), E'\n')) AS label WHERE label ~ '"';
SELECT stacksaga.pause_queue(E'inv\u2066q', 'no');
SELECT stacksaga.pause_queue(E'inv\u2066q', 'twice');
SELECT stacksaga.start_saga(E'not\u200B there');
SET stacksaga.clock_offset = '2 minutes';
SELECT regexp_replace(detail, '\d\d:\d\d:\d\d', '(a while)') FROM stacksaga.doctor() WHERE detail LIKE '%inv%' AND check_name = 'queues';
RESET stacksaga.clock_offset;
SELECT stacksaga.resume_queue(E'inv\u2066q', 'again');
-- What shows stays as it is, also what is not ASCII; and data stay data.
SELECT key = E'order\u2028 7\U000E0041' AS same FROM stacksaga.sagas WHERE saga_id = :'saga';
SELECT stacksaga_internal.printable(E'caf\u00E9 \u65E5\u672C \U0001F600'), stacksaga_internal.printable(E'\u00AD\u200D\uFEFFx');
SELECT stacksaga.cancel_saga(:'saga', 'seen');

\set home :DBNAME
\set VERBOSITY terse
SET client_min_messages = warning;
DROP DATABASE IF EXISTS invisible_ascii;
CREATE DATABASE invisible_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
\c invisible_ascii
SET client_min_messages = warning;
CREATE EXTENSION stacksaga;
CREATE FUNCTION wrong() RETURNS text LANGUAGE sql AS $$ SELECT convert_from('\x66fc72', 'SQL_ASCII') $$;
CREATE FUNCTION right_() RETURNS text LANGUAGE sql AS $$ SELECT convert_from('\x66c3bc72', 'SQL_ASCII') $$;
-- Every name and key.
SELECT stacksaga.define_saga(wrong(), ARRAY[stacksaga.queue_step('s', 'q', compensable => false)]);
SELECT stacksaga.define_saga('ascii', ARRAY[stacksaga.queue_step(wrong(), 'q', compensable => false)]);
SELECT stacksaga.define_saga('ascii', ARRAY[stacksaga.queue_step('s', wrong(), compensable => false)]);
SELECT stacksaga.define_saga('ascii', ARRAY[stacksaga.message_step('s', wrong(), effect => 'guarded')]);
SELECT stacksaga.define_saga('ascii', ARRAY[stacksaga.signal_step('s', wrong())]);
SELECT stacksaga.define_saga(right_(), ARRAY[stacksaga.queue_step(right_(), right_(), compensable => false)]);
SELECT stacksaga.start_saga(right_(), key => wrong());
SELECT stacksaga.start_saga(right_(), group_key => wrong());
SELECT stacksaga.start_saga(right_(), attributes => jsonb_build_object(wrong(), 1));
SELECT stacksaga.start_saga(right_(), attributes => jsonb_build_object('city', wrong()));
SELECT count(*) FROM stacksaga.start_saga(right_(), key => right_(), attributes => jsonb_build_object('city', right_()));
SELECT stacksaga.claim_steps(right_(), wrong());
SELECT saga_id, step, lease FROM stacksaga.claim_steps(right_(), right_()) \gset
SELECT stacksaga.fail_step(:'saga_id', :'step', :lease, wrong(), 'retryable');
SELECT stacksaga.signal_saga(:'saga_id', wrong(), '1');
SELECT stacksaga.cancel_saga(:'saga_id', wrong());
SELECT stacksaga.set_queue(wrong(), 1);
SELECT stacksaga.publish(wrong(), '1');
SELECT stacksaga.publish('t', '1', key => wrong());
SELECT stacksaga.publish('t', '1', type => wrong());
SELECT stacksaga.publish_batch('t', ARRAY['1'::jsonb], keys => ARRAY[wrong()]);
SELECT stacksaga.create_subscription(wrong(), 't');
SELECT stacksaga.create_subscription('s', wrong());
SELECT stacksaga.receive_messages('s', wrong());
SELECT stacksaga.accept_message(wrong(), '1');
SELECT stacksaga.accept_message('c', wrong());
SELECT stacksaga.idempotency_begin(wrong(), 'k', '{}');
SELECT stacksaga.idempotency_begin('s', wrong(), '{}');
SELECT stacksaga.create_schedule(wrong(), '* * * * *', right_());
SELECT stacksaga.create_ring(wrong(), 'c');
SELECT stacksaga.register_node(wrong(), 'default', 'default');
SELECT stacksaga.read_value('s', wrong());
SELECT stacksaga.compare_and_set(wrong(), 'k', 0, '1');
SELECT stacksaga.saga_id_of(right_(), wrong());
SELECT * FROM stacksaga.find_sagas(key_prefix => wrong());
-- A program that reads UTF-8 can read all that is there.
SET client_encoding = 'UTF8';
SELECT saga, key, attributes FROM stacksaga.sagas;
\c :home
SET client_min_messages = warning;
DROP DATABASE invisible_ascii;
