"""What is done by hand under the same load as a call, and as little: on few processors that is slower with more
clients, too, and a call may lose as much more as the limit says."""

import dataclasses
import pathlib

import measure
from load import WARM, pgbench

HAND_SAGA = (pathlib.Path(measure.__file__).parent / 'hand_saga.sql').read_text()


@dataclasses.dataclass(frozen=True)
class Floor:
    """A script of pgbench, a table of it, and what makes its tables."""
    script: str
    table: str
    made_by: str
    emptied: tuple = ()         # before each round
    is_of_rows: bool = False    # it has as many rows as the point
    needs_vacuum: bool = False  # under a held snapshot it is as slow with few clients as with many

    def rate(self, db, rows, clients, seconds, seed):
        """How often a second it is done in one round, with so many rows."""
        table, made_by, script = (text.replace('{rows}', str(rows)) for text in (self.table, self.made_by, self.script))
        if not db.sql('SELECT to_regclass(%s) IS NOT NULL', table):
            db.sql(made_by)
        if self.emptied:
            db.sql(f'TRUNCATE {", ".join(self.emptied)}')
        return pgbench(db, script, clients, ['-T', str(WARM + seconds)], seed)[1]


WRITE = Floor(
    "INSERT INTO floor (payload) VALUES ('{}');",
    'floor', 'CREATE TABLE floor (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), payload jsonb)', ('floor',))

READ = Floor(
    "\\set n random(1, 1000)\nSELECT payload FROM floor_row WHERE n = :n;", 'floor_row',
    """CREATE TABLE floor_row AS SELECT n, '{}'::jsonb AS payload FROM generate_series(1, 1000) AS n;
       CREATE UNIQUE INDEX floor_row_n ON floor_row (n)""")

# A key and its response are found among as many as the point has: the more there are, the fewer are in the processor's
# caches, and sessions that take turns leave fewer there.
READ_KEY = Floor(
    """\\set n random(1, {rows})
SELECT request_hash, response FROM floor_key_{rows} WHERE scope = 'charges' AND key = 'key-' || :n::int;""",
    'floor_key_{rows}', """CREATE TABLE floor_key_{rows} AS SELECT 'charges' AS scope, 'key-' || n AS key, sha256('20') AS request_hash,
           '{"status": 201}'::jsonb AS response FROM generate_series(1, {rows}) AS n;
       CREATE UNIQUE INDEX ON floor_key_{rows} (scope, key)""", is_of_rows=True)

# A row goes into a queue, and the oldest one out, as by a claim. It loses most: sessions that were interrupted hold what
# is oldest, and what they may still see has to be passed over.
TAKE = Floor(
    """INSERT INTO floor_queue DEFAULT VALUES;
DELETE FROM floor_queue WHERE id = (SELECT id FROM floor_queue ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED);""",
    'floor_queue',
    """CREATE TABLE floor_queue (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
           due_at timestamptz NOT NULL DEFAULT clock_timestamp());
       CREATE INDEX floor_queue_due_at ON floor_queue (due_at)""", ('floor_queue',), needs_vacuum=True)

# Ten messages are read in order, with a row that says who has them, and a row of a second transaction that says they
# are done.
BATCH = Floor(
    """\\set n random(1, 991)
INSERT INTO floor_batch (consumer, messages)
SELECT 'till-' || :client_id::int, count(*)
  FROM (SELECT payload FROM floor_message WHERE n >= :n ORDER BY n LIMIT 10) AS message RETURNING batch_id \\gset
INSERT INTO floor_done VALUES (:batch_id);""", 'floor_message',
    """CREATE TABLE floor_message AS
           SELECT n, 'key-' || n AS key, '{"amount": 20}'::jsonb AS payload FROM generate_series(1, 1000) AS n;
       CREATE UNIQUE INDEX floor_message_n ON floor_message (n);
       CREATE TABLE floor_batch (batch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
           consumer text NOT NULL, messages bigint NOT NULL);
       CREATE TABLE floor_done (batch_id bigint PRIMARY KEY)""", ('floor_batch', 'floor_done'))

# A saga and its step, as they are started by hand, and as they are answered: several rows, tables and indexes, as in a
# call. With more clients than processors that loses more than one row does.
START = Floor(
    """WITH new AS (
    INSERT INTO hand.saga (saga, input, input_hash) VALUES ('order', '{"amount": 20}', sha256('{"amount": 20}'))
    RETURNING saga_id
), work AS (
    INSERT INTO hand.work (saga_id, step, queue) SELECT saga_id, 1, 'payments' FROM new
)
SELECT saga_id FROM new;""", 'hand.work', HAND_SAGA, ('hand.saga', 'hand.work'))

ANSWER = Floor(
    START.script.removesuffix(';') + """ \\gset
WITH answered AS (
    UPDATE hand.saga SET status = 'completed', updated_at = clock_timestamp()
     WHERE saga_id = :saga_id::uuid AND status IN ('pending', 'running') RETURNING saga_id
), work AS (
    DELETE FROM hand.work AS w USING answered AS a WHERE w.saga_id = a.saga_id AND w.step = 1
    RETURNING w.saga_id, w.step
)
INSERT INTO hand.done (saga_id, step, output) SELECT saga_id, step, '{"receipt": 4711}' FROM work;""",
    'hand.done', HAND_SAGA, ('hand.saga', 'hand.work', 'hand.done'))
