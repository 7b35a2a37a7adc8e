-- Fills the table of idempotency keys faster than by calls: copies a key that is completed as key-FIRST
-- to key-LAST, each with the token that is its own, to be swept at different instants.
CREATE FUNCTION copy_key(scope text, key text, first bigint, last bigint) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
    columns text;
BEGIN
    SELECT string_agg(CASE attname
               WHEN 'key' THEN $$'key-' || n$$
               WHEN 'token' THEN $$stacksaga.token(c.scope || chr(31) || 'key-' || n)$$
               WHEN 'sweep_at' THEN $$c.sweep_at + n * interval '1 ms'$$
               ELSE 'c.' || quote_ident(attname) END, ', ' ORDER BY attnum) INTO columns
      FROM pg_attribute
     WHERE attrelid = 'stacksaga.idempotency_key'::regclass AND attnum > 0 AND NOT attisdropped;
    EXECUTE format($$
        INSERT INTO stacksaga.idempotency_key
        SELECT %s FROM stacksaga.idempotency_key AS c, generate_series($1, $2) AS n
         WHERE c.scope = $3 AND c.key = $4$$, columns) USING first, last, scope, key;
END $function$;
