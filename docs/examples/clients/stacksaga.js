// A worker of a queue and a consumer of an outbox's subscription, with node-pg: copy it, and change it.
//   new Client().work(queue, effect)             awaits effect(db, step), which returns the step's output
//   new Client().consume(subscription, effect)   awaits effect(db, message) in the transaction that acknowledges it
//
// Both end after SIGTERM. By the `code` of an error, an SQLSTATE, the effect says what this attempt did: class SG: nothing,
// and no other will; class SR but SR504: nothing, and SR425 gives the step back, so that the attempt is not counted. Any other
// error is unknown: it may have had its effect. Its `retry_after`, if any, is the pause before the next attempt.
// While it runs, step.cancel_requested and step.lost may become true: then end soon.
const os = require('os'), pg = require('pg');
const NAME = `${os.hostname()}-${process.pid}`, RELEASE = 'SELECT stacksaga.release_step($1, $2, $3, $4, $5)';
const FAIL = 'SELECT stacksaga.fail_step($1, $2, $3, $4, $5, $6)';
const log = (what, error) => console.error(`${what}: ${error?.message ?? error}`), stateOf = (error) => String(error?.code ?? '');

async function connect() {
    const db = new pg.Client({ connectionTimeoutMillis: 10000, keepAlive: true });
    db.on('error', (error) => log('connection', error)).on('end', () => { db.lost = true; });
    return db.connect().then(() => db);
}

function failure(error) {  // the arguments from error on: what nobody has said may have had its effect
    const state = stateOf(error), text = String(error?.message ?? error).replaceAll('\0', '').slice(0, 1000);
    const means = /^SG/.test(state) ? 'non_retryable' : /^SR(?!504)/.test(state) ? 'retryable' : 'unknown';
    return [text || 'error', means, error?.retry_after ?? null];
}

