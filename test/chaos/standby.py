"""A standby of the run's server, which can be promoted and can take its place."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import psycopg

from world import send

PATIENCE = 60
PORT = 5433
# Settings that are a standby's only.
OWN_SETTINGS = ('port', 'synchronous_standby_names', 'primary_conninfo')


class Standby:
    """Made by pg_basebackup beside the server's own folder; start() streams from the server."""

    def __init__(self, world):
        self.world = world
        host = pathlib.Path(os.environ['PGHOST'])
        self.data = host / 'standby'
        self.tablespace = host / 'standby.tablespace'

    def as_owner(self, *command):
        """Runs a program of the server as the user who owns its data."""
        subprocess.run([*self.world.as_owner, *command], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, cwd='/')

    def start(self):
        mapping = []
        if self.world.disk:
            # Its tablespace lies beside it, so a full disk of the primary is not its own.
            mapping = ['-T', f'{self.world.disk}/data={self.tablespace}']
        self.as_owner('pg_basebackup', '-U', 'postgres', '-D', self.data, '-R', '-c', 'fast', *mapping)
        with open(self.data / 'postgresql.auto.conf', 'a', encoding='utf-8') as settings:
            settings.write(f'port = {PORT}\n')
        self.as_owner('pg_ctl', '-D', self.data, '-l', self.data / 'log', '-w', '-t', '30', 'start')

    def catch_up(self):
        """Waits until it has what is committed now."""
        committed = self.world.sql('SELECT pg_current_wal_lsn()::text')
        with psycopg.connect(dbname='chaos', port=PORT, user='postgres', autocommit=True) as standby:
            deadline = time.monotonic() + PATIENCE
            while not standby.execute('SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn', (committed,)).fetchone()[0]:
                if time.monotonic() > deadline:
                    raise psycopg.OperationalError('the standby does not catch up')
                time.sleep(0.1)

    def stop_receiving(self):
        """From when this returns it gets nothing more."""
        with psycopg.connect(dbname='chaos', port=PORT, user='postgres', autocommit=True) as standby:
            standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
            standby.execute('SELECT pg_reload_conf()')
            deadline = time.monotonic() + PATIENCE
            while standby.execute('SELECT count(*) FROM pg_stat_wal_receiver').fetchone()[0] > 0:
                if time.monotonic() > deadline:
                    raise psycopg.OperationalError('the standby does not stop receiving')
                time.sleep(0.05)

    def promote(self):
        self.as_owner('pg_ctl', '-D', self.data, '-w', '-t', '30', 'promote')

    def become_synchronous(self):
        """From when this returns every COMMIT that is answered is on the standby's disk too."""
        self.world.insist("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.world.insist('SELECT pg_reload_conf()')
        self.world.insist("""DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync') THEN
                                 RAISE 'not yet'; END IF; END $$""")

    def take_over(self):
        """Kills the server, all of its processes at once, and puts the promoted standby in its place."""
        world = self.world
        pids = [world.postmaster(), *world.children('')]
        for pid in pids:
            send(pid, signal.SIGKILL)
        self.promote()
        self.as_owner('pg_ctl', '-D', self.data, '-m', 'fast', '-w', 'stop')
        self.move_into_place()
        world.start_server()

    def move_into_place(self):
        """Gives the folders of the dead server to the promoted one."""
        world = self.world
        if world.disk:
            place = pathlib.Path(world.disk) / 'data'
            link, = (self.data / 'pg_tblspc').iterdir()
            shutil.rmtree(place)
            self.move(self.tablespace, place)
            link.unlink()
            link.symlink_to(place)
            shutil.rmtree(world.wal / 'pg_wal')
            self.move(self.data / 'pg_wal', world.wal / 'pg_wal')
            (self.data / 'pg_wal').symlink_to(world.wal / 'pg_wal')
        shutil.rmtree(world.data)
        self.data.rename(world.data)
        settings = world.data / 'postgresql.auto.conf'
        kept = [line for line in settings.read_text().splitlines() if not line.startswith(OWN_SETTINGS)]
        settings.write_text('\n'.join(kept) + '\n')

    def move(self, source, target):
        """Moves a folder to another disk, with its owner."""
        subprocess.run(['cp', '-a', source, target], check=True)
        shutil.rmtree(source)

    def remove(self):
        subprocess.run([*self.world.as_owner, 'pg_ctl', '-D', self.data, '-m', 'immediate', 'stop'], cwd='/',
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for folder in (self.data, self.tablespace):
            shutil.rmtree(folder, ignore_errors=True)
