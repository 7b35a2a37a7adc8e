"""Tests of a saga, each in one transaction that is rolled back: python3 -m unittest test_order. Wants libpq's variables (PGHOST, ...)."""
import unittest
import psycopg
from psycopg.rows import dict_row

class Order(unittest.TestCase):
    def setUp(self):
        self.db = psycopg.connect(row_factory=dict_row)  # begins a transaction; nobody commits it
        self.addCleanup(self.db.close)
        self.saga = self.value("SELECT saga_id FROM stacksaga.start_saga('order', '{\"item\": \"book\"}')")

    def value(self, query, *arguments):
        return next(iter(self.db.execute(query, arguments).fetchone().values()))

    def work(self):
        """What a worker would do, until nothing is due."""
        while self.value('SELECT stacksaga.run_pending()'):
            pass

    def claim(self, queue):
        return self.db.execute("SELECT * FROM stacksaga.claim_steps(%s, 'test')", (queue,)).fetchone()

    def status(self):
        return self.value('SELECT status FROM stacksaga.saga_result(%s)', self.saga)

    def test_a_charge_completes_the_order(self):
        self.work()
        step = self.claim('payments')
        self.assertEqual(step['results'], {'reserve': {}})
        self.value('SELECT stacksaga.complete_step(%s, %s, %s)', self.saga, step['step'], step['lease'])
        self.assertEqual(self.status(), 'completed')

    def test_a_refused_card_puts_the_book_back(self):
        before = self.value("SELECT on_hand FROM stock WHERE item = 'book'")
        self.work()
        self.assertEqual(self.value("SELECT on_hand FROM stock WHERE item = 'book'"), before - 1)
        step = self.claim('payments')
        self.value("SELECT stacksaga.fail_step(%s, 'charge', %s, 'card refused', 'non_retryable')", self.saga, step['lease'])
        self.work()
        self.assertEqual((self.status(), self.value("SELECT on_hand FROM stock WHERE item = 'book'")), ('failed', before))

    def test_a_charge_that_nobody_answers_is_offered_again(self):
        self.work()
        first = self.claim('payments')
        self.db.execute("SET LOCAL stacksaga.clock_offset = '1 hour'")  # its lease has run out
        self.work()
        self.assertEqual(self.claim('payments')['idempotency_key'], first['idempotency_key'])

if __name__ == '__main__':
    unittest.main(verbosity=2)
