"""What the tests of the examples share: where things lie, and how long they wait."""

import pathlib
import time

TOP = pathlib.Path(__file__).parents[2]
LOGS = TOP / 'tmp_check' / 'examples'
PATIENCE = 60  # seconds until a condition that does not come true fails the test


def wait_until(condition, what):
    """Polls until condition() is true, and returns what it returned. A machine that stood still for long has had a second."""
    waited, last = 0, time.monotonic()
    while not (found := condition()):
        now = time.monotonic()
        waited, last = waited + min(now - last, 1), now
        if waited > PATIENCE:
            raise AssertionError(f'in {PATIENCE} s it did not happen that {what}')
        time.sleep(0.01)
    return found


def wait_for_end(program):
    """Returns its exit code."""
    wait_until(lambda: program.poll() is not None, 'the program ends')
    return program.returncode
