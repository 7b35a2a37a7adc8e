// `example.js work` does the steps of the queue "payments", `example.js consume` books messages in a ledger.
// Wants libpq's variables (PGHOST, ...).
const { Client } = require('./stacksaga.js');

async function charge(db, { idempotency_key, direction, input }) {
    const { rows } = await db.query('SELECT charge($1, $2, $3)', [idempotency_key, direction, JSON.stringify(input)]);
    return rows[0].charge;
}

async function book(db, { message_id, key, payload }) {
    const insert = 'INSERT INTO ledger (message_id, key, payload) VALUES ($1, $2, $3)';
    await db.query(insert, [message_id, key, JSON.stringify(payload)]);
}

const client = new Client(Number(process.env.LEASE ?? 30));
process.argv[2] === 'work' ? client.work('payments', charge) : client.consume('ledger', book);
