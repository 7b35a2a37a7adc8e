// A service with one request, POST /charges. Wants PORT and libpq's variables (PGHOST, ...).
const http = require('http'), { text } = require('stream/consumers'), { Pool } = require('pg');
const idempotent = require('./idempotent.js');

// A connection that is lost fails the query that runs on it, not the process.
const lost = (error) => console.error(error.message);
const pool = new Pool().on('error', lost).on('connect', (db) => db.on('error', lost));

async function charge(db, { account, amount }) {
    const insert = 'INSERT INTO charge (account, amount) VALUES ($1, $2) RETURNING id::text';
    const { rows: [{ id }] } = await db.query(insert, [account, amount]);
    return amount > 1000 ? { status: 402, title: 'declined' } : { status: 201, id };
}

http.createServer(async (request, response) => {
    const header = request.headers['idempotency-key'];
    const answer = await idempotent(pool, 'POST /charges', header, await text(request), charge)
        .catch((error) => ({ status: 503, title: error.message }));
    response.writeHead(answer.status, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify(answer));
}).listen(process.env.PORT, '127.0.0.1');
