"""Faults of what the server runs on and is set up with: network, disks, the extension's clock, settings."""

import time

import psycopg

from faults import Fault


class Network(Fault):
    """What happens between clients and server; in the end connections are cut, or all of it arrives late."""
    mode = ''
    lasts = (0.5, 6)

    def begin(self, world, random):
        if not world.network.acquire(blocking=False):
            return False
        self.cuts = random.randrange(2) == 0
        world.set_network(self.mode)
        return True

    def end(self, world):
        if self.cuts:
            world.set_network('cut')
            time.sleep(0.2)
        world.set_network('pass')
        world.network.release()


class Delay(Network):
    name = 'a slow network'
    weight = 3
    mode = 'delay'


class HalfOpen(Network):
    name = 'connections half open'
    weight = 3
    mode = 'hold'


class Mute(Network):
    name = 'answers lost on the way'
    weight = 4
    lasts = (0.3, 3)
    mode = 'mute'


class Workers(Fault):
    name = 'workers join and leave'
    weight = 2
    lasts = (1, 6)

    def begin(self, world, random):
        try:
            world.sql(f'ALTER SYSTEM SET stacksaga.workers = {random.choice((1, 3, 4))}', 'SELECT pg_reload_conf()')
            return True
        except psycopg.Error:
            return False

    def end(self, world):
        world.insist('ALTER SYSTEM RESET stacksaga.workers')
        world.insist('SELECT pg_reload_conf()')


class ClockStep(Fault):
    """The extension's clock only: forward for good, so that no lease lies hours ahead, or back a little."""
    name = "the extension's clock stepped"
    weight = 2

    def __init__(self):
        self.offset = 0

    def begin(self, world, random):
        offset = self.offset + random.choice((-3, -1, 2, 20, 300, 900))
        try:
            world.sql(f"ALTER SYSTEM SET stacksaga.clock_offset = '{max(0, offset)}s'", 'SELECT pg_reload_conf()')
        except psycopg.Error:
            return False
        self.offset = max(0, offset)
        return True


class Maintenance(Fault):
    name = 'VACUUM, ANALYZE, reload'
    weight = 2

    def begin(self, world, random):
        try:
            world.sql('SELECT pg_reload_conf()', 'VACUUM ANALYZE', 'CHECKPOINT')
            return True
        except psycopg.Error:
            return False


class DiskFull(Fault):
    """No room for tables: the disk of the database's tablespace shrinks to what is on it."""
    name = 'a full disk'
    weight = 2
    lasts = (0.5, 4)

    def begin(self, world, random):
        return world.disk is not None and world.resize_disk(world.disk, full=True)

    def end(self, world):
        world.resize_disk(world.disk, full=False)


class WalDiskFull(Fault):
    """No room for WAL: the server ends with a PANIC, and cannot start until there is room."""
    name = 'a full disk of WAL'
    lasts = (0.5, 3)

    def begin(self, world, random):
        if world.wal is None or not world.resize_disk(world.wal, full=True):
            return False
        try:
            with world.connect(patience=1) as connection:
                for _ in range(20):
                    connection.execute('SELECT pg_switch_wal(), pg_logical_emit_message(false, $$chaos$$, $$chaos$$)')
        except psycopg.Error:
            pass                # it has run out of room
        return True

    def end(self, world):
        world.resize_disk(world.wal, full=False)
