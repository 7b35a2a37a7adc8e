"""Random sagas of SQL steps, of every priority, some cancelled, some due later, which run_pending() runs in calls of
any size: each step is the one that the order says. Part of the property tests of queues."""
import random

DEFINE = """
    CREATE TABLE pending_done (n bigint GENERATED ALWAYS AS IDENTITY, saga_id uuid, direction text);
    CREATE FUNCTION pending_act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
        INSERT INTO pending_done (saga_id, direction) VALUES (call.saga_id, call.direction) RETURNING 'null'::jsonb $$;
    SELECT stacksaga.define_saga('pending ' || steps, array_agg(stacksaga.sql_step('s' || n,
               'pending_act(stacksaga.step_call)', 'pending_act(stacksaga.step_call)') ORDER BY n))
      FROM generate_series(1, 12) AS steps, generate_series(1, steps) AS n GROUP BY steps;
"""
TURN = 8


class Saga:
    def __init__(self, saga_id, rank, steps, due, place):
        self.id, self.rank, self.steps, self.due, self.place = saga_id, rank, steps, due, place
        self.done = 0  # steps that a cancel undoes


class PendingEpisode:
    def __init__(self, connection, seed, number):
        self.rng = random.Random(f"pending {seed} {number}")
        self.connection, self.name = connection, f"{seed} {number}"
        self.now = 0
        self.place = 0  # in the order of due times
        self.sagas = {}
        self.since_turn = TURN  # steps since the last one of a lower rank
        self.without_turn = 0  # steps in a row while lower ranks waited
        self.before = None
        self.trace = []

    def sql(self, statement, *arguments):
        self.connection.execute(f"SET stacksaga.clock_offset = '{self.now} hours'")
        return self.connection.execute(statement, arguments).fetchall()

    def check(self, is_true, message):
        if not is_true:
            raise AssertionError(f"episode {self.name} of pending work: {message}\n" + "\n".join(self.trace[-40:]))

    def next_place(self):
        self.place += 1
        return self.place

    def start(self):
        for _ in range(self.rng.choice([1, 5, 40])):
            rank, steps = self.rng.choice([1, 1, 3, 5, self.rng.randint(1, 5)]), self.rng.choice([1, 1, 2, 12])
            later = self.rng.choice([0, 0, 0, 1])
            saga = self.sql("SELECT saga_id FROM stacksaga.start_saga('pending ' || %s::int, priority => %s,"
                            " run_at => stacksaga.clock_now() + make_interval(hours => %s))", steps, rank, later)[0][0]
            self.sagas[saga] = Saga(saga, rank, steps, self.now + later, self.next_place())

    def cancel(self):
        undoable = [s for s in self.sagas.values() if s.rank > 0 and s.done > 0 and s.steps > 0]
        for saga in self.rng.sample(undoable, min(len(undoable), 3)):
            self.sql("SELECT stacksaga.cancel_saga(%s, 'undo it')", saga.id)
            saga.rank, saga.steps, saga.due, saga.place = 0, saga.done, self.now, self.next_place()
            self.trace.append(f"cancelled {saga.id}")

    def wait(self):
        self.now += 1

    def run_some(self):
        size = self.rng.choice([1, 2, 7, 30, 300])
        count = self.sql("SELECT stacksaga.run_pending(%s)", size)[0][0]
        rows = self.sql("WITH gone AS (DELETE FROM pending_done RETURNING *) SELECT saga_id FROM gone ORDER BY n")
        self.trace.append(f"run {size}: {count}")
        self.before = None
        due = sum(s.steps for s in self.sagas.values() if s.due <= self.now)
        self.check(count == len(rows) == min(size, due), f"{len(rows)} steps of {due} that are due")
        for (saga_id,) in rows:
            self.step(self.sagas[saga_id])

    def step(self, saga):
        waiting = [s for s in self.sagas.values() if s.due <= self.now and s.steps > 0]
        first = min(s.rank for s in waiting)
        lower = [s for s in waiting if s.rank > first]
        self.trace.append(f"step of rank {saga.rank}, the first is {first}, of lower ones there are {len(lower)}")
        if saga.rank > first:
            self.check(self.since_turn >= TURN - 1, "a turn of the lower ranks too early")
            self.check(saga is min(lower, key=lambda s: (s.due, s.place)), "not the longest-waiting of the lower ranks")
            self.since_turn = self.without_turn = 0
        else:
            same = [s for s in waiting if s.rank == first]
            self.check(saga is self.before or saga is min(same, key=lambda s: (s.due, s.place)), "not the longest-waiting")
            self.since_turn += 1
            self.without_turn = self.without_turn + 1 if lower else 0
            self.check(self.without_turn < TURN, "no turn of the lower ranks")
        self.before = saga
        saga.steps -= 1
        saga.done += 1
        saga.due, saga.place = self.now, self.next_place()
        if saga.steps == 0:
            del self.sagas[saga.id]

    def run(self, operations):
        for _ in range(operations):
            self.rng.choices([self.start, self.run_some, self.cancel, self.wait], [3, 6, 1, 1])[0]()
        self.now += 1
        while self.sagas:
            self.run_some()
