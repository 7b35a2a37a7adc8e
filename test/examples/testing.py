"""Runs the tests of docs/examples/testing as they are, as a role that may do what they need and no more.

Run by test/tools/examples inside a private PostgreSQL server.
"""

import os
import subprocess
import unittest

import psycopg

from waiting import TOP

FOLDER = TOP / 'docs' / 'examples' / 'testing'


class Testing(unittest.TestCase):
    def test_its_tests_pass_and_leave_nothing(self):
        with psycopg.connect(autocommit=True) as db:
            db.execute('CREATE EXTENSION stacksaga; CREATE ROLE tester LOGIN; GRANT CREATE ON SCHEMA public TO tester')
            for kind in ('operator', 'service'):
                db.execute('SELECT stacksaga.grant_usage(%s, %s)', ('tester', kind))
            tests = {**os.environ, 'PGUSER': 'tester'}
            db.execute('GRANT SET ON PARAMETER stacksaga.clock_offset TO tester' if db.info.server_version >= 150000 else
                       'ALTER ROLE tester SUPERUSER')
            schema = subprocess.run(('psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', FOLDER / 'order.sql'), env=tests,
                                    capture_output=True, text=True)
            self.assertEqual(schema.returncode, 0, schema.stderr)
            ran = subprocess.run(('/usr/bin/python3', '-B', 'test_order.py'), cwd=FOLDER, env=tests, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn('Ran 3 tests', ran.stderr)
            self.assertEqual(db.execute('SELECT count(*) FROM stacksaga.sagas').fetchone()[0], 0)
            self.assertEqual(db.execute('SELECT on_hand FROM stock').fetchone()[0], 2)


if __name__ == '__main__':
    unittest.main(verbosity=2)
