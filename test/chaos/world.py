"""What faults act on: the server's processes, the clients' processes, and connections of the harness's own."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import psycopg

HERE = pathlib.Path(__file__).parent
SERVER = HERE.parent / 'tools' / 'server'
COORDINATOR = pathlib.Path(os.environ.get(
    'CHAOS_COORDINATOR', HERE.parents[1] / 'build' / 'coordinator' / 'stacksaga-coordinator'))
CLIENTS = {'starter': 2, 'publisher': 2, 'payer': 2, 'deduper': 2, 'brawler': 1, 'operator': 1,
           'service': 2, 'receiver': 2, 'shipper': 2, 'watcher': 1}
# Room on a disk that faults fill, in bytes; a file system in memory, which takes what is on it.
DISK = 8 << 30
DAEMONS = {'master': 2, 'agent': 1}


def send(pid, number):
    """Sends a signal, and tells whether there was such a process."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def replace_file(path, text):
    """Writes a file that others read at any time: they see the old text or the new one."""
    new = path.with_suffix('.new')
    new.write_text(text)
    new.rename(path)


class World:
    """The server and the clients of a run."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.seed = seed
        self.data = pathlib.Path(os.environ['PGDATA'])
        # The socket of the proxy lies beside the server's, whose path is known to be short enough.
        self.proxy_folder = pathlib.Path(os.environ['PGHOST']) / 'p'
        self.proxy = None
        self.clients = {}       # name -> process
        self.generations = {}
        self.crashes = []        # clients that ended by themselves, with their status
        self.killed = set()     # pids of clients that a fault killed
        self.stopped = set()    # pids that a fault stopped
        self.violations = []    # what faults found broken
        self.disk = os.environ.get('CHAOS_DISK') or None
        self.wal = None
        owner = self.data.owner()
        self.as_owner = [] if os.getuid() else ['runuser', '-u', owner, '--']
        self.restarting = threading.Lock()
        self.noting = threading.Lock()
        self.network = threading.Lock()

    # The server.

    def postmaster(self):
        try:
            return int((self.data / 'postmaster.pid').read_text().split()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def children(self, pattern):
        """The pids of the server's processes whose title has a pattern."""
        postmaster, found = self.postmaster(), []
        try:
            task = pathlib.Path(f'/proc/{postmaster}/task/{postmaster}/children').read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            return found
        for pid in task:
            try:
                if pattern in pathlib.Path(f'/proc/{pid}/cmdline').read_text():
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return sorted(found)

    def workers(self):
        return self.children('stacksaga worker')

    def backends(self):
        """Backends of clients; not those of the harness's own connections, which are of the superuser."""
        return self.children(' bank chaos ')

    def start_server(self, patience=60):
        """Starts the server, again and again until the old one's processes are gone."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            done = subprocess.run([SERVER, 'start'], capture_output=True, text=True)
            if done.returncode == 0:
                return
            time.sleep(0.5)
        sys.exit(f'the server does not start again:\n{done.stdout}{done.stderr}')

    def revive(self):
        """Starts the server if it gave up by itself, as when it cannot recover for want of space."""
        if not self.restarting.acquire(blocking=False):
            return
        try:
            postmaster = self.postmaster()
            if postmaster is None or not pathlib.Path(f'/proc/{postmaster}').exists():
                self.start_server()
        finally:
            self.restarting.release()

    def resize_disk(self, folder, full):
        """Leaves no room on a disk, or a lot. Tells whether it could."""
        room = DISK
        if full:
            disk = os.statvfs(folder)
            room = (disk.f_blocks - disk.f_bfree) * disk.f_frsize + 65536
        return subprocess.run(['mount', '-o', f'remount,size={room}', folder]).returncode == 0

    def move_wal(self):
        """Moves the WAL to a disk of its own, which lies inside the other one."""
        self.wal = pathlib.Path(self.disk) / 'wal'
        self.wal.mkdir()
        subprocess.run(['mount', '-t', 'tmpfs', 'none', self.wal], check=True)
        subprocess.run([SERVER, 'stop', '-m', 'fast'], check=True, capture_output=True)
        moved = self.wal / 'pg_wal'
        shutil.move(self.data / 'pg_wal', moved)
        for path in (self.wal, moved, *moved.rglob('*')):
            shutil.chown(path, self.data.owner())
        (self.data / 'pg_wal').symlink_to(moved)
        self.start_server()

    def connect(self, database='chaos', patience=30):
        """A connection of the harness's own, as superuser; waits while the server restarts."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return psycopg.connect(dbname=database, user='postgres', autocommit=True, connect_timeout=5,
                                       options='-c statement_timeout=10s')
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def sql(self, *statements, database='chaos'):
        """Runs statements, each its own transaction; returns the first column of the last one's first row."""
        with self.connect(database) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def insist(self, statement, instead=None, patience=120, database='chaos'):
        """Runs a statement until it succeeds; after each failure runs another one, if there is one."""
        deadline = time.monotonic() + patience
        while True:
            try:
                self.sql(statement, database=database)
                return
            except psycopg.Error as error:
                if time.monotonic() > deadline:
                    sys.exit(f'in {patience} s this did not succeed: {statement}\n{error}')
            if instead is not None:
                try:
                    self.sql(instead, database=database)
                except psycopg.Error:
                    pass
            time.sleep(0.2)

    def note(self, line):
        """A line of the run's own history: the faults, with their instants."""
        with self.noting, open(self.folder / 'faults.jsonl', 'a', encoding='utf-8') as file:
            file.write(json.dumps(line) + '\n')

    # Clients, and the proxy between every other one of them and the server.

    def start_proxy(self):
        self.proxy_folder.mkdir(exist_ok=True)
        self.set_network('pass')
        with open(self.folder / 'proxy.log', 'a', encoding='utf-8') as log:
            self.proxy = subprocess.Popen(
                [sys.executable, '-B', HERE / 'proxy.py', self.proxy_folder,
                 pathlib.Path(os.environ['PGHOST']) / f".s.PGSQL.{os.environ['PGPORT']}"], stderr=log)

    def set_network(self, mode):
        """One of the modes of proxy.py."""
        replace_file(self.proxy_folder / 'mode', mode)

    def start_client(self, kind, number):
        name = f'{kind}-{number}'
        generation = self.generations[name] = self.generations.get(name, 0) + 1
        if kind in DAEMONS:
            command = [COORDINATOR, kind, '--name', name, '--http', '', '--dbname', 'dbname=chaos user=coordinator']
            environment = os.environ
        else:
            command = [sys.executable, '-B', HERE / 'client.py', kind, f'{name}.{generation}', self.folder, self.seed]
            environment = {**os.environ, 'PGUSER': 'bank', 'PGDATABASE': 'chaos'}
            if int(number) % 2:
                environment['PGHOST'] = str(self.proxy_folder)
        with open(self.folder / f'{name}.log', 'a', encoding='utf-8') as log:
            self.clients[name] = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    def start_clients(self):
        for kind, count in CLIENTS.items():
            for number in range(1, count + 1):
                self.start_client(kind, number)

    def start_daemons(self):
        """Coordinators: from now on workers go by their windows."""
        self.insist("ALTER SYSTEM SET stacksaga.coordination = 'coordinator'")
        self.insist('SELECT pg_reload_conf()')
        for kind, count in DAEMONS.items():
            for number in range(1, count + 1):
                self.start_client(kind, number)

    def replace_dead_clients(self):
        if self.proxy.poll() is not None:
            # No fault ends it; without it half of the clients would do nothing.
            self.crashes.append(('proxy', self.proxy.returncode))
            self.start_proxy()
        for name, process in list(self.clients.items()):
            kind = name.rsplit('-', 1)[0]
            if process.poll() is not None and (process.returncode != 0 or kind in DAEMONS):
                # A daemon may give up for a reason of the server's; a supervisor starts it again.
                if process.pid not in self.killed and kind not in DAEMONS:
                    self.crashes.append((name, process.returncode))
                kind, number = name.rsplit('-', 1)
                self.start_client(kind, number)

    def client_pids(self, kinds=None):
        return [process.pid for name, process in self.clients.items()
                if process.poll() is None and (kinds is None or name.rsplit('-', 1)[0] in kinds)]

    def kill_clients(self):
        """Ends all clients at once; others begin anew in their place."""
        for pid in self.client_pids(CLIENTS):
            self.killed.add(pid)
            send(pid, signal.SIGKILL)

    # Stopped processes.

    def stop(self, pid):
        if send(pid, signal.SIGSTOP):
            self.stopped.add(pid)
            return True
        return False

    def go_on(self, pid):
        self.stopped.discard(pid)
        send(pid, signal.SIGCONT)

    def everything_goes_on(self):
        for pid in list(self.stopped):
            self.go_on(pid)

    def end_processes(self):
        """Ends the daemons and the proxy, and waits for the clients, which end by themselves in the phase stop."""
        for name, process in self.clients.items():
            if name.rsplit('-', 1)[0] in DAEMONS:
                process.terminate()
        for process in self.clients.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
        self.proxy.terminate()

    def set_phase(self, phase):
        replace_file(self.folder / 'phase', phase)
