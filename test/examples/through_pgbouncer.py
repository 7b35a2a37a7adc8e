"""A PgBouncer in transaction mode before the private server. It gives each transaction a new session of the server, so that
a program which leaves something in a session for the next transaction fails, however few sessions there are."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from waiting import LOGS, wait_until

# Debian keeps it where only root looks.
PROGRAM = shutil.which('pgbouncer', path=f"{os.environ['PATH']}:/usr/sbin")
needs_pgbouncer = unittest.skipUnless(PROGRAM, 'needs pgbouncer')

SETTINGS = """
[databases]
* = host={PGHOST} port={PGPORT}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {PGPORT}
auth_type = trust
stats_users = {PGUSER}
auth_file = {folder}/users
pool_mode = transaction
server_lifetime = 0
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
"""


class PgBouncer:
    """address has the variables by which libpq finds it."""

    def __init__(self):
        # The folder of the server's socket, which its user owns: PgBouncer does not run as root.
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ['PGHOST']))
        (self.folder / 'users').write_text('"{PGUSER}" ""\n'.format(**os.environ))
        (self.folder / 'settings').write_text(SETTINGS.format(folder=self.folder, **os.environ))
        self.address = {'PGHOST': str(self.folder)}
        user = ()
        if os.geteuid() == 0:
            shutil.chown(self.folder, 'postgres')
            user = '--reuid', 'postgres', '--clear-groups'
        self.process = subprocess.Popen(('setpriv', *user, '--pdeathsig', 'TERM', PROGRAM, '-q', self.folder / 'settings'))
        socket = self.folder / '.s.PGSQL.{PGPORT}'.format(**os.environ)
        wait_until(lambda: socket.exists() or self.process.poll() is not None, 'PgBouncer listens')

    def clients(self):
        """How many sessions of programs it has."""
        shown = subprocess.run(('psql', '-XAtc', 'SHOW CLIENTS', 'pgbouncer'), env={**os.environ, **self.address},
                               text=True, capture_output=True, check=True).stdout
        return sum(line.split('|')[2] != 'pgbouncer' for line in shown.splitlines())

    def stop(self):
        self.process.terminate()
        self.process.wait()
        LOGS.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.folder / 'log', LOGS / 'pgbouncer.log')
