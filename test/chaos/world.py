"""What faults act on: the server's processes, the clients' processes, and connections of the harness's own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import psycopg

HERE = pathlib.Path(__file__).parent
SERVER = HERE.parent / 'tools' / 'server'
CLIENTS = {'starter': 2, 'publisher': 2, 'payer': 2, 'deduper': 2, 'brawler': 1, 'operator': 1,
           'service': 2, 'receiver': 2, 'shipper': 1}


def send(pid, number):
    """Sends a signal, and tells whether there was such a process."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class World:
    """The server and the clients of a run."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.seed = seed
        self.data = pathlib.Path(os.environ['PGDATA'])
        self.clients = {}       # name -> process
        self.generations = {}
        self.deaths = []        # clients that ended by themselves, with their status
        self.killed = set()     # pids of clients that a fault killed
        self.stopped = set()    # pids that a fault stopped
        self.restarting = threading.Lock()
        self.noting = threading.Lock()

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

    def insist(self, statement, instead=None, patience=120):
        """Runs a statement until it succeeds; after each failure runs another one, if there is one."""
        deadline = time.monotonic() + patience
        while True:
            try:
                self.sql(statement)
                return
            except psycopg.Error as error:
                if time.monotonic() > deadline:
                    sys.exit(f'in {patience} s this did not succeed: {statement}\n{error}')
            if instead is not None:
                try:
                    self.sql(instead)
                except psycopg.Error:
                    pass
            time.sleep(0.2)

    def note(self, line):
        """A line of the run's own history: the faults, with their instants."""
        with self.noting, open(self.folder / 'faults.jsonl', 'a', encoding='utf-8') as file:
            file.write(json.dumps(line) + '\n')

    # Clients.

    def start_client(self, kind, number):
        name = f'{kind}-{number}'
        generation = self.generations[name] = self.generations.get(name, 0) + 1
        environment = {**os.environ, 'PGUSER': 'bank', 'PGDATABASE': 'chaos'}
        with open(self.folder / f'{name}.log', 'a', encoding='utf-8') as log:
            self.clients[name] = subprocess.Popen(
                [sys.executable, '-B', HERE / 'client.py', kind, f'{name}.{generation}', self.folder, self.seed],
                env=environment, stderr=log, stdout=log)

    def start_clients(self):
        for kind, count in CLIENTS.items():
            for number in range(1, count + 1):
                self.start_client(kind, number)

    def replace_dead_clients(self):
        for name, process in list(self.clients.items()):
            if process.poll() is not None and not (process.returncode == 0):
                if process.pid not in self.killed:
                    self.deaths.append((name, process.returncode))
                kind, number = name.rsplit('-', 1)
                self.start_client(kind, number)

    def client_pids(self, kinds=None):
        return [process.pid for name, process in self.clients.items()
                if process.poll() is None and (kinds is None or name.rsplit('-', 1)[0] in kinds)]

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

    def set_phase(self, phase):
        new = self.folder / 'phase.new'
        new.write_text(phase)
        new.rename(self.folder / 'phase')
