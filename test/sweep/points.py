"""The points of the sweep, how each compares with its neighbours, and how all of them are printed.

A point is one call at one number of clients and rows, under one set of conditions. Its neighbours are the
points with the next smaller number of clients, and of rows, and all else equal.
"""

import csv
import dataclasses
import itertools
import statistics


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What is the same for all points of a group."""
    statistics: str
    worker: str
    snapshot: str

    def __str__(self):
        return f'{self.statistics}/{self.worker}/{self.snapshot}'


EVERY_CONDITION = [Conditions(*values) for values in itertools.product(
    ('stale', 'fresh'), ('alone', 'worker'), ('free', 'held'))]
# Each value of a condition meets each value of every other in one of these.
PAIRWISE = [Conditions(*values) for values in (('stale', 'alone', 'free'), ('stale', 'worker', 'held'),
                                               ('fresh', 'alone', 'held'), ('fresh', 'worker', 'free'))]


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Where in its group a point stands."""
    rows: int
    clients: int

    def __str__(self):
        return f'{self.clients} clients, {self.rows:,} rows'


def best(rates):
    """A round is never too fast: what else the machine does, and where it puts processes, only slows it down."""
    return max(rates)


def part(rate, other):
    return rate / max(other, 1e-9)


@dataclasses.dataclass
class Round:
    """A place and its neighbour measured one behind the other, and what part of its rate the floor kept."""
    rate: float
    other: float
    floor_kept: float = 1.0

    def kept(self):
        """What part of its neighbour's rate the place reached."""
        return part(self.rate, self.other)

    def reaches(self, limit):
        # Where the floor gains no more is asked for.
        return self.kept() >= limit * min(1.0, self.floor_kept)


@dataclasses.dataclass
class Again:
    """A place and its neighbour measured again, in rounds that take turns: what a machine does differs more from one
    minute to the next than from one half of a round to the other."""
    # It fails if fewer of its rounds reach the limit, one in so many: by chance that is 2 of 100 of the points that are
    # just at the limit, with twelve rounds.
    ONE_IN = 4
    rounds: list = dataclasses.field(default_factory=list)

    def reached(self, limit):
        """How many rounds reach the limit."""
        return sum(again.reaches(limit) for again in self.rounds)

    def failed(self, limit):
        return self.reached(limit) * self.ONE_IN < len(self.rounds)

    def is_decided(self, limit, rounds):
        """Whether the rest of so many rounds would change nothing."""
        reached = self.reached(limit)
        most = reached + rounds - len(self.rounds)
        return reached * self.ONE_IN >= rounds or most * self.ONE_IN < rounds

    def median(self, what):
        """The median of something of its rounds."""
        return statistics.median(map(what, self.rounds))


@dataclasses.dataclass
class Group:
    """The points of one call under one set of conditions: the rates of the rounds of each, those of the floor by
    number of clients, and, where a point fell below a neighbour, both of them measured again. The floor is what a
    transaction by hand does that does as little under the same load."""
    call: str
    conditions: Conditions
    rates: dict
    again: dict = dataclasses.field(default_factory=dict)
    floors: dict = dataclasses.field(default_factory=dict)

    def rate(self, place):
        return best(self.rates[place])

    def neighbours(self, place):
        """The places with the next fewer clients and the next fewer rows."""
        fewer_clients = [other for other in self.rates if other.rows == place.rows and other.clients < place.clients]
        fewer_rows = [other for other in self.rates if other.clients == place.clients and other.rows < place.rows]
        return [max(others) for others in (fewer_clients, fewer_rows) if others]

    def first(self, pair):
        """The first measurement of a pair, as a round. Where only rows differ the floor is the same."""
        place, neighbour = pair
        floors = [self.floors.get(each.clients, [1.0]) for each in pair]
        return Round(self.rate(place), self.rate(neighbour), statistics.median(map(part, *floors)))

    def below(self, limit):
        """Pairs of a place and a neighbour whose rate it does not reach as far as it must."""
        pairs = [(place, neighbour) for place in sorted(self.rates) for neighbour in self.neighbours(place)]
        return [pair for pair in pairs if not self.first(pair).reaches(limit)]

    def failures(self, limit):
        """The pairs that were below what is allowed both times."""
        return [pair for pair, again in self.again.items() if again.failed(limit)]

    def explain(self, pair, limit):
        """A failure in words, with what was measured at first and then."""
        place, neighbour = pair
        first, again = self.first(pair), self.again[pair]
        return (f'{self.call} {self.conditions}: {place}: {again.median(lambda each: each.rate):,.0f}/s against '
                f'{again.median(lambda each: each.other):,.0f}/s with {neighbour}, {again.median(Round.kept):.2f} of it '
                f'where the floor keeps {again.median(lambda each: each.floor_kept):.2f} (medians); {again.reached(limit)} of '
                f'{len(again.rounds)} rounds reach {limit} of that (at first {first.rate:,.0f}/s against '
                f'{first.other:,.0f}/s, {first.kept():.2f})')


