"""sweep.py [OPTION]...: measures each hot call at many loads, and fails where more clients or rows make it slow.

Points are measured in short rounds that take turns. A point whose best round falls below the limit, times that of its
neighbour with fewer clients or rows, is measured again together with that neighbour, in more rounds,
and fails if most of these say so, too. Runs inside test/tools/with-postgres.
"""

import argparse
import itertools
import pathlib
import sys
import time

import psycopg

from calls import every_call
from filled import Database, Filled
from load import WARM
from points import EVERY_CONDITION, PAIRWISE, Again, Group, Place, Report, Round, part, table

# How many seconds a round lasts, besides its first one.
SECONDS = 1

# What the cut leaves: points far apart, under the conditions that are hardest on a plan, and a limit
# that only a collapse falls below, because it runs beside anything.
CUT = {'calls': 'start,claim,complete,publish,receive,idempotency,sagas,metrics', 'clients': '1,16',
       'rows': '0,100000', 'seconds_per_point': 1, 'conditions': 'stale/worker/held', 'limit': 0.5,
       'rounds_again': 3, 'rounds_of_floor': 2}
FULL = {'calls': ','.join(every_call()), 'clients': '1,4,16,64', 'rows': '0,100000,1000000', 'seconds_per_point': 1,
        'conditions': ','.join(map(str, PAIRWISE)), 'limit': 0.8, 'rounds_again': 12, 'rounds_of_floor': 8}


def numbers(text):
    return sorted(int(part) for part in text.split(','))


