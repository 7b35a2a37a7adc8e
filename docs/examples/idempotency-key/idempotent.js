// Makes a request take effect once per Idempotency-Key. handler(db, body) works in the transaction
// of its marker. It returns { status, ... }, which is kept and replayed; if it throws, nothing stays.
const begin = 'SELECT * FROM stacksaga.idempotency_begin($1, $2, $3)';
const finish = 'SELECT stacksaga.idempotency_finish($1, $2, $3, $4)';

module.exports = async function idempotent(pool, scope, header, body, handler) {
    const key = /^"([^"\\]+)"$/.exec(header)?.[1]; // without a key, begin raises SG400
    const db = await pool.connect();
    try {
        await db.query('BEGIN');
        const { rows: [call] } = await db.query(begin, [scope, key, body]);
        if (call.outcome !== 'replay') {
            await db.query('SAVEPOINT effects');
            call.response = await handler(db, JSON.parse(body));
            if (call.response.status >= 400) await db.query('ROLLBACK TO effects');
            await db.query(finish, [scope, key, call.lease, JSON.stringify(call.response)]);
        }
        await db.query('COMMIT');
        return call.response;
    } catch (error) {
        await db.query('ROLLBACK').catch(() => {}); // a lost connection is rolled back already
        const [, status] = /^S[GR](\d{3})$/.exec(error.code) ?? /^22/.exec(error.code) ?? [, 500];
        return { status: Number(status ?? 400), title: error.message, detail: error.hint };
    } finally {
        db.release();
    }
};
