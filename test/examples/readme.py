"""Tests the first screen of README.md: its SQL, and its service in Python, which does the step that the SQL starts.

Run by test/tools/examples inside a private PostgreSQL server.
"""

import os
import re
import subprocess
import time
import unittest

import psycopg

from waiting import TOP, wait_until

README = (TOP / 'README.md').read_text()


class FirstScreen(unittest.TestCase):
    def test_the_service_in_python_does_the_step_and_those_that_come_later(self):
        sql, program = (re.search(rf'```{language}\n(.*?)```', README, re.S).group(1) for language in ('sql', 'python'))
        subprocess.run(('psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-o', os.devnull, '-c', sql), check=True)
        program = 'import psycopg, sys\ndef charge(key, order):\n    print(key, order["price"], flush=True)\nrefund = None\n' + program
        with psycopg.connect(autocommit=True) as db:
            service = subprocess.Popen(('/usr/bin/python3', '-c', program), stdout=subprocess.PIPE, text=True)
            try:
                for count in 1, 2:
                    self.assertRegex(service.stdout.readline(), r'^[0-9a-f-]{36}:2:act 20$')
                    self.wait_for_completed(db, count)
                    db.execute("""SELECT stacksaga.start_saga('order', '{"item": "book", "price": 20}', key => 'order-2')""")
            finally:
                service.kill()
                service.communicate()
            self.assertEqual(db.execute('TABLE stock').fetchall(), [('book', 0)])

    def wait_for_completed(self, db, count):
        query = "SELECT count(*) FROM stacksaga.sagas WHERE status = 'completed'"
        wait_until(lambda: db.execute(query).fetchone()[0] >= count, f'{count} sagas complete')


if __name__ == '__main__':
    unittest.main(verbosity=2)
