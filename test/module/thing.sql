-- A table as the extension has them, and functions that access it through extension/pg/table/table.hpp.

CREATE TABLE stacksaga.thing (
    id        bigint NOT NULL,
    token     stacksaga.ring_token NOT NULL,
    purpose   stacksaga.work_purpose NOT NULL,
    direction stacksaga.step_direction NOT NULL,
    due_at    timestamptz NOT NULL,
    lease     bigint,
    verifying boolean NOT NULL,
    queue     text COLLATE "C",
    note      text,
    payload   jsonb,
    PRIMARY KEY (id, purpose, direction, token)
) WITH (fillfactor = 60);
CREATE INDEX thing_for_workers ON stacksaga.thing (token, due_at)
    WHERE queue IS NULL OR verifying OR lease IS NOT NULL;
CREATE INDEX thing_for_services ON stacksaga.thing (queue, due_at)
    WHERE queue IS NOT NULL AND NOT verifying;
CREATE UNIQUE INDEX thing_note ON stacksaga.thing (note) WHERE note IS NOT NULL;

CREATE SCHEMA access;
CREATE FUNCTION access.obstacle() RETURNS text
    LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_obstacle';
CREATE FUNCTION access.batch(statement text) RETURNS void
    LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_batch';
CREATE FUNCTION access.find(index integer, key stacksaga.thing, key_columns integer,
                            after timestamptz, upto timestamptz, inclusive boolean,
                            max_rows integer, lock text, skip boolean)
    RETURNS SETOF stacksaga.thing LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_find';
CREATE FUNCTION access.insert(things stacksaga.thing[]) RETURNS void
    LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_insert';
CREATE FUNCTION access.insert_visible(thing stacksaga.thing) RETURNS boolean
    LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_insert_visible';
CREATE FUNCTION access.insert_if_absent(thing stacksaga.thing, known_absent boolean DEFAULT false)
    RETURNS boolean
    LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_insert_if_absent';
CREATE FUNCTION access.update(key stacksaga.thing, changes stacksaga.thing, columns integer[],
                              lock text, meanwhile text)
    RETURNS boolean LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_update';
CREATE FUNCTION access.remove(key stacksaga.thing, lock text, meanwhile text) RETURNS boolean
    LANGUAGE c VOLATILE AS 'stacksaga_testing', 'stacksaga_thing_remove';

-- A thing; the time is a number of seconds.
CREATE FUNCTION thing(id bigint, due integer DEFAULT 0, queue text DEFAULT NULL,
                      note text DEFAULT NULL, payload jsonb DEFAULT NULL,
                      lease bigint DEFAULT NULL, verifying boolean DEFAULT false,
                      direction text DEFAULT 'act')
RETURNS stacksaga.thing LANGUAGE sql AS $$
    SELECT ROW(id, id % 3, 'step', direction, to_timestamp(due), lease, verifying, queue, note,
               payload)::stacksaga.thing
$$;
-- Rows by the index given: 0 the primary key, 1 for workers, 2 for services, 3 the note.
CREATE FUNCTION found(index integer, key stacksaga.thing, key_columns integer,
                      after integer DEFAULT NULL, upto integer DEFAULT NULL,
                      inclusive boolean DEFAULT true, max_rows integer DEFAULT 0,
                      lock text DEFAULT 'none', skip boolean DEFAULT false)
RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(concat_ws(' ', f.id, f.direction, extract(epoch FROM f.due_at)::int, f.queue,
                                f.note, f.lease, f.payload), ', ')
      FROM access.find(index, key, key_columns, to_timestamp(after), to_timestamp(upto), inclusive,
                       max_rows, lock, skip) AS f
$$;
-- The columns of a thing that are changed: the numbers of due_at, lease, verifying, queue, note, payload
-- are 5 to 10.
CREATE FUNCTION changed(key stacksaga.thing, changes stacksaga.thing, columns integer[],
                        lock text DEFAULT 'no_key_update', meanwhile text DEFAULT NULL)
RETURNS boolean LANGUAGE sql AS 'SELECT access.update(key, changes, columns, lock, meanwhile)';
CREATE FUNCTION removed(key stacksaga.thing, lock text DEFAULT 'update',
                        meanwhile text DEFAULT NULL)
RETURNS boolean LANGUAGE sql AS 'SELECT access.remove(key, lock, meanwhile)';
-- What a statement returns, or the SQLSTATE that it raises.
CREATE FUNCTION outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE statement INTO result;
    RETURN coalesce(result, 'null');
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ': ' || SQLERRM;
END
$$;
