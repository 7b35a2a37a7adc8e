# The order service, an HTTP API: POST /orders with an Idempotency-Key, GET /orders/ID. Wants PORT and libpq's variables.
import json, os, pathlib, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'idempotency-key'))
from idempotent import idempotent

def place(db, body):
    """One transaction: the order, the start of its saga, and the answer that is kept under the key."""
    if not isinstance(body, dict) or not {'item', 'price', 'customer', 'address'} <= body.keys():
        return {'status': 400, 'title': 'an order has an item, a price, a customer and an address'}
    order = db.execute('INSERT INTO orders DEFAULT VALUES RETURNING order_id').fetchone()[0]
    start = "SELECT saga_id FROM stacksaga.start_saga('order', %s, key => %s)"
    saga_id = db.execute(start, (Jsonb({**body, 'order': order}), str(order))).fetchone()[0]
    db.execute('UPDATE orders SET saga_id = %s WHERE order_id = %s', (saga_id, order))
    return {'status': 201, 'order': order}

def show(pool, order):
    with pool.connection() as db:
        row = db.execute("""SELECT status, ARRAY(SELECT stacksaga.saga_timeline(saga_id))
                              FROM orders WHERE order_id::text = %s""", (order,)).fetchone()
    return {'status': 200, 'order': row[0], 'timeline': row[1]} if row else {'status': 404}

class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0))).decode(errors='replace')
        self.answer(idempotent(pool, 'POST /orders', self.headers.get('Idempotency-Key'), body, place))

    def do_GET(self):
        self.answer(show(pool, self.path.removeprefix('/orders/')))

    def answer(self, answer):
        self.send_response(answer.pop('status'))
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(json.dumps(answer, indent=1).encode() + b'\n')

    def log_message(self, *_):
        pass

with ConnectionPool(max_size=8) as pool:
    ThreadingHTTPServer(('127.0.0.1', int(os.environ.get('PORT', 8080))), Service).serve_forever()
