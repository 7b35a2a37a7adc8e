"""Faults that make a copy of the database in the middle of its work: a dump that is restored, a standby that
is promoted. What is in a copy must keep the promises of any instant, and so must what it does from then on.
"""

import os
import pathlib
import shutil
import subprocess
import time

import psycopg

import tables
from faults import Fault
from promises import History, of_any_instant

PATIENCE = 60


def violations_of(connection):
    """What is wrong with a copy, as text; calls are left out, since the copy is older than some of them."""
    found, nothing = tables.of_database(connection), History([])
    return [f'{sentence}: {wrong}' for sentence, function in of_any_instant()
            for wrong in function(nothing, found)[1]]


class Copy(Fault):
    """Makes a copy, checks it, lets its workers finish what needs no client, and checks it again."""
    where = ''

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
        except (psycopg.Error, subprocess.CalledProcessError) as error:
            print(f"{self.where}: {error}, {getattr(error, 'stderr', None)}")
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
        host = pathlib.Path(os.environ['PGHOST'])
        self.data = host / 'standby'
        mapping = []
        if world.disk:
            # Its tablespace lies beside it, so a full disk of the primary is not its own.
            mapping = ['-T', f'{world.disk}/data={host}/standby.tablespace']
        self.as_owner(world, ['pg_basebackup', '-U', 'postgres', '-D', self.data, '-R', '-c', 'fast', *mapping])
        with open(self.data / 'postgresql.auto.conf', 'a', encoding='utf-8') as settings:
            settings.write("port = 5433\n")
        self.as_owner(world, ['pg_ctl', '-D', self.data, '-l', self.data / 'log', '-w', '-t', '30', 'start'])
        # What is committed now must be there after the promotion.
        self.committed = world.sql('SELECT pg_current_wal_lsn()::text')
        with psycopg.connect(dbname='chaos', port=5433, user='postgres', autocommit=True) as standby:
            deadline = time.monotonic() + PATIENCE
            while not standby.execute('SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn', (self.committed,)).fetchone()[0]:
                if time.monotonic() > deadline:
                    raise psycopg.OperationalError('the standby does not catch up')
                time.sleep(0.1)
            standby.execute('SELECT pg_promote()')
        return {'dbname': 'chaos', 'port': 5433}

    def as_owner(self, world, command):
        """Runs a program of the server as the user who owns its data."""
        subprocess.run([*world.as_owner, *command], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, cwd='/')

    def remove(self, world):
        subprocess.run([*world.as_owner, 'pg_ctl', '-D', self.data, '-m', 'immediate', 'stop'], cwd='/',
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for folder in (self.data, self.data.with_name('standby.tablespace')):
            shutil.rmtree(folder, ignore_errors=True)
