"""Faults that make a copy of the database in the middle of its work: a dump that is restored, a standby that
is promoted. What is in a copy must keep the promises of any instant, and so must what it does from then on.
In a failover the clients go on with the copy.
"""

import subprocess
import time

import psycopg

import tables
from faults import Fault
from promises import History, of_any_instant
from standby import PATIENCE, PORT, Standby


def violations_of(connection):
    """What is wrong with a copy, as text; calls are left out, since the copy is older than some of them."""
    found, nothing = tables.of_database(connection), History([])
    return [f'{sentence}: {wrong}' for sentence, function in of_any_instant()
            for wrong in function(nothing, found)[1]]


class Copy(Fault):
    """Makes a copy, checks it, lets its workers finish what needs no client, and checks it again."""
    where = ''
    takes_long = True

    def make(self, world):
        """Makes the copy and returns how to connect to it."""
        raise NotImplementedError

    def remove(self, world):
        pass

    def begin(self, world, random):
        try:
            with psycopg.connect(**self.make(world), user='postgres', autocommit=True) as connection:
                wrong = violations_of(connection)
                if not wrong:
                    left = self.go_on(connection)
                    wrong = violations_of(connection) + left
        except (psycopg.Error, subprocess.CalledProcessError):
            return False        # another fault broke it
        finally:
            self.remove(world)
        world.violations += [f'{self.where}: {text}' for text in wrong]
        return True

    def go_on(self, connection):
        """Waits until the copy's workers have ended every transfer, and returns what is left."""
        connection.execute('SELECT stacksaga.worker_ensure()')
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            left = connection.execute("""SELECT count(*) FROM stacksaga.sagas WHERE saga = 'transfer'
                AND parent_id IS NULL AND status NOT IN ('completed', 'failed', 'suspended', 'parked')""").fetchone()[0]
            if left == 0:
                return []
            time.sleep(0.5)
        return [f'{left} transfers have not ended after {PATIENCE} s']


class Restored(Copy):
    name = 'a dump restored, which goes on'
    where = 'in a restored dump'

    def make(self, world):
        dump = world.folder / 'dump'
        world.sql('CREATE DATABASE restored', database='postgres')
        subprocess.run(['pg_dump', '-U', 'postgres', '-Fc', '-f', dump, 'chaos'], check=True, capture_output=True)
        subprocess.run(['pg_restore', '-U', 'postgres', '-e', '-d', 'restored', dump], check=True,
                       capture_output=True)
        return {'dbname': 'restored'}

    def remove(self, world):
        world.insist('DROP DATABASE IF EXISTS restored WITH (FORCE)', database='postgres')
        (world.folder / 'dump').unlink(missing_ok=True)


class Promoted(Copy):
    name = 'a standby promoted, which goes on'
    where = 'on a promoted standby'

    def make(self, world):
        self.standby = Standby(world)
        self.standby.start()
        self.standby.catch_up()
        self.standby.promote()
        return {'dbname': 'chaos', 'port': PORT}

    def remove(self, world):
        self.standby.remove()


class Failover(Fault):
    """The server dies while a synchronous standby has all of it, and the clients go on with the standby: what
    was acknowledged is there. Other faults wait: a COMMIT that is cancelled while it waits for the standby
    counts although the standby may not have it."""
    name = 'failover to a synchronous standby'
    alone = takes_long = True

    def begin(self, world, random):
        standby = Standby(world)
        try:
            standby.start()
            standby.catch_up()
            standby.become_synchronous()
        except (psycopg.Error, subprocess.CalledProcessError):
            standby.remove()
            world.insist('ALTER SYSTEM RESET synchronous_standby_names')
            world.insist('SELECT pg_reload_conf()')
            return False
        time.sleep(random.uniform(1, 4))
        with world.restarting:
            standby.take_over()
        return True


class LossyFailover(Fault):
    """The server dies while an asynchronous standby lacks what was committed last, and the clients go on with
    the standby. What they were told since then may be gone, so they begin anew; all that is there must fit
    together, and whatever was answered before is there."""
    name = 'failover that loses transactions'
    alone = takes_long = True

    def begin(self, world, random):
        standby = Standby(world)
        try:
            standby.start()
            began = time.monotonic_ns()
            standby.catch_up()
            standby.stop_receiving()
        except (psycopg.Error, subprocess.CalledProcessError):
            standby.remove()
            return False
        time.sleep(random.uniform(0.2, 2))
        with world.restarting:
            world.kill_clients()
            standby.take_over()
        world.note({'lost': True, 'begin': began, 'end': time.monotonic_ns()})
        return True