def options():
    """The options, those that are not given taken from the cut or from the full sweep."""
    parser = argparse.ArgumentParser(prog='sweep', description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--cut', action='store_true', help='two minutes, for gross collapses only')
    parser.add_argument('--calls', help=f'of {FULL["calls"]}')
    parser.add_argument('--clients', help=FULL['clients'])
    parser.add_argument('--rows', help=FULL['rows'])
    parser.add_argument('--conditions', help=f'all, or of {",".join(map(str, EVERY_CONDITION))}')
    parser.add_argument('--seconds-per-point', type=int, help='rounds of a second each, besides its first one')
    parser.add_argument('--limit', type=float, help='what part of its neighbour\'s rate a point must reach')
    parser.add_argument('--rounds-again', type=int, help='of a point that fell below the limit, and its neighbour')
    parser.add_argument('--rounds-of-floor', type=int, help='of a transaction by hand at each number of clients')
    parser.add_argument('--plant', metavar='SQL', help='runs this in each database before it is filled: a proof that '
                        'the sweep notices, say, an index that is not there')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--report', type=pathlib.Path, help='writes the points as tab-separated values')
    parser.add_argument('--go-on', action='store_true', help='keeps what the report has, and measures the rest')
    chosen = parser.parse_args()
    if chosen.go_on and not chosen.report:
        parser.error('--go-on needs the --report that it goes on with')
    for name, value in (CUT if chosen.cut else FULL).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    calls, conditions = every_call(), {str(condition): condition for condition in EVERY_CONDITION}
    try:
        chosen.calls = [calls[name] for name in chosen.calls.split(',')]
        chosen.conditions = (EVERY_CONDITION if chosen.conditions == 'all' else
                             [conditions[name] for name in chosen.conditions.split(',')])
        chosen.clients, chosen.rows = numbers(chosen.clients), numbers(chosen.rows)
    except (KeyError, ValueError) as error:
        parser.error(f'unknown: {error}')
    return chosen


class Sweep:
    """One run: the filled databases, the one of the floors, and the groups that were measured."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.filled = Filled(chosen.plant)
        self.by_hand = Database('by_hand')
        self.report = Report(chosen.report, chosen.go_on) if chosen.report else None
        self.groups = []
        self.floors = {}
        self.seed = chosen.seed

    def measure_group(self, call, conditions):
        """All points of one call under one set of conditions, and the doubtful ones again."""
        by_hand = call.floor_under(conditions)

        def floor(place):
            self.seed += 1
            return by_hand.rate(self.by_hand, max(place.rows, call.least), place.clients, SECONDS, self.seed)

        started = time.monotonic()
        group = Group(call.name, conditions, {}, floors=self.floors_of(by_hand, floor))
        with self.filled.copies(call, self.chosen.rows, conditions) as databases:
            def rate(place):
                self.seed += 1
                return call.rate(databases[place.rows], place.rows, place.clients, SECONDS, self.seed, conditions)

            places = [Place(rows, clients) for clients in self.chosen.clients for rows in self.chosen.rows]
            for number in range(self.chosen.seconds_per_point):
                # There and back, so that a place is not always measured after the same other one.
                for place in places if number % 2 == 0 else reversed(places):
                    group.rates.setdefault(place, []).append(rate(place))
            for pair in group.below(self.chosen.limit):
                may_differ = by_hand.is_of_rows or pair[0].clients != pair[1].clients
                is_measured = may_differ and not (by_hand.needs_vacuum and conditions.snapshot == 'held')
                self.measure_pair(group, pair, rate, floor if is_measured else None)
        self.groups.append(group)
        failures = group.failures(self.chosen.limit)
        print(f'{group.call} {conditions}: {len(group.rates)} points in {time.monotonic() - started:.0f} s, '
              f'{len(group.again)} measured again, {len(failures)} failed', flush=True)
        for pair in failures:
            print(f'  {group.explain(pair, self.chosen.limit)}', flush=True)

    def floors_of(self, by_hand, floor):
        """The floor's rates at each number of clients, measured once for all calls that have this one, and while no
        snapshot is held."""
        if by_hand not in self.floors:
            rates = {clients: [] for clients in self.chosen.clients}
            for _, clients in itertools.product(range(self.chosen.rounds_of_floor), self.chosen.clients):
                rates[clients].append(floor(Place(min(self.chosen.rows), clients)))
            self.floors[by_hand] = rates
        return self.floors[by_hand]

    def measure_pair(self, group, pair, rate, floor):
        """Both places of a pair, and the floor at both if there is one, in rounds that take turns, A B, B A, ..., until
        the rest would change nothing."""
        again = group.again[pair] = Again()
        first = group.first(pair)
        while not again.is_decided(self.chosen.limit, self.chosen.rounds_again):
            rates, floors = {}, {}
            for place in pair if len(again.rounds) % 2 == 0 else reversed(pair):
                rates[place] = rate(place)
                if floor:
                    floors[place] = floor(place)
            kept = part(floors[pair[0]], floors[pair[1]]) if floor else first.floor_kept
            again.rounds.append(Round(rates[pair[0]], rates[pair[1]], kept))

    def run(self):
        """Measures everything that is not reported yet; returns what failed, in words."""
        reported = self.report.groups() if self.report else set()
        for call, conditions in itertools.product(self.chosen.calls, self.chosen.conditions):
            if (call.name, str(conditions)) in reported:
                print(f'{call.name} {conditions}: reported before', flush=True)
                continue
            self.measure_group(call, conditions)
            if self.report:
                self.report.add(self.groups[-1], self.chosen.limit)
        print(f'\nItems a second, after the first {WARM} s of each round:\n{table(self.groups, self.chosen.limit)}\n')
        return [group.explain(pair, self.chosen.limit) for group in self.groups
                for pair in group.failures(self.chosen.limit)]


def main():
    sweep = Sweep(options())
    failures = sweep.run()
    points = sum(len(group.rates) for group in sweep.groups)
    with psycopg.connect(dbname='postgres') as server:
        version = server.execute('SHOW server_version').fetchone()[0].split()[0]
    for failure in failures:
        print(f'not ok: {failure}')
    print(f'{points} points, {sum(len(group.again) for group in sweep.groups)} measured again, {len(failures)} failed; '
          f'PostgreSQL {version}')
    reported = sweep.report.finish() if sweep.report else 0
    sys.exit(1 if failures or reported else 0)


main()
