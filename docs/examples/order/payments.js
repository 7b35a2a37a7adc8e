// The payment service: does the steps of the queue "payments", in a database of its own. Wants libpq's variables.
const pg = require('pg');
const { Client } = require('../clients/stacksaga.js');

const bank = new pg.Pool({ database: 'bank' }).on('error', (error) => console.error(error.message));

// A step may come twice, and its compensation before a late act. One row for both makes each take effect once, and
// refuses an act whose compensation was here.
async function charge(shop, { idempotency_key, direction, input: { customer, price, card } }) {
    const key = idempotency_key.replace(/:(act|compensate)/, '');  // what the charge and its refund have in common
    if (direction === 'compensate') {
        await bank.query(`INSERT INTO charge VALUES ($1, $2, 0, true)
                          ON CONFLICT (key) DO UPDATE SET refunded = true`, [key, customer]);
        return { refunded: true };
    }
    if (card === 'declined') throw Object.assign(new Error('card declined'), { code: 'SG424' });
    const { rowCount } = await bank.query('INSERT INTO charge VALUES ($1, $2, $3, false) ON CONFLICT DO NOTHING',
        [key, customer, price]);
    const { rows: [{ refunded }] } = await bank.query('SELECT refunded FROM charge WHERE key = $1', [key]);
    if (refunded) throw Object.assign(new Error('refunded before'), { code: 'SG424' });
    if (card === 'crash' && rowCount) process.kill(process.pid, 'SIGKILL');  // after the charge, before the answer
    return { charged: price };
}

new Client(Number(process.env.LEASE ?? 30)).work('payments', charge).then(() => bank.end());
