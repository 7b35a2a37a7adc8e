"""The faults, each a small class; every_fault() is the table. A fault begins, may last, and ends.

weight says how often it is chosen when faults are mixed; lasts, for how many seconds. begin() returns
False where there was nothing to do it to. Each runs in a thread; one of a class is in force at a time.
"""

import random as random_module
import signal
import subprocess
import threading
import time

import psycopg

from world import CLIENTS, DAEMONS, SERVER, send


class Fault:
    name = ''
    weight = 1
    lasts = (0, 0)
    # Whether it waits for the others to end, and the others for it.
    alone = False
    misses = 0

    def begin(self, world, random):
        raise NotImplementedError

    def end(self, world):
        pass


class Signal(Fault):
    """A signal to one process of a group."""
    number = signal.SIGKILL

    def pids(self, world):
        raise NotImplementedError

    def begin(self, world, random):
        pids = self.pids(world)
        return bool(pids) and send(random.choice(pids), self.number)


class Freeze(Fault):
    """SIGSTOP, and SIGCONT in the end."""
    lasts = (0.5, 6)

    def pids(self, world):
        raise NotImplementedError

    def begin(self, world, random):
        pids = self.pids(world)
        self.pid = random.choice(pids) if pids else None
        return self.pid is not None and world.stop(self.pid)

    def end(self, world):
        world.go_on(self.pid)


class KillBackend(Signal):
    name = 'kill -9 of a backend'

    def pids(self, world):
        return world.backends()


class KillWorker(Signal):
    name = 'kill -9 of a worker'

    def pids(self, world):
        return world.workers()


class EndWorker(Signal):
    name = 'SIGTERM of a worker'
    weight = 4
    number = signal.SIGTERM

    def pids(self, world):
        return world.workers()


class EndBackend(Signal):
    name = 'a connection ended by the server'
    weight = 6
    number = signal.SIGTERM

    def pids(self, world):
        return world.backends()


class CancelBackend(Signal):
    name = 'a statement cancelled'
    weight = 6
    number = signal.SIGINT

    def pids(self, world):
        return world.backends()


class CancelWorker(CancelBackend):
    name = "a worker's statement cancelled"
    weight = 3

    def pids(self, world):
        return world.workers()


class KillClient(Fault):
    name = 'kill -9 of a client'
    weight = 6

    kinds = CLIENTS

    def begin(self, world, random):
        pids = world.client_pids(self.kinds)
        if not pids:
            return False
        pid = random.choice(pids)
        world.killed.add(pid)
        return send(pid, signal.SIGKILL)


class KillDaemon(KillClient):
    name = 'kill -9 of a coordinator'
    weight = 3
    kinds = DAEMONS


class FreezeDaemon(Freeze):
    name = 'a coordinator frozen'
    weight = 3
    lasts = (1, 8)

    def pids(self, world):
        return world.client_pids(DAEMONS)


class FreezeClient(Freeze):
    name = 'a client frozen'
    weight = 6

    def pids(self, world):
        return world.client_pids(('service', 'receiver', 'shipper', 'starter', 'payer', 'deduper'))


class FreezeWorker(Freeze):
    name = 'a worker frozen'
    weight = 4

    def pids(self, world):
        return world.workers()


class FreezeBackend(Freeze):
    name = 'a backend frozen'
    weight = 4

    def pids(self, world):
        return world.backends()


class FreezeServer(Freeze):
    name = 'the whole server frozen'
    lasts = (0.5, 4)

    def begin(self, world, random):
        self.frozen = [pid for pid in [world.postmaster(), *world.children('')] if pid and world.stop(pid)]
        return bool(self.frozen)

    def end(self, world):
        for pid in self.frozen:
            world.go_on(pid)


class KillPostmaster(Fault):
    name = 'kill -9 of the postmaster'

    def begin(self, world, random):
        with world.restarting:
            world.everything_goes_on()
            pid = world.postmaster()
            if pid is None or not send(pid, signal.SIGKILL):
                return False
            world.start_server()
        return True


class RestartServer(Fault):
    name = 'the server restarted (fast or immediate)'

    def begin(self, world, random):
        with world.restarting:
            world.everything_goes_on()
            subprocess.run([SERVER, 'stop', '-m', random.choice(('fast', 'immediate'))], capture_output=True)
            world.start_server()
        return True


class Statement(Fault):
    """Something that a session of the harness holds for a while."""
    statements = ()
    lasts = (0.5, 3)
    database = 'chaos'

    def begin(self, world, random):
        self.connection = None
        try:
            self.connection = world.connect(self.database, patience=2)
            self.connection.execute("SET lock_timeout = '2s'")
            for statement in self.statements:
                self.connection.execute(statement)
            return True
        except psycopg.Error:
            if self.connection is not None:
                self.connection.close()
            return False

    def end(self, world):
        self.connection.close()


class LockTable(Statement):
    name = 'tables locked'
    weight = 3
    statements = ('BEGIN', 'LOCK TABLE bank.account, bank.stream IN ACCESS EXCLUSIVE MODE')


class HoldSnapshot(Statement):
    name = 'a snapshot held'
    weight = 3
    lasts = (3, 15)
    statements = ('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM bank.account',
                  'SELECT pg_current_xact_id()')


