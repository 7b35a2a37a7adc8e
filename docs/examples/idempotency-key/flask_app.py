# The service with Flask 2. Wants PORT and libpq's variables (PGHOST, ...).
import os
from flask import Flask, request
from psycopg_pool import ConnectionPool
from idempotent import idempotent

app = Flask(__name__)
pool = ConnectionPool(max_size=8)

def charge(db, body):
    insert = 'INSERT INTO charge (account, amount) VALUES (%s, %s) RETURNING id::text'
    charge_id = db.execute(insert, (body['account'], body['amount'])).fetchone()[0]
    if body['amount'] > 1000:
        return {'status': 402, 'title': 'declined'}  # kept and replayed; the insert is rolled back
    return {'status': 201, 'id': charge_id}

@app.post('/charges')
def charges():
    header = request.headers.get('Idempotency-Key')
    answer = idempotent(pool, 'POST /charges', header, request.get_data(as_text=True), charge)
    return answer, answer['status']

if __name__ == '__main__':
    app.run('127.0.0.1', int(os.environ['PORT']), threaded=True)
