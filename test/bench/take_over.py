"""Taking over a slot that eight sessions work in without a pause, and one that a long handler holds."""

import threading
import time

import psycopg

import measure

HOLDERS = 8
HELD = 0.05        # seconds that each holds the slot, over and over
LONG = 2           # seconds of a long handler
NEXT_TRY = 1       # seconds after which a worker tries again (extension/src/worker/worker.cpp)
SLOT = 0

SET_UP = """
    CREATE FUNCTION lock_slots(ring_id integer, incarnation bigint, slots integer[], epochs bigint[] DEFAULT NULL)
        RETURNS boolean[] LANGUAGE c AS 'stacksaga_testing', 'stacksaga_lock_slots';
    SELECT stacksaga.alter_ring('default', 'default', 'window_length', '1 day');
"""
RING = 1
OWNER = 'SELECT owner FROM stacksaga.slot WHERE ring_id = %s AND slot = %s'


class Holders:
    """Sessions that work in the slot as the node does that owns it: under the fence, again and again."""

    def __init__(self, database, ring, count, held):
        self.ring = ring
        self.held = held
        self.name = database.name
        self.incarnation = 0
        self.done = 0
        self.ends = False
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        for thread in self.threads:
            thread.join()

    def work(self, place):
        with psycopg.connect(dbname=self.name, autocommit=True) as db:
            time.sleep(self.held * place / len(self.threads)) # not all at the same moment
            while not self.ends:
                with db.transaction():
                    got = db.execute('SELECT (lock_slots(%s, %s, %s))[1]',
                                     (self.ring, self.incarnation, [SLOT])).fetchone()[0]
                    if got:
                        time.sleep(self.held)
                if got:
                    with self.lock:
                        self.done += 1
                else:
                    time.sleep(0.001)


def register(db):
    """A new incarnation of the node, which is to own everything."""
    return db.sql("SELECT stacksaga.register_node('taker')")


def beat_until_owned(db, incarnation):
    while db.sql(OWNER, RING, SLOT) != incarnation:
        db.sql("SELECT state FROM stacksaga.heartbeat_node('taker', %s)", incarnation)


def take_overs(bench, db):
    """Seconds from the registration to ownership, for a number of take-overs."""
    seconds = []
    with Holders(db, RING, HOLDERS, HELD) as holders:
        holders.incarnation = current = register(db)
        db.sql('SELECT stacksaga.publish_window(%s, %s, date_bin(%s, clock_timestamp(), %s), %s, %s, %s, %s)',
               'default', 'default', '1 day', '2000-01-01Z', ['taker'], [-2**63], [2**63 - 1], 'bench')
        beat_until_owned(db, current)
        for _ in range(20 if bench.quick else 200):
            before = holders.done
            measure.wait_until(lambda: holders.done >= before + 2 * HOLDERS, 'they work in the slot')
            begun = time.monotonic()
            current = register(db)
            beat_until_owned(db, current)
            seconds.append(time.monotonic() - begun)
            holders.incarnation = current
    return seconds


def give(db, node):
    """Publishes the next window, which gives everything to a node, and returns when it is open."""
    start = db.sql("""
        SELECT date_bin('2 s', clock_timestamp(), '2000-01-01Z') + interval '2 s'""")
    db.must("""
        SELECT stacksaga.publish_window('bench', 'windows', %s, ARRAY[%s], ARRAY[%s::bigint],
                                        ARRAY[%s::bigint], 'bench') > 0
        """, start, node, -2**63, 2**63 - 1)
    measure.wait_until(lambda: db.sql('SELECT clock_timestamp() >= %s', start), 'the window opens')


def share_of_work(bench, db):
    """The work of others in the slot while a taker waits behind a long handler, in % of what it is else."""
    ring = db.sql("SELECT stacksaga.create_ring('bench', 'windows', '2 s', '1 s')")
    nodes = {name: db.sql("SELECT stacksaga.register_node(%s, 'bench', 'windows')", name) for name in 'ab'}
    beat = 'SELECT state FROM stacksaga.heartbeat_node(%s, %s)'
    shares = []

    def take(name):
        while db.sql(OWNER, ring, SLOT) != nodes[name]:
            db.sql(beat, name, nodes[name])

    give(db, 'a')
    take('a')
    with Holders(db, ring, 2, 0.005) as holders, \
            psycopg.connect(dbname=db.name, autocommit=True) as handler:
        owner, taker = 'a', 'b'
        for _ in range(2 if bench.quick else bench.rounds):
            holders.incarnation = nodes[owner]
            begun, before = time.monotonic(), holders.done
            time.sleep(LONG)
            alone = (holders.done - before) / (time.monotonic() - begun)
            with handler.transaction():
                handler.execute('SELECT lock_slots(%s, %s, %s)', (ring, nodes[owner], [SLOT]))
                give(db, taker)
                db.sql(beat, taker, nodes[taker]) # takes what nobody works in
                begun, before = time.monotonic(), holders.done
                while time.monotonic() < begun + LONG:
                    db.sql(beat, taker, nodes[taker])
                    time.sleep(NEXT_TRY)
                behind = (holders.done - before) / (time.monotonic() - begun)
                db.must(f'SELECT ({OWNER}) = %s', ring, SLOT, nodes[owner])
            take(taker)
            owner, taker = taker, owner
            shares.append(100 * behind / alone)
    return shares


def run(bench):
    db = bench.database()
    db.sql(SET_UP)
    seconds = take_overs(bench, db)
    shares = share_of_work(bench, db)
    bench.extent = f'{len(seconds)} take-overs from {HOLDERS} sessions that work {HELD * 1000:g} ms at a time'
    what = f'a slot in which {HOLDERS} sessions work'
    bench.figure(f'{what}: taken over after', [1000 * s for s in seconds], 'ms')
    bench.figure(f'{what}: after at most', [1000 * max(seconds)], 'ms', at_most=500)
    bench.figure(f'work of others in a slot while a taker waits behind a handler of {LONG} s', shares, '%')


if __name__ == '__main__':
    measure.main(run, measure.Figures)
