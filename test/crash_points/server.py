"""The server that is ended at a crash point, and a client that lives on."""

import os
import pathlib
import re
import time

import psycopg

HERE = pathlib.Path(__file__).parent
HEADER = HERE.parents[1] / 'extension' / 'pg' / 'crash_point.hpp'
DATABASE = 'crash'
PATIENCE = 60


def every_point():
    """The names in the table of the header."""
    table = re.search(r'crash_points\[\]\{\n(.*?)\};', HEADER.read_text(), re.DOTALL)[1]
    return re.findall(r'^ *"(.*)",$', table, re.MULTILINE)


class Points:
    """The files by which points are armed, and passings are traced."""

    def __init__(self):
        folder = pathlib.Path(os.environ['PGDATA'])
        self.armed, self.taken, self.trace = (
            folder / f'stacksaga.crash_{name}' for name in ('at', 'taken', 'trace'))

    def arm(self, *points):
        """Ends the server at the first one, then at the next; NAME#3 at the third passing. A file appears whole."""
        new = self.armed.with_suffix('.new')
        new.write_text(''.join(f'{point}\n' for point in points))
        new.chmod(0o666) # the server writes down what is left of it
        self.taken.unlink(missing_ok=True)
        new.rename(self.armed)

    def disarm(self):
        """Whether nothing was left armed: then all have crashed."""
        crashed = not self.armed.exists()
        self.armed.unlink(missing_ok=True)
        return crashed

    def begin_trace(self):
        self.trace.write_text('')
        self.trace.chmod(0o666)

    def end_trace(self):
        """The names that were passed, with how often."""
        names = self.trace.read_text().splitlines()
        self.trace.unlink()
        return {name: names.count(name) for name in names}


class Client:
    """A session that is opened again when the server has crashed. What it does must bear repetition: it does not
    know whether a commit whose answer it lost took place."""

    def __init__(self):
        self.connection = None

    def do(self, function):
        """Calls function(connection) in a transaction, again after each loss of the server."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self.connection is None:
                    self.connection = psycopg.connect(dbname=DATABASE, autocommit=True)
                with self.connection.transaction():
                    return function(self.connection)
            except psycopg.OperationalError:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def rows(self, sql, *parameters):
        return self.do(lambda connection: connection.execute(sql, parameters or None).fetchall())

    def value(self, sql, *parameters):
        """The first column of the first row; None if there is no row."""
        rows = self.rows(sql, *parameters)
        return rows[0][0] if rows else None

    def run(self, sql, *parameters):
        self.do(lambda connection: connection.execute(sql, parameters or None) and None)

    def until(self, what, condition, patience=PATIENCE):
        """Calls condition() until it is true; raises TimeoutError."""
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f'in {patience} s it did not happen that {what}')
            time.sleep(0.02)
