"""Random claims, answers, leases that run out, limits, priorities, groups and pauses of one queue, in several
sessions, against a small model: how many steps a call may claim, and which.

    test/tools/property queues [--seed N] [--episodes N] [--operations N]
"""
import argparse
import copy
import math
import random
import sys

import psycopg

import pending

QUEUE = "modelled"
# The clock is moved by half hours, and nothing in an episode lasts that long.
HOUR = 3600
RETRY = HOUR // 4


class Step:
    """A step as the model knows it: waiting from `due` on, or leased until `lease_end`."""

    def __init__(self, saga, rank, group, due, number):
        self.saga, self.rank, self.group, self.due, self.number = saga, rank, group, due, number
        self.due_by = due  # later than `due`, if its place is that of the settlement of its lease
        self.lease = self.lease_end = None
        self.ran_out = False  # its last lease did, and it may not be settled


def is_before(a, b):
    """Steps that fell due at the same instant of the model have an order while they are new."""
    return a.due_by < b.due or (a.due_by == b.due and 0 < a.number < b.number)


class Model:
    def __init__(self):
        self.now = 0
        self.steps = {}  # by saga
        self.max_running = self.per_group = self.rate = None
        self.interval = HOUR
        self.claims = []  # (instant, number)
        self.paused_until = 0

    @property
    def paused(self):
        return self.now < self.paused_until

    def settle(self):
        for step in self.steps.values():
            if step.lease is not None and step.lease_end <= self.now:
                step.due, step.number, step.lease, step.lease_end = step.lease_end + RETRY, 0, None, None
                step.ran_out = True

    def note_claim(self):
        """Under limits a claim settles what ran out; without, only now and then while there is enough else to claim."""
        if (self.max_running, self.per_group, self.rate) != (None, None, None):
            for step in self.steps.values():
                if step.ran_out:
                    step.ran_out, step.due_by = False, max(step.due, self.now)

    def due(self):
        return [s for s in self.steps.values()
                if s.lease is None and s.due <= self.now and (s.rank == 0 or not self.paused)]

    def leased(self, group=None):
        return sum(s.lease is not None and group in (None, s.group) for s in self.steps.values())

    def room(self, group):
        return math.inf if self.per_group is None or group == "" else max(0, self.per_group - self.leased(group))

    def claimable(self, wanted):
        """How many a call may claim."""
        if self.max_running is not None:
            wanted = min(wanted, self.max_running - self.leased())
        if self.rate is not None:
            used = sum(n for at, n in self.claims if at + self.interval > self.now)
            wanted = min(wanted, self.rate - used)
        waiting = {}
        for step in self.due():
            waiting[step.group] = waiting.get(step.group, 0) + 1
        return max(0, min(wanted, sum(min(n, self.room(group)) for group, n in waiting.items())))


