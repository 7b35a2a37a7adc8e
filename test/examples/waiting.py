"""What the tests of the examples share: where things lie, and how long they wait."""

import pathlib
import time

TOP = pathlib.Path(__file__).parents[2]
LOGS = TOP / 'tmp_check' / 'examples'
PATIENCE = 60  # seconds until a condition that does not come true fails the test


def wait_until(condition, what):
    """Polls until condition() is true, and returns what it returned."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f'in {PATIENCE} s it did not happen that {what}')
        time.sleep(0.01)
    return found
