-- Every function answers nasty arguments with an SQLSTATE of stacksaga's, internal functions too: one
-- argument at a time is nasty, the others are plain, and all are NULL once. Nothing that they do stays.

\set SHOW_CONTEXT never
CREATE SCHEMA nasty;
CREATE TABLE nasty.value (type text, plain boolean, value text);
INSERT INTO nasty.value
SELECT type, n = 1, value
  FROM (VALUES
        ('text', '{default,"",NULL,*,"{","a%sb"}'::text[]),
        ('name', '{postgres,"",NULL}'),
        ('integer', '{1,0,-1,2147483647,-2147483648,NULL}'),
        ('smallint', '{1,0,-1,32767,-32768,NULL}'),
        ('bigint', '{1,0,-1,9223372036854775807,-9223372036854775808,NULL}'),
        ('oid', '{1,0,4294967295,NULL}'),
        ('double precision', '{1,0,-1,NaN,Infinity,-Infinity,1e308,NULL}'),
        ('boolean', '{true,false,NULL}'),
        ('interval', '{1 second,0,-1 day,178000000 years,-178000000 years,NULL}'),
        ('timestamp with time zone',
         '{2026-01-01,infinity,-infinity,4713-01-01 BC,294276-12-30,NULL}'),
        ('uuid', '{00000000-0000-0000-0000-000000000000,NULL}'),
        ('bytea', '{\\x00,"",NULL}'),
        ('jsonb', '{"{}",null,[],"\"\"",1e999,"[null]",NULL}'),
        ('regtype', '{jsonb,-,NULL}'),
        ('text[]', '{"{a}","{}","{NULL}","{\"\"}","{{a},{b}}",NULL}'),
        ('integer[]', '{"{1}","{}","{NULL}","{-1,0,2147483647}","{{1},{2}}",NULL}'),
        ('bigint[]', '{"{1}","{}","{NULL}","{-9223372036854775808}","{{1},{2}}",NULL}'),
        ('smallint[]', '{"{1}","{}","{NULL}","{-1}",NULL}'),
        ('uuid[]', '{"{00000000-0000-0000-0000-000000000000}","{}","{NULL}",NULL}'),
        ('jsonb[]', '{"{1}","{}","{NULL}","{{1},{2}}",NULL}'),
        ('interval[]', '{"{1 second}","{}","{NULL}","{-1 day,178000000 years}",NULL}'),
        ('stacksaga.ring_token', '{1,-9223372036854775808,NULL}'),
        ('stacksaga.retry_policy', '{"(1,00:00:01,2,00:00:01,0,,)","(,,,,,,)","(-1,-1 day,NaN,infinity,-1,,)",NULL}'),
        ('stacksaga.step_definition[]', '{"{}","{NULL}","{\"(,,,,,,,,,,,,,,,,,,,,,)\"}",NULL}')
       ) AS v(type, choices), unnest(choices) WITH ORDINALITY AS c(value, n);
-- The type infinity of an interval is PostgreSQL 17's; what a type's input refuses never gets there.
DELETE FROM nasty.value WHERE type = 'stacksaga.retry_policy' AND value LIKE '%infinity%';
INSERT INTO nasty.value VALUES ('stacksaga.retry_policy', false, '(-1,-1 day,NaN,178000000 years,-1,,)');
INSERT INTO nasty.value VALUES ('text', false, repeat('x', 100000)), ('text', false, E'\x1b[31m'),
    ('text[]', false, array_fill('a'::text, '{20000}')::text),
    ('jsonb[]', false, array_fill('1'::text, '{20000}')::text),
    ('uuid[]', false, array_fill('00000000-0000-0000-0000-000000000000'::text, '{20000}')::text);

CREATE FUNCTION nasty.outcome(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT count(*) FROM ' || call;
    RAISE EXCEPTION USING ERRCODE = 'SG000'; -- rolls back what it did
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || CASE WHEN SQLSTATE LIKE 'S_%' THEN '' ELSE ': ' || left(SQLERRM, 200) END;
END
$$;
-- Not what a type, an operator or an aggregate is made of, nor what waits, starts processes or reads the
-- settings of all.
CREATE VIEW nasty.callable AS
SELECT p.oid, p.pronamespace::regnamespace AS nspname, p.proname, p.pronargs,
       array_agg(format_type(a.type, NULL) ORDER BY a.n) AS types
  FROM pg_proc p CROSS JOIN LATERAL unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(type, n)
 WHERE p.pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace) AND p.prokind = 'f'
   AND p.proname NOT LIKE 'ring\_token\_%' AND p.proname NOT IN ('await_saga', 'worker_ensure')
   AND p.prorettype <> 'trigger'::regtype
   AND NOT 'cstring'::regtype = ANY (p.proargtypes::oid[])
   AND NOT 'internal'::regtype = ANY (p.proargtypes::oid[])
 GROUP BY p.oid;
