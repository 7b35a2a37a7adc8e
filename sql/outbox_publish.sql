-- How messages get into the log: rows, indexes and large values, and that no name of the caller is
-- found on the way, since publish() runs as the owner of the extension without a path of its own.

\set SHOW_CONTEXT never
CREATE SCHEMA publishing;
TRUNCATE stacksaga.outbox_message;

-- More rows than one insert takes, in the order of their publishing.
SELECT count(*) FROM stacksaga.publish_batch('many',
    (SELECT array_agg(jsonb_build_object('n', n) ORDER BY n) FROM generate_series(1, 1000) n),
    (SELECT array_agg('k' || n % 50 ORDER BY n) FROM generate_series(1, 1000) n),
    (SELECT array_agg(CASE WHEN n % 2 = 0 THEN 'even' END ORDER BY n) FROM generate_series(1, 1000) n));
SELECT count(*), count(DISTINCT message_id), count(DISTINCT stripe) > 1 AS spread, count(type) AS typed,
       array_agg((payload -> 'n')::int ORDER BY number)
           = (SELECT array_agg(n) FROM generate_series(1, 1000) n) AS in_order,
       bool_and(key = 'k' || (payload -> 'n')::int % 50) AS keyed
  FROM stacksaga.outbox_message;
-- A transaction that is rolled back publishes nothing, and neither does a subtransaction.
BEGIN;
SELECT stacksaga.publish('many', '{"n": 1001}') IS NOT NULL;
SAVEPOINT half;
SELECT count(*) FROM stacksaga.publish_batch('many', ARRAY['1', '2']::jsonb[]);
ROLLBACK TO half;
COMMIT;
SELECT count(*) FROM stacksaga.outbox_message;
-- A statement sees what the one before it has published.
BEGIN;
SELECT stacksaga.publish('many', '{"n": 1002}') IS NOT NULL;
SELECT count(*) FROM stacksaga.outbox_message;
ROLLBACK;

-- Payloads that do not fit into a page, on their own and among small ones.
CREATE TABLE publishing.large AS
    SELECT g, to_jsonb(string_agg(md5(g::text || n), '')) AS payload
      FROM generate_series(1, 3) g, generate_series(1, 1000) n GROUP BY g;
SELECT stacksaga.publish('large', payload) IS NOT NULL FROM publishing.large;
SELECT count(*) FROM stacksaga.publish_batch('large',
    (SELECT array_agg(payload ORDER BY g) || '{"small": true}'::jsonb FROM publishing.large));
SELECT count(*), count(l) AS as_they_were, count(*) FILTER (WHERE m.payload = '{"small": true}') AS small
  FROM stacksaga.outbox_message m LEFT JOIN publishing.large l USING (payload)
 WHERE topic = 'large';

-- The indexes have the rows that the table has.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) AS by_number FROM generate_series(0, 15) p, LATERAL (
    SELECT FROM stacksaga.outbox_message m WHERE m.stripe = p::smallint AND number > 0) m;
SELECT count(*) AS by_transaction FROM (SELECT DISTINCT transaction_id FROM stacksaga.outbox_message) t,
    LATERAL (SELECT FROM stacksaga.outbox_message m WHERE m.transaction_id = t.transaction_id) m;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- A ring that is not the default one is looked up by a query, and an index with an expression calls
-- a function; neither finds what the caller has put before PostgreSQL's own.
CREATE FUNCTION publishing.trap(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
CREATE FUNCTION publishing.trap(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
CREATE FUNCTION publishing.shout(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN upper($1); END';
BEGIN;
SELECT stacksaga.create_ring('publishing', 'r') > 0 AS created;
CREATE INDEX shouted ON stacksaga.outbox_message (publishing.shout(key));
CREATE OPERATOR publishing.= (FUNCTION = publishing.trap, LEFTARG = text, RIGHTARG = text);
ALTER FUNCTION publishing.trap(text) RENAME TO upper;
SET LOCAL search_path = publishing, pg_catalog;
SET LOCAL stacksaga.region = 'publishing';
SET LOCAL stacksaga.cluster = 'r';
SELECT stacksaga.publish('ring', '1', 'k') IS NOT NULL;
SELECT count(*) FROM stacksaga.publish_batch('ring', ARRAY['2']::jsonb[], ARRAY['k']);
SET LOCAL search_path = pg_catalog;
SET LOCAL enable_seqscan = off;
SELECT payload, ring_id > 1 AS other_ring FROM stacksaga.outbox_message
 WHERE publishing.shout(key) = 'K' ORDER BY number;
ROLLBACK;

DROP SCHEMA publishing CASCADE;
TRUNCATE stacksaga.outbox_message;
