"""What the benches share: they measure how one thing compares with another in the same run.

A bench is a file of this folder that ends with measure.main(run). run(bench) calls bench.compare()
once for each row of its table. Rounds take turns (A B, B A, A B, ...), so what else the machine
does meets both; a row is the median of the rounds' ratios, with the smallest and the largest.

Rates depend on the machine and on its disk, so they are only printed; the table holds ratios.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import psycopg

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'performance.md'
PGBENCH = pathlib.Path(os.environ['STACKSAGA_BINDIR']) / 'pgbench'
TICKS = os.sysconf('SC_CLK_TCK')
WORKERS_SHARE = """
    SELECT count(DISTINCT s.owner) = w.running AND w.running = %s
           AND bool_and(n.pid IN (SELECT pid FROM pg_stat_activity))
      FROM stacksaga.slot s JOIN stacksaga.node n ON n.incarnation = s.owner,
           (SELECT count(*) AS running FROM stacksaga.worker_stats JOIN pg_stat_activity USING (pid)) AS w
     WHERE s.ring_id = 1 GROUP BY w.running
"""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a number of items cost: seconds of wall time, of the server's CPU time, bytes of WAL."""
    items: int
    seconds: float
    cpu_seconds: float
    wal_bytes: int = 0

    def per_item(self):
        return self.seconds / self.items, self.cpu_seconds / self.items

    def __str__(self):
        _, cpu = self.per_item()
        wal = f' {self.wal_bytes / self.items:6,.0f} B WAL' if self.wal_bytes >= self.items else ''
        return f'{self.items / self.seconds:9,.0f}/s {cpu * 1e6:8,.1f} us CPU{wal}'


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: ratios of ours to theirs, one a round; below 1 ours is cheaper."""
    what: str
    against: str
    clients: str
    time: tuple
    cpu: tuple
    rates: tuple  # medians, ours and theirs, in items a second
    goal: float | None
    cpu_goal: float | None

    def cells(self):
        goals = [(name, goal, ratios) for name, goal, ratios in (('', self.goal, self.time), ('CPU ', self.cpu_goal, self.cpu))
                 if goal is not None]
        goal = met = '-'
        if goals:
            goal = ', '.join(f'{name}{goal:g}' for name, goal, _ in goals)
            met = 'yes' if all(statistics.median(ratios) <= goal for _, goal, ratios in goals) else 'no'
        rates = ' : '.join(digits(rate) for rate in self.rates)
        return self.what, self.against, self.clients, spread(self.time), spread(self.cpu), rates, goal, met


HEADING = ('what', 'against', 'clients', 'time', 'CPU', 'a second', 'goal', 'met')


def spread(ratios):
    """The median, the smallest and the largest, as text."""
    return f'{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})'


def digits(value):
    """A number with three digits, or with all those of its integer."""
    return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'


def process_ticks(pid, first):
    """Two counters of /proc/PID/stat (see proc(5)), user and system time, added, in seconds."""
    # The name of the program, in parentheses, may hold blanks; it is the second field.
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[first - 3]) + int(fields[first - 2])) / TICKS


def cpu_of(pid):
    """The CPU time that a process has used, in seconds."""
    return process_ticks(pid, 14)


def wait_until(condition, what, patience=600, pause=0.002):
    """Polls until condition() is true; patience and pause are seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f'in {patience} s it did not happen that {what}')
        time.sleep(pause)


