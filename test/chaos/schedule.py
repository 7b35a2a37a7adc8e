"""Which fault comes when: from a seed, first each one once, then mixed."""

import random as random_module
import threading
import time

import copies
import faults
import surroundings


def every_fault():
    """All classes of faults that have a name."""
    for module in (faults, surroundings, copies):
        for thing in vars(module).values():
            if getattr(thing, '__module__', '') == module.__name__ and getattr(thing, 'name', ''):
                yield thing


class Schedule:
    """Faults from a seed: first each one once, in an order of its own, then mixed."""

    # So many faults at once, at most.
    AT_ONCE = 4

    def __init__(self, world, seed, only=None):
        self.world = world
        self.seed = seed
        self.random = random_module.Random(f'{seed}/faults')
        self.faults = [fault() for fault in every_fault()
                       if not only or any(words in fault.name for words in only)]
        self.first = self.random.sample(self.faults, len(self.faults))
        # What takes long comes last, or a short run would see little else.
        self.first.sort(key=lambda fault: not fault.takes_long)
        self.injected = {fault.name: 0 for fault in self.faults}
        self.threads = {}
        self.number = 0

    def begin_one(self):
        """Begins the next fault of the schedule, unless it is in force already."""
        self.threads = {fault: thread for fault, thread in self.threads.items() if thread.is_alive()}
        if len(self.threads) >= self.AT_ONCE:
            return
        fault = self.first.pop() if self.first else self.random.choices(
            self.faults, [fault.weight for fault in self.faults])[0]
        if fault in self.threads:
            return
        self.number += 1
        if fault.alone:
            self.finish()
            self.run(fault, self.number)
            return
        self.threads[fault] = threading.Thread(target=self.run, args=(fault, self.number), daemon=True)
        self.threads[fault].start()

    def run(self, fault, number):
        """One fault from its beginning to its end; its choices depend on the seed and its number only."""
        random = random_module.Random(f'{self.seed}/fault/{number}')
        lasts = random.uniform(*fault.lasts)
        began = time.monotonic_ns()
        if not fault.begin(self.world, random):
            # There was nothing to do it to, or another fault was in its way: later, if it was never injected.
            fault.misses += 1
            if self.injected[fault.name] == 0 and fault.misses < 5:
                self.first.insert(0, fault)
            return
        try:
            time.sleep(lasts)
        finally:
            fault.end(self.world)
        self.injected[fault.name] += 1
        self.world.note({'fault': fault.name, 'begin': began, 'end': time.monotonic_ns()})

    def finish(self):
        """Waits until no fault is in force."""
        for thread in self.threads.values():
            thread.join()
        self.world.everything_goes_on()
