// The service with Express 4. Wants PORT and libpq's variables (PGHOST, ...).
const express = require('express'), { Pool } = require('pg');
const idempotent = require('./idempotent.js');

// A connection that is lost fails the query that runs on it, not the process.
const lost = (error) => console.error(error.message);
const pool = new Pool().on('error', lost).on('connect', (db) => db.on('error', lost));

async function charge(db, { account, amount }) {
    const insert = 'INSERT INTO charge (account, amount) VALUES ($1, $2) RETURNING id::text';
    const { rows: [{ id }] } = await db.query(insert, [account, amount]);
    return amount > 1000 ? { status: 402, title: 'declined' } : { status: 201, id };
}

const app = express();
app.post('/charges', express.text({ type: '*/*' }), async (request, response) => {
    const body = typeof request.body === 'string' ? request.body : ''; // without a body it is an object
    const answer = await idempotent(pool, 'POST /charges', request.get('Idempotency-Key'), body, charge)
        .catch((error) => ({ status: 503, title: error.message })); // no connection
    response.status(answer.status).json(answer);
});
app.listen(process.env.PORT, '127.0.0.1');