exports.Client = class Client {
    constructor(lease = 30) {
        [this.lease, this.beatEvery] = [`${lease} seconds`, lease * 1000 / 3];
        process.on('SIGTERM', () => this.stop());
    }

    // Ends after what is at hand. A cancel that arrives before its statement does nothing: again.
    stop() {
        this.stopping = true, this.wake?.();
        const timer = setInterval(() => {
            if (!this.waits) return clearInterval(timer);
            const other = new pg.Client();
            other.connection.on('error', (error) => log('cancel', error)) && other.cancel(this.db, this.waits);
        }, 100);
    }

    // The heartbeat: prolongs the lease of what is at hand, in a session of its own.
    async beat(extend) {
        const { name, item } = this.held ?? {};
        if (!name || item.lost) return;
        try {
            if (!this.other || this.other.lost) this.other = await connect();
            Object.assign(item, (await this.other.query(extend, [...name, this.lease])).rows[0]);
        } catch (error) {  // the next beat tries again: a lease lasts for three
            log('heartbeat', error);
            this.other = this.other?.end().catch(() => {}) && null;
            item.lost = stateOf(error).startsWith('SG');  // somebody else's by now
        }
    }

    // One turn after the other. After an error it connects again, later and later, and not all at once.
    async run(extend, turn) {
        const beat = () => { this.beats ??= this.beat(extend).finally(() => { this.beats = null; }); };
        const timer = setInterval(beat, this.beatEvery);
        for (let errors = 0; this.answer || !this.stopping;) {
            try {
                if (!this.db || this.db.lost) this.db = await connect();
                await turn();
                errors = 0;
            } catch (error) {
                log('turn', error);
                this.db = this.db?.end().catch(() => {}) && null;
                await this.pause(100 * 2 ** Math.min(++errors, 6));
            }
        }
        clearInterval(timer);
        await this.beats;  // it may be connecting, and an open connection keeps the process
        await Promise.allSettled([this.db?.end(), this.other?.end()]);
    }

    pause(milliseconds) {
        return new Promise((resolve) => {
            const timer = setTimeout(resolve, milliseconds * (0.5 + Math.random() / 2));
            this.wake = () => resolve(clearTimeout(timer));
        });
    }

    work(queue, effect) {
        return this.run('SELECT * FROM stacksaga.extend_step($1, $2, $3, $4)', async () => {
            if (this.answer) return this.giveAnswer();  // of before the connection was lost, or after a refused one
            const claim = 'SELECT * FROM stacksaga.claim_steps($1, $2, 1, $3)';
            const { rows: [step] } = await this.db.query(claim, [queue, NAME, this.lease]);
            if (!step) return this.stopping || this.wait('steps($1)', [queue]);
            const name = [step.saga_id, step.step, step.lease];  // the lease is a string: let it be one
            if (this.stopping) this.answer = [RELEASE, [...name, '0', 'the service stops']];  // not begun: another one does it
            if (this.stopping) return this.giveAnswer();
            this.held = { name, item: step };
            try {
                const output = [...name, JSON.stringify(await effect(this.db, step) ?? null)];
                this.answer = ['SELECT stacksaga.complete_step($1, $2, $3, $4)', output];
            } catch (error) {
                log('step', error);
                const [why, means, after] = failure(error), isEarly = stateOf(error) === 'SR425';
                this.answer = isEarly ? [RELEASE, [...name, after ?? '10 s', why]] : [FAIL, [...name, why, means, after]];
            }
            await this.giveAnswer();
        });
    }

    // Under the same lease it may be repeated, so an answer whose reply was lost is given again.
    async giveAnswer() {
        const [sql, name] = this.answer;
        this.answer = await this.db.query(...this.answer).then(() => null, (error) => {
            if (!/^(SG|22|54)/.test(stateOf(error))) throw error;
            log('answer refused', error);
            if (sql === FAIL || /^SG4(04|09|12)/.test(error.code)) return null;  // somebody else's now, or answered
            return [FAIL, [...name.slice(0, 3), failure(error)[0], 'unknown', null]];  // the output, though the effect happened
        });
        if (!this.answer) this.held = null;
    }

    wait(call, values) {
        return new Promise((resolve, reject) => {  // a Query object, which can be cancelled
            const done = (error) => error && !(this.stopping && error.code === '57014') ? reject(error) : resolve();
            this.waits = new pg.Query('CALL stacksaga.wait_for_' + call, values, done);
            this.db.query(this.waits);
        }).finally(() => { this.waits = null; });
    }

    consume(subscription, effect) {
        return this.run('SELECT stacksaga.extend_batch($1, $2) AS lease_until', async () => {
            const receive = 'SELECT * FROM stacksaga.receive_messages($1, $2, 100, $3)';
            const { rows } = await this.db.query(receive, [subscription, NAME, this.lease]);
            if (!rows.length) return this.stopping || this.wait('messages($1, consumer => $2)', [subscription, NAME]);
            this.held = { name: [rows[0].batch_id], item: {} };
            // After an error, such as SG412 for a batch that somebody else has by now, nothing was done.
            await this.doBatch(this.db, rows, effect).finally(() => { this.held = null; });
        });
    }

    async doBatch(db, messages, effect) {
        const failed = new Map();
        await db.query('BEGIN');
        for (const message of messages) {
            if (message.key !== null && failed.has(message.key)) continue;  // later ones wait for one that failed
            await db.query('SAVEPOINT message');
            await (async () => effect(db, message))().catch(async (error) => {
                await db.query('ROLLBACK TO message');
                failed.set(message.key ?? message, [message.batch_id, message.message_id, ...failure(error)]);
            });
        }
        for (const row of failed.values()) await db.query('SELECT stacksaga.fail_message($1, $2, $3, $4, $5)', row);
        await db.query('SELECT stacksaga.ack_messages($1)', [messages[0].batch_id]).then(() => db.query('COMMIT'));
    }
};
