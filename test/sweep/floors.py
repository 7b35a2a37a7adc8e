"""What is done by hand under the same load as a call, and as little: on few processors that is slower with more
clients, too, and a call may lose as much more as the limit says."""

import dataclasses
import pathlib

import measure
from load import WARM, pgbench

HAND_SAGA = (pathlib.Path(measure.__file__).parent / 'hand_saga.sql').read_text()


@dataclasses.dataclass(frozen=True)
class Floor:
    """A script of pgbench, its tables, and what makes them."""
    script: str
    tables: tuple
    made_by: str
    is_emptied: bool = True     # before each round

    def rate(self, db, clients, seconds, seed):
        """How often a second it is done in one round."""
        if not db.sql('SELECT to_regclass(%s) IS NOT NULL', self.tables[-1]):
            db.sql(self.made_by)
        if self.is_emptied:
            db.sql(f'TRUNCATE {", ".join(self.tables)}')
        return pgbench(db, self.script, clients, ['-T', str(WARM + seconds)], seed)[1]


WRITE = Floor(
    "INSERT INTO floor (payload) VALUES ('{}');",
    ('floor',), 'CREATE TABLE floor (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), payload jsonb)')

READ = Floor(
    "\\set n random(1, 1000)\nSELECT payload FROM floor_row WHERE n = :n;", ('floor_row',),
    """CREATE TABLE floor_row AS SELECT n, '{}'::jsonb AS payload FROM generate_series(1, 1000) AS n;
       CREATE UNIQUE INDEX floor_row_n ON floor_row (n)""", is_emptied=False)

# A row goes into a queue, and the oldest one out, as by a claim. It loses most: sessions that were interrupted hold what
# is oldest, and what they may still see has to be passed over.
TAKE = Floor(
    """INSERT INTO floor_queue DEFAULT VALUES;
DELETE FROM floor_queue WHERE id = (SELECT id FROM floor_queue ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED);""",
    ('floor_queue',),
    """CREATE TABLE floor_queue (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
           due_at timestamptz NOT NULL DEFAULT clock_timestamp());
       CREATE INDEX floor_queue_due_at ON floor_queue (due_at)""")

# A saga and its step, as they are started by hand, and as they are answered: several rows, tables and indexes, as in a
# call. With more clients than processors that loses more than one row does.
START = Floor(
    """WITH new AS (
    INSERT INTO hand.saga (saga, input, input_hash) VALUES ('order', '{"amount": 20}', sha256('{"amount": 20}'))
    RETURNING saga_id
), work AS (
    INSERT INTO hand.work (saga_id, step, queue) SELECT saga_id, 1, 'payments' FROM new
)
SELECT saga_id FROM new;""", ('hand.saga', 'hand.work'), HAND_SAGA)

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
    ('hand.saga', 'hand.work', 'hand.done'), HAND_SAGA)
