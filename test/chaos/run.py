"""run.py [--quick] [--seconds N] [--seed N] FOLDER: one run of the harness, inside a private server.

Starts the clients, injects faults, lets the work come to its end, and runs the checker. FOLDER keeps
what was recorded. Environment of with-postgres. Exits 1 when a promise was broken.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

import psycopg

from faults import Schedule
from world import HERE, World

# Why the run is not settled: nothing is left when every row says 0.
UNSETTLED = """
    SELECT 'sagas that are ' || status, count(*) FROM stacksaga.sagas
     WHERE status NOT IN ('completed', 'failed') GROUP BY status
    UNION ALL
    SELECT 'messages for ' || subscription, lag_messages + blocked_keys + dead_messages FROM stacksaga.subscriptions
     WHERE lag_messages + blocked_keys + dead_messages > 0"""


def set_up(world):
    """The database, the role and what bank.sql makes."""
    world.sql('CREATE DATABASE chaos', 'CREATE DATABASE elsewhere', 'CREATE ROLE bank LOGIN', database='postgres')
    world.sql('CREATE EXTENSION stacksaga', 'GRANT CREATE ON DATABASE chaos TO bank',
              *(f"SELECT stacksaga.grant_usage('bank', '{level}')" for level in ('service', 'operator', 'monitor')))
    with psycopg.connect(dbname='chaos', user='bank', autocommit=True) as connection:
        connection.execute((HERE / 'bank.sql').read_text())


def unsettled(world):
    """What is left to do, as text; empty when everything came to its end."""
    with world.connect() as connection:
        return ', '.join(f'{count} {what}' for what, count in connection.execute(UNSETTLED))


def inject(world, schedule, seconds, pause):
    """Faults for so many seconds, then none in force."""
    started = said = time.monotonic()
    while time.monotonic() - started < seconds:
        schedule.begin_one()
        time.sleep(schedule.random.uniform(*pause))
        world.replace_dead_clients()
        if time.monotonic() - said > 60:
            said = time.monotonic()
            print(f'  {said - started:.0f} s, {sum(schedule.injected.values())} faults', flush=True)
    schedule.finish()


def settle(world, patience):
    """Nothing new is started; waits until nothing is left to do. Returns what is left."""
    world.set_phase('drain')
    deadline = time.monotonic() + patience
    left = 'unknown'
    while left and time.monotonic() < deadline:
        world.replace_dead_clients()
        time.sleep(0.5)
        try:
            # Twice: between two steps of a chain of messages nothing may be left for an instant.
            left = unsettled(world) or unsettled(world)
        except psycopg.Error as error:
            left = str(error)
    world.set_phase('stop')
    for process in world.clients.values():
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
    return left


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seconds', type=int, default=3600)
    parser.add_argument('--seed', type=int, required=True)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('folder', type=pathlib.Path)
    arguments = parser.parse_args()
    world = World(arguments.folder, str(arguments.seed))
    (arguments.folder / 'history').mkdir(parents=True)
    world.set_phase('run')
    set_up(world)
    world.start_clients()
    schedule = Schedule(world, arguments.seed)
    inject(world, schedule, arguments.seconds, (0.5, 2) if arguments.quick else (0.5, 6))
    left = settle(world, 40 if arguments.quick else 600)
    print('Faults injected:')
    for name, count in schedule.injected.items():
        print(f'  {count:5} {name}')
    if left:
        print(f'NOT SETTLED: {left}')
    for name, status in world.deaths:
        print(f'NOT OK: client {name} ended with status {status}: {world.folder / name}.log')
    shutil.copy(os.environ['STACKSAGA_LOG'], arguments.folder / 'server.log')
    checked = subprocess.run([sys.executable, '-B', HERE / 'check.py', '--database', 'chaos', arguments.folder],
                             env={**os.environ, 'PGUSER': 'postgres'})
    sys.exit(1 if world.deaths or left else checked.returncode)


main()