class DropRolledBack(Statement):
    name = 'DROP EXTENSION rolled back'
    lasts = (0.2, 1)
    statements = ('BEGIN', 'DROP EXTENSION stacksaga CASCADE')


class DropElsewhere(Statement):
    name = 'DROP and CREATE EXTENSION in another database'
    lasts = (0.5, 2)
    database = 'elsewhere'
    statements = (
        'CREATE EXTENSION IF NOT EXISTS stacksaga', 'SELECT stacksaga.worker_ensure()',
        "SELECT stacksaga.define_saga('wait', ARRAY[stacksaga.timer_step('pause', delay => '100 milliseconds')])",
        "SELECT count(*) FROM generate_series(1, 20), stacksaga.start_saga('wait')",
        "SELECT stacksaga.publish('nobody', '{}')")

    def end(self, world):
        try:
            self.connection.execute('DROP EXTENSION stacksaga CASCADE')
        except psycopg.Error:
            pass
        super().end(world)


class Prepared(Statement):
    name = 'a prepared transaction'
    weight = 2
    lasts = (1, 8)
    statements = ('BEGIN', "UPDATE bank.stream SET n = n WHERE key = 'k1'", "PREPARE TRANSACTION 'chaos'")

    def begin(self, world, random):
        if super().begin(world, random):
            return True
        self.roll_back(world)
        return False

    def end(self, world):
        super().end(world)
        self.roll_back(world)

    def roll_back(self, world):
        # Until it is gone it holds a lock and its transaction id, also over restarts.
        world.insist("""DO $$ BEGIN
            IF EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = 'chaos') THEN
                RAISE 'it is still there'; END IF; END $$""", instead="ROLLBACK PREPARED 'chaos'")


class Node(Statement):
    name = 'a node joined, drained and gone'
    weight = 3
    lasts = (1, 8)

    def begin(self, world, random):
        self.node = f'chaos-{random.randrange(3)}'
        return super().begin(world, random) and self.call('register_node(%s)', keep=True) \
            and self.call('heartbeat_node(%s, %s)')

    def call(self, function, keep=False):
        try:
            parameters = (self.node,) if keep else (self.node, self.incarnation)
            row = self.connection.execute(f'SELECT stacksaga.{function}', parameters).fetchone()
            if keep:
                self.incarnation = row[0]
            return True
        except psycopg.Error:
            return False

    def end(self, world):
        # Some nodes leave, others are drained and never heard of again.
        if self.call('drain_node(%s, %s)') and self.node != 'chaos-0':
            self.call('leave_ring(%s, %s)')
        super().end(world)


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
        for _ in range(20):
            try:
                world.sql('SELECT pg_switch_wal(), pg_logical_emit_message(false, $$chaos$$, $$chaos$$)')
            except psycopg.Error:
                break
        return True

    def end(self, world):
        world.resize_disk(world.wal, full=False)


def every_fault(base=Fault):
    """All classes of faults that have a name."""
    for fault in base.__subclasses__():
        yield from every_fault(fault)
        if fault.name:
            yield fault


class Schedule:
    """Faults from a seed: first each one once, in an order of its own, then mixed."""

    # So many faults at once, at most.
    AT_ONCE = 4

    def __init__(self, world, seed, only=None):
        self.world = world
        self.seed = seed
        self.random = random_module.Random(f'{seed}/faults')
        self.faults = [fault() for fault in dict.fromkeys(every_fault())
                       if not only or any(words in fault.name for words in only)]
        self.first = self.random.sample(self.faults, len(self.faults))
        self.injected = {fault.name: 0 for fault in self.faults}
        self.threads = {}
        self.number = 0

    def begin_one(self):
        """Begins the next fault of the schedule, unless it is in force already."""
        self.threads = {fault: thread for fault, thread in self.threads.items() if thread.is_alive()}
        if len(self.threads) >= self.AT_ONCE:
            return
        fault = self.first.pop() if self.first else self.random.choices(
            self.faults, [fault.weight for fault in self.faults])[0]
        if fault in self.threads:
            return
        self.number += 1
        if fault.alone:
            self.finish()
            self.run(fault, self.number)
            return
        self.threads[fault] = threading.Thread(target=self.run, args=(fault, self.number), daemon=True)
        self.threads[fault].start()

    def run(self, fault, number):
        """One fault from its beginning to its end; its choices depend on the seed and its number only."""
        random = random_module.Random(f'{self.seed}/fault/{number}')
        lasts = random.uniform(*fault.lasts)
        began = time.monotonic_ns()
        if not fault.begin(self.world, random):
            # There was nothing to do it to, or another fault was in its way: later, if it was never injected.
            fault.misses += 1
            if self.injected[fault.name] == 0 and fault.misses < 5:
                self.first.insert(0, fault)
            return
        try:
            time.sleep(lasts)
        finally:
            fault.end(self.world)
        self.injected[fault.name] += 1
        self.world.note({'fault': fault.name, 'begin': began, 'end': time.monotonic_ns()})

    def finish(self):
        """Waits until no fault is in force."""
        for thread in self.threads.values():
            thread.join()
        self.world.everything_goes_on()