CREATE VIEW nasty.call AS
SELECT c.proname, format('%I.%I(%s)', c.nspname, c.proname, string_agg(format('%L::%s',
           CASE WHEN t.n = nasty.n THEN nasty.value ELSE plain.value END, t.type), ', ' ORDER BY t.n)) AS call
  FROM nasty.callable c
 CROSS JOIN LATERAL (SELECT n, v.value, row_number() OVER (PARTITION BY n) AS choice
                       FROM unnest(c.types) WITH ORDINALITY AS u(type, n)
                       JOIN nasty.value v ON v.type = u.type) AS nasty
 CROSS JOIN LATERAL unnest(c.types) WITH ORDINALITY AS t(type, n)
  -- Two billion ranges are an answer, not a refusal.
  JOIN pg_proc p ON p.oid = c.oid AND NOT (p.proname LIKE 'split%' AND nasty.value = '2147483647')
  LEFT JOIN nasty.value plain ON plain.type = t.type AND plain.plain
 GROUP BY c.oid, c.nspname, c.proname, nasty.n, nasty.choice
UNION ALL
SELECT proname, format('%I.%I(%s)', nspname, proname,
           (SELECT string_agg(format('NULL::%s', t), ', ') FROM unnest(types) AS t))
  FROM nasty.callable;
SELECT count(*) > 1000 AS enough FROM nasty.call;
SET client_min_messages = error;
SELECT DISTINCT proname, outcome
  FROM (SELECT proname, nasty.outcome(call) AS outcome FROM nasty.call OFFSET 0) AS o
 WHERE outcome !~ '^S[GR]|^0A000: argument "skip_unless"' ORDER BY 1, 2;

-- A call takes so many elements and no more.
SELECT count(*) FROM stacksaga.start_sagas('nasty', array_fill('{}'::jsonb, '{10001}'));
SELECT count(*) FROM stacksaga.cancel_sagas(array_fill(gen_random_uuid(), '{10001}'), 'why');
SELECT count(*) FROM stacksaga.complete_steps(array_fill(gen_random_uuid(), '{10001}'),
    array_fill('a'::text, '{10001}'), array_fill(1::bigint, '{10001}'));
SELECT count(*) FROM stacksaga.publish_batch('nasty', array_fill('{}'::jsonb, '{100001}'));

-- Names are printed as they are, so that they hold nothing that a terminal obeys; keys and reasons may.
SELECT stacksaga.register_node(E'a\x1b[31m');
SELECT stacksaga.register_node(E'a\u009b31m');
SELECT stacksaga.create_ring(E'a\n', 'b');
SELECT stacksaga.claim_steps(E'q\x7f', 'w');
SELECT stacksaga.claim_steps('q', E'w\r');
SELECT stacksaga.publish_window('default', 'default', now(), '{a}', '{0}', '{0}', E'p\b');
SELECT stacksaga.publish(E't\t', '{}');
SELECT stacksaga.create_subscription(E's\n', 't');
SELECT * FROM stacksaga.receive_messages('s', E'c\n');
SELECT stacksaga.define_saga(E's\n', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
SELECT stacksaga.define_saga('s', ARRAY[stacksaga.queue_step(E'a\n', 'q', compensable => true)]);
SELECT stacksaga.define_saga('s', ARRAY[stacksaga.queue_step('a', E'q\n', compensable => true)]);
SELECT stacksaga.define_saga('s', ARRAY[stacksaga.message_step('a', E't\n')]);
BEGIN;
SELECT stacksaga.register_node('Knoten–1 é') > 0 AS printable;
SELECT stacksaga.accept_message('consumer', E'id\n1') AS key;
ROLLBACK;

-- No node takes the name of a background worker.
SELECT stacksaga.register_node('worker-1');
SELECT stacksaga.register_node('worker-12@north/one');
BEGIN;
SELECT stacksaga.register_node(n) > 0 AS registered FROM unnest('{worker-,worker-a,worker-1a,worker}'::text[]) AS n;
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA nasty CASCADE;
