"""run.py [--cut] [--faults] [--place NAME]... [--scenario NAME]... [--point NAME]... [--passings N] [--seed N]
[--report FILE]: ends the server at each crash point, in each scenario.

Then items whose reading fails, unless a scenario or a point was chosen (faults.py). --place: these alone, at one place.

A scenario is traced first, so that only points are tried that it passes. Then, point by point, it is done again, the
server ends there and recovers, and what the scenario promises is checked. A point that no scenario passes fails the
run. Inside a server that was built with crash points.
"""

import argparse
import os
import pathlib
import random
import sys
import time

import psycopg

import faults
import key_scenarios
import message_scenarios
import scenarios
from scenarios import Scenario
from server import DATABASE, HERE, Client, Points, every_point

# So many points are tried in a cut, another choice with each seed.
CUT = 40

# At the end of a transaction everything is decided: the end of each is tried, up to this many of a scenario.
ENDS = 6


def every_scenario():
    """One of each, in the order of the files."""
    found = {}
    for module in (scenarios, message_scenarios, key_scenarios):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Scenario) and kind.name:
                found[kind.name] = kind
    return [kind() for kind in found.values()]


class Run:
    """The scenarios, the points that each passes, and what went wrong."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.client = Client()
        self.points = Points()
        self.number = 0
        self.crashed = {name: 0 for name in every_point()}
        self.failures = []
        self.rows = []          # of the report: point, scenario, verdict

    def do(self, scenario, *points):
        """One scenario under a new tag. Returns whether the server has crashed at the points."""
        self.number += 1
        tag = f'{self.chosen.seed}-{self.number}'
        if points:
            self.points.arm(*points)
        wrong = []
        try:
            scenario.work(self.client, tag)
        except (TimeoutError, psycopg.Error) as error:
            wrong.append(f'{type(error).__name__}: {error}')
        crashed = self.points.disarm()
        wrong.extend(scenario.wrong(self.client, tag))
        for what in wrong:
            self.failures.append(f'{scenario.name}, crash at "{", ".join(points)}", tag {tag}: {what}')
            print(f'not ok: {self.failures[-1]}', flush=True)
        return crashed

    def trace(self, scenario):
        """How often the scenario passes each point, after the crash that it begins with."""
        self.points.begin_trace()
        self.do(scenario, *scenario.before)
        return self.points.end_trace()

    def plan(self, all_scenarios):
        """A scenario, a point that it passes and at which passing: all, or those that were asked for, or a choice."""
        pairs = []
        for scenario in all_scenarios:
            passed = self.trace(scenario)
            for point in self.crashed:
                if not self.chosen.point or point in self.chosen.point:
                    most = ENDS if point.startswith('transaction: ') else self.chosen.passings
                    pairs += [(scenario, point, number) for number in range(1, min(most, passed.get(point, 0)) + 1)]
        if not self.chosen.cut:
            return pairs
        # Each point at most once, in a scenario that is drawn too.
        chooser = random.Random(self.chosen.seed)
        chooser.shuffle(pairs)
        return list({point: (scenario, point, passing) for scenario, point, passing in pairs}.values())[:CUT]

    def run(self, all_scenarios):
        plan = self.plan(all_scenarios)
        missed = 0
        said = time.monotonic()
        for number, (scenario, point, passing) in enumerate(plan):
            # What depends on chance may pass it in the second try.
            armed = (*scenario.before, f'{point}#{passing}')
            failed = len(self.failures)
            if self.do(scenario, *armed) or self.do(scenario, *armed):
                self.crashed[point] += 1
                self.rows.append((point, scenario.name, 'ok' if len(self.failures) == failed else 'failed'))
            else:
                missed += 1
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(f'  {number + 1} of {len(plan)} crashes', flush=True)
        if not (self.chosen.cut or self.chosen.scenario or self.chosen.point):
            for point, times in self.crashed.items():
                if times == 0:
                    self.failures.append(f'no scenario crashes at "{point}"')
                    print(f'not ok: {self.failures[-1]}')
        print(f'{sum(self.crashed.values())} crashes at {sum(map(bool, self.crashed.values()))} of {len(self.crashed)}'
              f' points in {len(all_scenarios)} scenarios, {missed} points not passed again, '
              f'{len(self.failures)} failures; seed {self.chosen.seed}')


def options(names):
    parser = argparse.ArgumentParser(prog='crash-points', description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--cut', action='store_true', help=f'{CUT} points, another choice with each seed')
    parser.add_argument('--faults', action='store_true', help='items whose reading fails, and no crash')
    parser.add_argument('--place', action='append', choices=faults.NAMES, help='as --faults, at this place alone')
    parser.add_argument('--scenario', action='append', choices=names)
    parser.add_argument('--point', action='append', choices=every_point())
    parser.add_argument('--passings', type=int, default=1, help='each point at its first N passings, not the first alone')
    parser.add_argument('--seed', type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument('--report', type=pathlib.Path, help='writes the crashes as tab-separated values')
    return parser.parse_args()


def main():
    known = every_scenario()
    chosen = options([scenario.name for scenario in known])
    with psycopg.connect(dbname='postgres', autocommit=True) as server:
        server.execute(f'CREATE DATABASE {DATABASE}')
    run = Run(chosen)
    run.client.run('CREATE EXTENSION stacksaga')
    run.client.run((HERE / 'definitions.sql').read_text())
    if not (chosen.faults or chosen.place):
        run.run([scenario for scenario in known if not chosen.scenario or scenario.name in chosen.scenario])
    if not (chosen.scenario or chosen.point):
        run.failures += faults.every_fault(run.client, chosen.place)
    if chosen.report:
        lines = ['\t'.join(row) for row in [('point', 'scenario', 'verdict'), *run.rows]]
        chosen.report.write_text('\n'.join(lines) + '\n')
    sys.exit(1 if run.failures else 0)


main()
