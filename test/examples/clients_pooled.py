"""The tests of clients.py once more, with the programs behind a PgBouncer in transaction mode.

Run by test/tools/examples inside a private PostgreSQL server.
"""

import unittest

import clients  # and not its classes, which would be tested here, too
from through_pgbouncer import PgBouncer, needs_pgbouncer
from waiting import wait_until


class ThroughPgBouncer:
    test_a_worker_ends_though_its_heartbeat_is_connecting = None  # PgBouncer lets it connect at once

    @classmethod
    def setUpClass(cls):
        pooler = cls.pooler = PgBouncer()
        cls.addClassCleanup(pooler.stop)
        cls.address = {**cls.address, **pooler.address}
        super().setUpClass()

    def wait_for_sessions(self, count):
        # The server sees sessions of the pooler. A program that has connected knows what to do when it is told to end.
        wait_until(lambda: self.pooler.clients() >= count, f'{count} programs have connected')

    def forget_killed(self):
        wait_until(lambda: self.pooler.clients() == 0, 'the pooler has seen that they are gone')


@needs_pgbouncer
class PythonThroughPgBouncer(ThroughPgBouncer, clients.Python):
    pass


@needs_pgbouncer
class JavaScriptThroughPgBouncer(ThroughPgBouncer, clients.JavaScript):
    pass


@needs_pgbouncer
class JavaThroughPgBouncer(ThroughPgBouncer, clients.Java):
    pass


@needs_pgbouncer
class GoThroughPgBouncer(ThroughPgBouncer, clients.Go):
    pass


if __name__ == '__main__':
    unittest.main(verbosity=2)
