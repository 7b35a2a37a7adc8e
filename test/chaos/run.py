"""run.py [--quick] [--seconds N] --seed N [--only FAULT]... FOLDER: one run of the harness, inside a private server.

Starts the clients, injects faults, lets the work come to its end, and runs the checker. FOLDER keeps
what was recorded. Environment of with-postgres. Exits 1 when a promise was broken.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import psycopg

from schedule import Schedule
from world import COORDINATOR, HERE, World

# Why the run is not settled: nothing is left when every row says 0.
UNSETTLED = """
    SELECT 'sagas that are ' || status, count(*) FROM stacksaga.sagas
     WHERE status NOT IN ('completed', 'failed') GROUP BY status
    UNION ALL
    SELECT 'messages for ' || subscription, lag_messages + blocked_keys + dead_messages FROM stacksaga.subscriptions
     WHERE lag_messages + blocked_keys + dead_messages > 0"""


# Windows and patience are short, so that many owners change in a run.
RING = (('window_length', '2 seconds'), ('publish_lead', '1 second'), ('heartbeat_interval', '300 ms'),
        ('suspect_after', '1 second'), ('dead_after', '2 seconds'), ('checkpoint_interval', '1 second'))


def set_up(world):
    """The database, the role and what bank.sql makes."""
    tablespace = ''
    if world.disk:
        world.move_wal()
        data = pathlib.Path(world.disk) / 'data'
        data.mkdir()
        shutil.chown(data, world.data.owner())
        world.sql(f"CREATE TABLESPACE small LOCATION '{data}'", database='postgres')
        tablespace = ' TABLESPACE small'
    world.sql(f'CREATE DATABASE chaos{tablespace}', 'CREATE DATABASE elsewhere', 'CREATE ROLE bank LOGIN',
              'CREATE ROLE coordinator LOGIN', database='postgres')
    world.sql('CREATE EXTENSION stacksaga', 'GRANT CREATE ON DATABASE chaos TO bank',
              "SELECT stacksaga.grant_usage('coordinator', 'coordinator')",
              *(f"SELECT stacksaga.grant_usage('bank', '{level}')" for level in ('service', 'operator', 'monitor')),
              *(f"SELECT stacksaga.alter_ring('default', 'default', '{name}', '{value}')" for name, value in RING))
    with psycopg.connect(dbname='chaos', user='bank', autocommit=True) as connection:
        connection.execute((HERE / 'bank.sql').read_text())


def unsettled(world):
    """What is left to do, as text; empty when everything came to its end."""
    with world.connect() as connection:
        return ', '.join(f'{count} {what}' for what, count in connection.execute(UNSETTLED))


def inject(world, schedule, seconds, pause):
    """Faults for so many seconds."""
    started = said = time.monotonic()
    while time.monotonic() - started < seconds:
        schedule.begin_one()
        time.sleep(schedule.random.uniform(*pause))
        world.revive()
        world.replace_dead_clients()
        if time.monotonic() - said > 60:
            said = time.monotonic()
            print(f'  {said - started:.0f} s, {sum(schedule.injected.values())} faults', flush=True)


def settle(world, patience):
    """Nothing new is started; waits until nothing is left to do. Returns what is left."""
    world.set_phase('drain')
    deadline = time.monotonic() + patience
    left = 'unknown'
    while left and time.monotonic() < deadline:
        world.revive()
        world.replace_dead_clients()
        time.sleep(0.5)
        try:
            # Twice: between two steps of a chain of messages nothing may be left for an instant.
            left = unsettled(world) or unsettled(world)
        except psycopg.Error as error:
            left = str(error)
    world.set_phase('stop')
    world.end_processes()
    return left


def write_report(arguments, injected, failed):
    """report.json: the run in figures, from which docs/proof.md is made."""
    kept = arguments.folder / 'checked.json'
    checked = json.loads(kept.read_text()) if kept.exists() else {}
    report = {'seed': arguments.seed, 'seconds': arguments.seconds, 'failed': failed, 'faults': injected, **checked}
    (arguments.folder / 'report.json').write_text(json.dumps(report, indent=1) + '\n')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seconds', type=int, default=3600)
    parser.add_argument('--seed', type=int, required=True)
    parser.add_argument('--only', action='append')
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('folder', type=pathlib.Path)
    arguments = parser.parse_args()
    if not COORDINATOR.exists():
        parser.error(f'no coordinator at {COORDINATOR}: run "make coordinator"')
    world = World(arguments.folder, str(arguments.seed))
    (arguments.folder / 'history').mkdir(parents=True)
    world.set_phase('run')
    set_up(world)
    world.start_proxy()
    world.start_clients()
    schedule = Schedule(world, arguments.seed, arguments.only)
    pause = (0.3, 1.2) if arguments.quick else (0.5, 4)
    # First the workers share the ring by themselves, then coordinators assign it.
    inject(world, schedule, arguments.seconds * 0.5, pause)
    world.start_daemons()
    inject(world, schedule, arguments.seconds * 0.5, pause)
    schedule.finish()
    left = settle(world, 60 if arguments.quick else 600)
    print('Faults injected:')
    for name, count in schedule.injected.items():
        print(f'  {count:5} {name}')
    if left:
        print(f'NOT SETTLED: {left}')
    for name, status in world.crashes:
        print(f'NOT OK: client {name} ended with status {status}: {world.folder / name}.log')
    for violation in world.violations:
        print(f'NOT OK: {violation}')
    shutil.copy(os.environ['STACKSAGA_LOG'], arguments.folder / 'server.log')
    checked = subprocess.run([sys.executable, '-B', HERE / 'check.py', '--database', 'chaos', arguments.folder],
                             env={**os.environ, 'PGUSER': 'postgres'})
    failed = bool(world.crashes or world.violations or left or checked.returncode)
    write_report(arguments, schedule.injected, failed)
    sys.exit(1 if failed else 0)


main()
