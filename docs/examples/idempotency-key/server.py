# A service with one request, POST /charges. Wants PORT and libpq's variables (PGHOST, ...).
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from psycopg_pool import ConnectionPool
from idempotent import idempotent

def charge(db, body):
    insert = 'INSERT INTO charge (account, amount) VALUES (%s, %s) RETURNING id::text'
    charge_id = db.execute(insert, (body['account'], body['amount'])).fetchone()[0]
    if body['amount'] > 1000:
        return {'status': 402, 'title': 'declined'}
    return {'status': 201, 'id': charge_id}

class Server(ThreadingHTTPServer):
    request_queue_size = 128  # the default of 5 resets connections that come in a burst

class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0))).decode(errors='replace')
        header = self.headers.get('Idempotency-Key')
        answer = idempotent(self.server.pool, 'POST /charges', header, body, charge)
        self.send_response(answer['status'])
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

with ConnectionPool(max_size=8) as Server.pool:
    Server(('127.0.0.1', int(os.environ['PORT'])), Service).serve_forever()
