"""The faults, each a small class: name, how often, how long; those of processes and of sessions are here.

weight says how often a fault is chosen when faults are mixed; lasts, for how many seconds. begin() returns
False where there was nothing to do it to. Each runs in a thread; one of a class is in force at a time.
"""

import signal
import subprocess

import psycopg

from world import CLIENTS, DAEMONS, SERVER, send


class Fault:
    name = ''
    weight = 1
    lasts = (0, 0)
    # Whether it waits for the others to end, and the others for it.
    alone = False
    takes_long = False
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
