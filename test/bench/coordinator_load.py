"""One master over many rings: how long it takes to publish a window for each, and its memory."""

import json
import pathlib
import re
import signal
import subprocess
import tempfile

import measure

DAEMON = pathlib.Path(__file__).parents[2] / 'build' / 'coordinator' / 'stacksaga-coordinator'
NODES = 50      # of a ring
LENGTH = 6      # of a window, and how long before it opens it is due, seconds
LEAD = 3

# Nodes do not beat here, and count as alive all the same.
SET_UP = f"""
    SELECT stacksaga.create_ring('load', 'ring-' || i, '{LENGTH} s', '{LEAD} s')
      FROM generate_series(1, %(rings)s) AS i;
    SELECT stacksaga.alter_ring('load', 'ring-' || i, s.setting, '1 day')
      FROM generate_series(1, %(rings)s) AS i, (VALUES ('dead_after'), ('suspect_after')) AS s(setting);
    CREATE TABLE member (ring integer, node text, incarnation bigint);
    INSERT INTO member
    SELECT i, n, stacksaga.register_node(n, 'load', 'ring-' || i)
      FROM generate_series(1, %(rings)s) AS i, generate_series(1, {NODES}) AS j,
           LATERAL (SELECT format('checkout-service-%%s-%%s', i, j)) AS name(n);
    ANALYZE;
"""

# What an open window gives it, every node takes; a ring at a time, since locks last to its end.
TAKE_OVER = """
    SELECT count(*) FROM member m, LATERAL stacksaga.heartbeat_node(m.node, m.incarnation)
     WHERE m.ring = %s
"""

# In each ring one node leaves and another joins.
CHANGE = """
    WITH gone AS (
        DELETE FROM member WHERE node IN (SELECT min(node) FROM member GROUP BY ring) RETURNING *
    ), left_ring AS MATERIALIZED (
        SELECT ring, node, stacksaga.leave_ring(node, incarnation) FROM gone
    )
    INSERT INTO member
    SELECT ring, new, stacksaga.register_node(new, 'load', 'ring-' || ring)
      FROM left_ring, LATERAL (SELECT node || '-next') AS name(new)
"""


class Master:
    """A daemon over so many rings of a database, and what its log says of the windows."""

    def __init__(self, database, rings):
        self.log = tempfile.NamedTemporaryFile('r', suffix='.log')
        clusters = ','.join(f'ring-{i}' for i in range(1, rings + 1))
        self.process = subprocess.Popen(
            [DAEMON, 'master', '-d', database.name, '--region', 'load', '--cluster', clusters,
             '--http', '', '--log-format', 'json'],
            stderr=open(self.log.name, 'w'), stdin=subprocess.DEVNULL)
        self.rings = rings
        self.lines = []
        self.begun_line = ''
        self.session = None

    def windows(self):
        """Of each window that all rings have: seconds from when it was due to the last publication."""
        *whole, self.begun_line = (self.begun_line + self.log.read()).split('\n')
        self.lines += [json.loads(line) for line in whole]
        of = {}
        for line in self.lines:
            if line['msg'] == 'published window':
                of.setdefault(line['window'], []).append(LEAD - line['margin_ms'] / 1000)
        return {window: max(late) for window, late in of.items() if len(late) == self.rings}

    def wait_for_window(self, count):
        """Until there are so many of them."""
        measure.wait_until(lambda: len(self.windows()) >= count, 'windows are published', 120)

    def wait_for_session(self, database):
        """Until it is connected; the process of its session, for cpu_seconds()."""
        find = "SELECT pid FROM pg_stat_activity WHERE application_name = 'stacksaga-coordinator'"
        measure.wait_until(lambda: database.sql(find), 'the master connects', 30)
        self.session = database.sql(find)

    def cpu_seconds(self):
        """Of the daemon and of its session on the server, so far."""
        return measure.cpu_of(self.process.pid), measure.cpu_of(self.session)

    def peak_megabytes(self):
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        return int(re.search(r'VmHWM:\s+(\d+) kB', status)[1]) / 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def cycles_of(bench, rings):
    """Publishes windows for so many rings.

    Returns the seconds of each cycle, those of CPU in one (the daemon's, its session's), and the
    megabytes of the daemon.
    """
    db = bench.database(f'rings_{rings}')
    db.sql(SET_UP % {'rings': rings})
    master = Master(db, rings)
    try:
        # The first window is published at once, whatever its lead; its owners are what the next ones keep.
        master.wait_for_session(db)
        master.wait_for_window(1)
        measure.wait_until(
            lambda: db.sql('SELECT max(window_start) <= clock_timestamp() FROM stacksaga.token_window'),
            'the first window opens')
        for ring in range(1, rings + 1):
            db.sql(TAKE_OVER, ring)
        db.sql('VACUUM ANALYZE')
        known = len(master.windows()) + 1
        master.wait_for_window(known)
        cpu = master.cpu_seconds()
        for number in range(bench.rounds):
            db.sql(CHANGE)
            master.wait_for_window(known + number + 1)
        seconds = list(master.windows().values())[known:known + bench.rounds]
        cpu = [(end - begin) / bench.rounds
               for begin, end in zip(cpu, master.cpu_seconds(), strict=True)]
        db.must('SELECT count(DISTINCT ring_id) = %s FROM stacksaga.token_window', rings)
        return seconds, cpu, master.peak_megabytes()
    finally:
        master.end()


def run(bench):
    bench.extent = f'{bench.rounds} windows of each, {NODES} nodes a ring, one of them new in each window'
    per_ring = {}
    for rings in (2, 5, 10) if bench.quick else (10, 50, 100):
        seconds, (daemon, session), megabytes = cycles_of(bench, rings)
        goal = rings == 100
        name = f'{rings} rings, {rings * NODES:,} nodes'
        bench.figure(f'{name}: all windows published after', seconds, 's', at_most=1 if goal else None)
        bench.figure(f'{name}: CPU of the daemon in a cycle', [daemon * 1000], 'ms')
        bench.figure(f'{name}: CPU of its session', [session * 1000], 'ms')
        bench.figure(f'{name}: memory of the daemon', [megabytes], 'MB', at_most=200 if goal else None)
        per_ring[rings] = (daemon + session) / rings
    least, most = min(per_ring), max(per_ring)
    bench.figure(f'CPU for a ring among {most} against one among {least}',
                 [per_ring[most] / per_ring[least]], '×', at_most=1.5)


if __name__ == '__main__':
    measure.main(run, measure.Figures)