def table(groups, limit):
    """The rates as aligned text: a line for each call, conditions and number of rows, a column for each number of
    clients. A rate that failed is marked with !, one that recovered when it was measured again with ~."""
    clients = sorted({place.clients for group in groups for place in group.rates})
    lines = [('call', 'statistics', 'worker', 'snapshot', 'rows', *(f'{number} clients' for number in clients))]
    for group in groups:
        failed = {place for place, _ in group.failures(limit)}
        measured_again = {place for place, _ in group.again}
        for rows in sorted({place.rows for place in group.rates}):
            cells = []
            for place in (Place(rows, number) for number in clients):
                mark = '!' if place in failed else '~' if place in measured_again else ' '
                cells.append(f'{group.rate(place):,.0f}{mark}' if place in group.rates else '- ')
            lines.append((group.call, *dataclasses.astuple(group.conditions), f'{rows:,}', *cells))
    widths = [max(map(len, column)) for column in zip(*lines)]
    return '\n'.join('  '.join(cell.ljust(width) if number < 4 else cell.rjust(width)
                               for number, (cell, width) in enumerate(zip(line, widths))).rstrip()
                     for line in lines)


REPORT = ('call', 'statistics', 'worker', 'snapshot', 'rows', 'clients', 'rate', 'of_fewer_clients', 'of_fewer_rows',
          'verdict')


def report(group, limit):
    """The points of a group as tab-separated values, a line each: its rate, what part that is of each neighbour's rate,
    and ok, again (measured again, and then well) or failed."""
    failed = {place for place, _ in group.failures(limit)}
    measured_again = {place for place, _ in group.again}
    for place in sorted(group.rates):
        parts = {'clients': '', 'rows': ''}
        for neighbour in group.neighbours(place):
            which = 'clients' if neighbour.rows == place.rows else 'rows'
            parts[which] = f'{group.rate(place) / group.rate(neighbour):.3f}'
        verdict = 'failed' if place in failed else 'again' if place in measured_again else 'ok'
        yield '\t'.join((group.call, *dataclasses.astuple(group.conditions), str(place.rows), str(place.clients),
                         f'{group.rate(place):.1f}', parts['clients'], parts['rows'], verdict))


class Report:
    """A file of points. Until it is finished it has another name and grows by a group at a time, so that a sweep that
    was ended can go on."""

    def __init__(self, path, goes_on):
        self.path = path
        self.begun = path.with_name(path.name + '.begun')
        if not (goes_on and self.begun.exists()):
            self.begun.write_text('\t'.join(REPORT) + '\n')

    def lines(self):
        with self.begun.open() as file:
            return list(csv.DictReader(file, delimiter='\t'))

    def groups(self):
        """Calls and conditions that it holds."""
        return {(line['call'], f'{line["statistics"]}/{line["worker"]}/{line["snapshot"]}') for line in self.lines()}

    def add(self, group, limit):
        with self.begun.open('a') as file:
            file.writelines(line + '\n' for line in report(group, limit))

    def finish(self):
        """Returns how many of its points fell below their limit."""
        failed = sum(line['verdict'] == 'failed' for line in self.lines())
        self.begun.rename(self.path)
        return failed