class Database:
    """A database of the bench's server: SQL in a session of its own, and load by pgbench."""

    def __init__(self, name):
        with psycopg.connect(dbname='postgres', autocommit=True) as db:
            db.execute(f'CREATE DATABASE {name}')
        self.name = name
        self.session = psycopg.connect(dbname=name, autocommit=True)
        self.postmaster = int(
            (pathlib.Path(os.environ['PGDATA']) / 'postmaster.pid').read_text().splitlines()[0])

    def sql(self, statements, *parameters):
        """Runs SQL and returns the first column of the first row, None if there are no rows."""
        # Without parameters there may be many statements; None says so.
        cursor = self.session.execute(statements, parameters or None)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def must(self, condition, *parameters):
        """Ends the bench unless the query returns true: what was measured must have happened."""
        if self.sql(condition, *parameters) is not True:
            sys.exit(f'{self.name}: this does not hold, so nothing was measured: {condition}')

    def children(self):
        """The pids of the server's processes."""
        task = pathlib.Path(f'/proc/{self.postmaster}/task/{self.postmaster}/children')
        return set(task.read_text().split())

    def cpu(self):
        """The CPU time of all the server's processes, those that have ended included, in seconds."""
        try:
            # A process that has ended is counted by the postmaster.
            return (cpu_of(self.postmaster) + process_ticks(self.postmaster, 16) +
                    sum(cpu_of(pid) for pid in self.children()))
        except (FileNotFoundError, ProcessLookupError):  # it has ended since the list was read
            return self.cpu()

    def set_workers(self, count):
        """Changes how many workers there are, and returns when each of them owns its part of the ring."""
        self.sql(f'ALTER SYSTEM SET stacksaga.workers = {count}')
        self.sql('SELECT pg_reload_conf()')
        wait_until(lambda: self.sql(WORKERS_SHARE, count), f'{count} workers share the ring', patience=120,
                   pause=0.1)

    def worker_cpu(self):
        """The CPU time that the workers that run now have used, in seconds."""
        with self.session.execute(
                'SELECT pid FROM stacksaga.worker_stats JOIN pg_stat_activity USING (pid)') as cursor:
            return sum(cpu_of(row[0]) for row in cursor.fetchall())

    def wal_position(self):
        """How many bytes of WAL the server has written since it was made."""
        return int(self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def load(self, script, *, clients, seconds=None, transactions=None, items=1, seed=1, variables=None):
        """Runs a script of pgbench and returns its Cost.

        It runs for so many seconds, or so often per client; a transaction is so many items. The CPU
        time is that of all processes of the server: a worker's beside it counts. The script's variables
        have the values of `variables` at first.
        """
        with tempfile.NamedTemporaryFile('w', suffix='.sql') as file:
            file.write(script)
            file.flush()
            extent = ['-T', str(seconds)] if transactions is None else ['-t', str(transactions)]
            defined = [argument for name, value in (variables or {}).items() for argument in ('-D', f'{name}={value}')]
            before, processes = self.cpu(), self.children()
            wal_before = self.wal_position()
            done = subprocess.run(
                [PGBENCH, '-n', '-M', 'prepared', '-c', str(clients), '-j', str(min(clients, 2)),
                 '--random-seed', str(seed), *extent, *defined, '-f', file.name, self.name],
                capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f'pgbench failed:\n{done.stdout}{done.stderr}')
        wait_until(lambda: self.children() <= processes, 'the connections end')
        cpu = self.cpu() - before
        count = int(re.search(r'actually processed: (\d+)', done.stdout)[1])
        rate = float(re.search(r'tps = ([\d.]+) \(without', done.stdout)[1])
        if count == 0:
            sys.exit(f'pgbench finished no transaction:\n{done.stdout}')
        return Cost(count * items, count / rate, cpu, self.wal_position() - wal_before)


class Bench:
    """One run of one bench: how long it takes, and the rows of its table."""

    def __init__(self, arguments):
        self.quick = arguments.quick
        self.rounds = arguments.rounds or (3 if self.quick else 7)
        self.asked_seconds = arguments.seconds
        self.seconds = arguments.seconds or (1 if self.quick else 5)
        # What the table says about the length of a round.
        self.extent = f'{self.seconds} s'
        self.rows = []

    def database(self, name='bench'):
        """A new database that has the extension."""
        database = Database(name)
        database.sql('CREATE EXTENSION stacksaga')
        return database

    def compare(self, what, ours, against, theirs, *, clients='-', goal=None, cpu_goal=None):
        """Adds a row. ours(seed) and theirs(seed) return the Cost of one round.

        The seed is the same for both, and another one for each round of the bench: a round that
        draws keys from it has keys that no other one had.
        """
        print(f'\n{what} against {against}, clients: {clients}', flush=True)
        times, cpus, rates = [], [], []
        for number in range(1, self.rounds + 1):
            order = (ours, theirs) if number % 2 else (theirs, ours)
            seed = len(self.rows) * self.rounds + number
            first, second = (measured(seed) for measured in order)
            mine, other = (first, second) if number % 2 else (second, first)
            print(f'  {number}: {mine}   against {other}', flush=True)
            (my_time, my_cpu), (other_time, other_cpu) = mine.per_item(), other.per_item()
            times.append(my_time / other_time)
            cpus.append(my_cpu / other_cpu)
            rates.append((1 / my_time, 1 / other_time))
        medians = tuple(map(statistics.median, zip(*rates)))
        self.rows.append(Row(what, against, str(clients), tuple(times), tuple(cpus), medians, goal, cpu_goal))

    def table(self):
        """The rows as a table of Markdown, and what it was measured with."""
        lines = [HEADING, ('---',) * len(HEADING), *(row.cells() for row in self.rows)]
        text = '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
        return (f'{text}\n\nPostgreSQL {server_major()}, fsync on, {os.cpu_count()} cores shared by '
                f'client and server; {self.rounds} rounds of {self.extent} each.\n')


class Figures(Bench):
    """A bench of one thing by itself: figures of one machine, each with what it may be at most or must be
    at least."""

    def figure(self, what, values, unit, *, at_most=None, at_least=None):
        """Adds a row: the median of what was measured, the smallest and the largest."""
        middle = statistics.median(values)
        goal = met = '-'
        if at_most is not None:
            goal, met = f'{at_most:g} {unit}', 'yes' if middle <= at_most else 'no'
        if at_least is not None:
            goal, met = f'at least {at_least:g} {unit}', 'yes' if middle >= at_least else 'no'
        measured = f'{digits(middle)} {unit} ({digits(min(values))} to {digits(max(values))})'
        self.rows.append((what, measured, goal, met))
        print(f'{what}: {measured}', flush=True)

    def table(self):
        lines = [('what', 'measured', 'goal', 'met'), ('---',) * 4, *self.rows]
        text = '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
        return f'{text}\n\n{self.extent}; PostgreSQL {server_major()}, {os.cpu_count()} cores.\n'


def server_major():
    """The major version of the server."""
    with psycopg.connect(dbname='postgres') as db:
        major = db.execute("SELECT current_setting('server_version_num')::int / 10000")
        return major.fetchone()[0]


def write_table(name, table):
    """Puts the table between the bench's marks in the page of the documentation."""
    text = PAGE.read_text()
    marks = re.compile(rf'(?<=<!-- bench {name} -->\n).*?(?=<!-- end -->)', re.DOTALL)
    if not marks.search(text):
        sys.exit(f'{PAGE} has no marks <!-- bench {name} --> and <!-- end -->')
    PAGE.write_text(marks.sub(lambda _: table, text, count=1))


def main(run, kind=Bench):
    """What a bench ends with: runs run(bench), a Bench or one of Figures, and prints or writes its table."""
    name = pathlib.Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(prog=name, description=sys.modules['__main__'].__doc__)
    parser.add_argument('--quick', action='store_true', help='small tables and short rounds')
    parser.add_argument('--rounds', type=int, help='how often each of the two is measured')
    parser.add_argument('--seconds', type=int, help='how long a round takes')
    parser.add_argument('--write', action='store_true', help=f'put the table into {PAGE.name}')
    arguments = parser.parse_args()
    bench = kind(arguments)
    run(bench)
    table = bench.table()
    print(f'\n{table}', flush=True)
    if arguments.write:
        write_table(name, table)