class Episode:
    def __init__(self, connections, seed, number):
        self.rng = random.Random(f"{seed} {number}")
        self.connections = connections
        self.model = Model()
        self.count = 0
        self.name = f"{seed} {number}"
        self.groups = ["", *(f"group {i}" for i in range(self.rng.choice([1, 3, 90])))]
        self.trace = []

    def sql(self, statement, *arguments):
        connection = self.rng.choice(self.connections)
        connection.execute(f"SET stacksaga.clock_offset = '{self.model.now} seconds'")
        return connection.execute(statement, arguments).fetchall()

    def check(self, is_true, message):
        if not is_true:
            raise AssertionError(f"episode {self.name}: {message}\n" + "\n".join(self.trace[-30:]))

    def start(self):
        for _ in range(self.rng.randint(1, 40)):
            self.count += 1
            rank, group = self.rng.choice([1, 3, 3, 3, 5, self.rng.randint(1, 5)]), self.rng.choice(self.groups)
            saga = self.sql("SELECT saga_id FROM stacksaga.start_saga('modelled', key => %s, priority => %s, group_key => %s)",
                            f"{self.name} {self.count}", rank, group or None)[0][0]
            self.model.steps[saga] = Step(saga, rank, group, self.model.now, self.count)
        self.trace.append(f"start up to {self.count}")

    def claim(self):
        before = copy.deepcopy(self.model.steps)
        self.model.settle()
        wanted = self.rng.choice([1, 1, 2, 3, 8, 20, 200])
        expected, due = self.model.claimable(wanted), self.model.due()
        half_hours = 2 * self.rng.randint(0, 3) + 1
        connection = self.rng.choice(self.connections)
        connection.execute(f"SET stacksaga.clock_offset = '{self.model.now} seconds'")
        is_undone = self.rng.random() < 0.15
        if is_undone:
            connection.execute("BEGIN")
        rows = connection.execute(
            "SELECT saga_id, lease, direction FROM stacksaga.claim_steps(%s, 'w', %s, make_interval(mins => %s))",
            (QUEUE, wanted, 30 * half_hours)).fetchall()
        if is_undone:
            connection.execute("ROLLBACK")
        self.trace.append(f"claim {wanted}: {len(rows)} of {expected} {'undone' if is_undone else ''}")
        self.check(len(rows) == expected, f"claimed {len(rows)}, not {expected}, of {len(due)}")
        known = {s.saga for s in due}
        self.check(all(saga in known for saga, *_ in rows), "claimed what is not due")
        for saga, lease, direction in rows:
            step = self.model.steps[saga]
            self.check((direction == "compensate") == (step.rank == 0), "a wrong direction")
            step.lease, step.lease_end, step.ran_out = lease, self.model.now + half_hours * HOUR / 2, False
        self.model.note_claim()
        self.check_order([self.model.steps[saga] for saga, *_ in rows], due)
        if is_undone:  # also the leases that it had settled
            self.model.steps = before
        elif rows:
            self.model.claims.append((self.model.now, len(rows)))

    def check_order(self, claimed, due):
        """What was claimed is what the order says, but for turns of lower ranks."""
        left = [s for s in due if s.lease is None and self.model.room(s.group) > 0 and not s.ran_out]
        out_of_rank = [c for c in claimed if any(s.rank < c.rank for s in left)]
        self.check(len(out_of_rank) <= math.ceil(len(claimed) / 8), f"{len(out_of_rank)} of a lower rank")
        for c in claimed:
            older = [s for s in due if s.lease is None and not s.ran_out
                     and (s.rank, s.group) == (c.rank, c.group) and is_before(s, c)]
            self.check(not older or c.group and self.model.per_group, "a younger step of the same group first")
        for rank in {c.rank for c in claimed if c not in out_of_rank}:
            taken = {}
            for c in claimed:
                if c.rank == rank:
                    taken[c.group] = taken.get(c.group, 0) + 1
            for group in {s.group for s in left if s.rank == rank}:
                self.check(max(taken.values()) <= taken.get(group, 0) + 2, f"group {group!r} was passed over")

    def answer(self):
        leased = [s for s in self.model.steps.values() if s.lease is not None and s.lease_end > self.model.now]
        for step in self.rng.sample(leased, min(len(leased), self.rng.randint(1, 12))):
            if self.rng.random() < 0.2:
                self.sql("SELECT stacksaga.fail_step(%s, 'a', %s, 'no', 'retryable', make_interval(mins => 15))",
                         step.saga, step.lease)
                step.due = step.due_by = self.model.now + RETRY
                step.number, step.lease, step.lease_end = 0, None, None
                continue
            self.sql("SELECT stacksaga.complete_step(%s, 'a', %s)", step.saga, step.lease)
            del self.model.steps[step.saga]
            if step.rank > 0 and self.rng.random() < 0.3:
                self.sql("SELECT stacksaga.cancel_saga(%s, 'compensate')", step.saga)
                self.count += 1
                self.model.steps[step.saga] = Step(step.saga, 0, step.group, self.model.now, self.count)
        self.trace.append(f"answers, {self.model.leased()} leased")

    def wait(self):
        self.model.now += self.rng.randint(1, 3) * HOUR // 2
        self.trace.append(f"now {self.model.now}")

    def limit(self):
        m = self.model
        one_of = lambda values: self.rng.choice([None, *values])
        m.max_running, m.per_group, rate = one_of([1, 5, 30]), one_of([1, 2, 7]), one_of([3, 20])
        if rate is None:
            m.claims = []
        elif m.rate is None:
            m.claims = []  # counted from when a rate is set
        m.rate, m.interval = rate, m.interval if rate is None or m.rate is not None else self.rng.randint(1, 4) * HOUR
        self.sql("SELECT stacksaga.set_queue(%s, %s, %s, %s, make_interval(secs => %s))",
                 QUEUE, m.max_running, m.per_group, m.rate, m.interval)
        self.trace.append(f"limits {m.max_running} {m.per_group} {m.rate} in {m.interval}")

    def pause(self):
        m = self.model
        if m.paused:
            self.sql("SELECT stacksaga.resume_queue(%s, 'a test')", QUEUE)
            m.paused_until = 0
        else:
            # The clock is never moved to the end of a pause, only behind it.
            length = self.rng.choice([None, RETRY, 3 * RETRY, 7 * RETRY])
            self.sql("SELECT stacksaga.pause_queue(%s, 'a test', stacksaga.clock_now() + make_interval(secs => %s))",
                     QUEUE, length)
            m.paused_until = math.inf if length is None else m.now + length
        self.trace.append(f"paused until {m.paused_until}")

    def look(self):
        """What the view says."""
        waiting, running = self.sql("SELECT waiting, running FROM stacksaga.queues WHERE queue = %s", QUEUE)[0]
        steps = self.model.steps.values()
        leased, due = self.model.leased(), [s for s in steps if s.lease is None and s.due <= self.model.now]
        unsure = sum(s.ran_out for s in steps)
        self.check(leased <= running <= leased + unsure, f"{running} run, not {leased}, {unsure} may")
        unsure = sum(s.ran_out for s in due)
        self.check(len(due) - unsure <= waiting <= len(due), f"{waiting} wait, not {len(due)}, {unsure} may not")

    def run(self, operations):
        self.limit()
        for _ in range(operations):
            self.rng.choices([self.start, self.claim, self.answer, self.wait, self.limit, self.pause, self.look],
                             [3, 12, 6, 2, 1, 0.5, 1])[0]()
        if self.model.paused:
            self.pause()
        self.sql("SELECT stacksaga.set_queue(%s)", QUEUE)
        self.sql("SELECT count(stacksaga.cancel_saga(saga_id, 'the end')) FROM stacksaga.sagas WHERE finished_at IS NULL")
        self.sql("DELETE FROM stacksaga.work RETURNING 1")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--episode", type=int)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--operations", type=int, default=60)
    options = parser.parse_args()
    print(f"queues: seed {options.seed}", flush=True)
    connections = [psycopg.connect("dbname=postgres", autocommit=True) for _ in range(3)]
    connections[0].execute("DROP EXTENSION IF EXISTS stacksaga")
    connections[0].execute("CREATE EXTENSION stacksaga")
    connections[0].execute("""SELECT stacksaga.define_saga('modelled', ARRAY[
        stacksaga.queue_step('a', 'modelled', compensable => true, timeout => '1 day', retry => stacksaga.retry_policy(
            max_attempts => 0, initial_interval => '15 minutes', multiplier => 1, max_interval => '15 minutes', jitter => 0)),
        stacksaga.queue_step('b', 'rest', compensable => false)],
        compensation_retry => stacksaga.retry_policy(
            max_attempts => 0, initial_interval => '15 minutes', multiplier => 1, max_interval => '15 minutes', jitter => 0))""")
    connections[0].execute(pending.DEFINE)
    numbers = [options.episode] if options.episode is not None else range(options.episodes)
    try:
        for number in numbers:
            Episode(connections, options.seed, number).run(options.operations)
            pending.PendingEpisode(connections[0], options.seed, number).run(options.operations // 3)
    except AssertionError as failure:
        print(f"queues: {failure}\nagain: test/tools/property queues --seed {options.seed} --episode {number}")
        return 1
    print(f"queues: {len(numbers)} episodes of {options.operations} operations agree with the model")
    return 0


sys.exit(main())
