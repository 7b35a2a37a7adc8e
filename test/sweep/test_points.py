"""The test of how points are compared: a point that is slow must be found, and one that recovers must not fail."""

import itertools
import pathlib
import tempfile
import unittest

from points import PAIRWISE, Again, Conditions, Group, Place, Report, Round, report, table

CONDITIONS = Conditions('stale', 'alone', 'free')
LIMIT = 0.8


def group(**changed):
    """A call that does 100 a second everywhere but where it is said otherwise, as r1000c4=50."""
    rates = {Place(rows, clients): [100.0] for rows in (0, 1000) for clients in (1, 4, 16)}
    for name, rate in changed.items():
        rows, clients = name[1:].split('c')
        rates[Place(int(rows), int(clients))] = [rate]
    return Group('start', CONDITIONS, rates)


class Comparing(unittest.TestCase):
    def test_equal_rates_are_not_doubted(self):
        self.assertEqual(group().below(LIMIT), [])

    def test_just_at_the_limit_is_allowed(self):
        self.assertEqual(group(r0c16=80.0, r1000c16=80.0).below(LIMIT), [])

    def test_fewer_with_more_clients_is_doubted(self):
        self.assertEqual(group(r0c16=79.0, r1000c16=79.0).below(LIMIT),
                         [(Place(0, 16), Place(0, 4)), (Place(1000, 16), Place(1000, 4))])

    def test_fewer_with_more_rows_is_doubted(self):
        self.assertIn((Place(1000, 1), Place(0, 1)), group(r1000c1=50.0).below(LIMIT))

    def test_the_neighbour_is_the_next_one(self):
        self.assertEqual(group().neighbours(Place(1000, 16)), [Place(1000, 4), Place(0, 16)])
        self.assertEqual(group().neighbours(Place(0, 1)), [])

    def test_the_best_of_the_rounds_counts(self):
        slow = group()
        slow.rates[Place(0, 16)] = [10.0, 100.0, 90.0]
        self.assertEqual(slow.below(LIMIT), [])

    def test_what_the_floor_loses_is_not_doubted(self):
        slow = group(r0c16=60.0, r1000c16=50.0)
        slow.floors = {1: [900.0] * 3, 4: [1000.0, 500.0, 900.0], 16: [700.0, 490.0, 600.0]}
        self.assertEqual(slow.below(LIMIT), [(Place(1000, 16), Place(1000, 4))])

    def test_a_rate_of_nothing_is_doubted(self):
        self.assertIn((Place(0, 16), Place(0, 4)), group(r0c16=0.0).below(LIMIT))


class Reporting(unittest.TestCase):
    def test_a_report_goes_on_behind_the_groups_that_it_has(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'sweep.tsv')
            slow = group(r0c16=40.0)
            slow.again[(Place(0, 16), Place(0, 4))] = Again([Round(50.0, 100.0)])
            Report(path, False).add(slow, LIMIT)
            going_on = Report(path, True)
            self.assertEqual(going_on.groups(), {('start', 'stale/alone/free')})
            going_on.add(Group('claim', PAIRWISE[1], group().rates), LIMIT)
            self.assertIn(('claim', str(PAIRWISE[1])), going_on.groups())
            self.assertFalse(path.exists())
            self.assertEqual(going_on.finish(), 1)
            self.assertEqual(len(path.read_text().splitlines()), 1 + 6 + 6)
            self.assertEqual(Report(path, True).groups(), set())


class MeasuredAgain(unittest.TestCase):
    pair = (Place(0, 16), Place(0, 4))

    def test_below_the_limit_in_most_rounds_is_a_failure_that_names_both_rates(self):
        slow = group(r0c16=40.0, r1000c16=100.0)
        slow.again[self.pair] = Again([Round(55.0, 100.0), Round(50.0, 97.0), Round(56.0, 101.0), Round(85.0, 100.0),
                                       Round(55.0, 100.0)])
        self.assertEqual(slow.failures(LIMIT), [self.pair])
        words = slow.explain(self.pair, LIMIT)
        for expected in ('16 clients, 0 rows', '55/s against 100/s', '0.55', '1 of 5 rounds reach 0.8',
                         'at first 40/s against 100/s', '0.40'):
            self.assertIn(expected, words)
        self.assertIn('40!', table([slow], LIMIT))
        self.assertEqual([line.split('\t')[-1] for line in report(slow, LIMIT)].count('failed'), 1)

    def test_a_point_that_recovers_does_not_fail(self):
        noisy = group(r0c16=40.0)
        noisy.again[self.pair] = Again([Round(90.0, 100.0)])
        self.assertEqual(noisy.failures(LIMIT), [])
        self.assertIn('40~', table([noisy], LIMIT))
        self.assertEqual([line.split('\t')[-1] for line in report(noisy, LIMIT)].count('again'), 1)

    def test_what_the_floor_loses_in_the_same_round_is_no_failure(self):
        slow = group(r0c16=40.0)
        slow.floors = {4: [1000.0], 16: [1000.0]}
        slow.again[self.pair] = Again([Round(60.0, 100.0, 0.7)])
        self.assertEqual(slow.failures(LIMIT), [])
        self.assertIn('the floor keeps 0.70', slow.explain(self.pair, LIMIT))
        slow.again[self.pair] = Again([Round(60.0, 100.0, 1.0)])
        self.assertEqual(slow.failures(LIMIT), [self.pair])

    def test_a_floor_that_gains_asks_for_no_more(self):
        self.assertTrue(Round(80.0, 100.0, 2.0).reaches(LIMIT))
        self.assertFalse(Round(79.0, 100.0, 2.0).reaches(LIMIT))

    def test_a_quarter_of_the_rounds_decides(self):
        good, bad = Round(80.0, 100.0), Round(79.0, 100.0)
        for rounds, decided, failed in (
                ([good] * 2, False, False), ([good] * 3, True, False), ([bad] * 9, False, True),
                ([bad] * 10, True, True), ([good] * 2 + [bad] * 9, False, True), ([bad] * 9 + [good] * 2, False, True),
                ([good] * 2 + [bad] * 10, True, True), ([bad] * 9 + [good] * 3, True, False)):
            self.assertEqual((Again(rounds).is_decided(LIMIT, 12), Again(rounds).failed(LIMIT)), (decided, failed))


class Pairwise(unittest.TestCase):
    def test_each_value_meets_each_other(self):
        for one, other in itertools.combinations(('statistics', 'worker', 'snapshot'), 2):
            self.assertEqual(len({(getattr(c, one), getattr(c, other)) for c in PAIRWISE}), 4)


unittest.main(verbosity=0)
