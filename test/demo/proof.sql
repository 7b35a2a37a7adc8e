-- The proof: one row for each thing that must hold, with the number of rows that break it and one
-- example. Run in bank A after test/demo/run has copied bank B's tables into b_applied, b_journal,
-- b_opening and b_accounts (those that are not empty).
--   :transfers  how many were asked for
--   :late :died from the services' logs

CREATE TEMP TABLE transfer AS
SELECT s.saga_id, s.status, r.key, (r.input ->> 'from')::integer AS debtor,
       (r.input ->> 'to')::integer AS creditor, (r.input ->> 'amount')::integer AS amount
  FROM bank.request r JOIN stacksaga.sagas s ON s.key = r.key AND s.input = r.input;
CREATE UNIQUE INDEX ON transfer (saga_id);
CREATE TEMP TABLE a_accounts AS SELECT aid, abalance FROM pgbench_accounts WHERE abalance <> 0;
CREATE TEMP TABLE a_journal AS TABLE bank.journal;
CREATE TEMP TABLE a_opening AS TABLE bank.opening;
CREATE INDEX ON a_journal (saga_id);
CREATE INDEX ON b_journal (saga_id);
ANALYZE transfer, a_journal, b_journal, b_applied;

CREATE TEMP TABLE wrong (statement integer, example text);
CREATE TEMP TABLE statement (statement integer, text text);
INSERT INTO statement VALUES
    (1, 'every transfer asked for is one saga, completed or failed, and there are no others'),
    (2, 'no work is left over'),
    (3, 'all balances of A and B together are what they were at the start'),
    (4, 'every balance is the opening balance and what its journal says'),
    (5, 'every completed transfer was debited once in A and credited once in B'),
    (6, 'every failed transfer left nothing in A and nothing in B'),
    (7, 'no idempotency key changed a balance twice'),
    (8, 'bank B and bank A agree which credits stand and which were undone'),
    (9, 'the coordinator published windows, and the workers go by them');

INSERT INTO wrong
SELECT 1, r.key || ' has no such saga' FROM bank.request r
 WHERE NOT EXISTS (SELECT FROM transfer t WHERE t.key = r.key);
INSERT INTO wrong
SELECT 1, format('%s is %s', t.key, t.status) FROM transfer t
 WHERE t.status NOT IN ('completed', 'failed');
INSERT INTO wrong
SELECT 1, format('%s sagas, %s asked for', sagas, :transfers)
  FROM (SELECT count(*) AS sagas FROM stacksaga.sagas) AS s WHERE sagas <> :transfers;

INSERT INTO wrong SELECT 2, format('%s %s of saga %s', purpose, step_no, saga_id) FROM stacksaga.work;

INSERT INTO wrong
SELECT 3, format('%s before, %s after', before, after)
  FROM (SELECT (SELECT sum(balance) FROM (TABLE a_opening UNION ALL TABLE b_opening) AS o) AS before,
               (SELECT sum(abalance) FROM (TABLE a_accounts UNION ALL TABLE b_accounts) AS a) AS after
       ) AS sums
 WHERE before IS DISTINCT FROM after;

INSERT INTO wrong
SELECT 4, format('account %s of bank %s', aid, bank)
  FROM (SELECT 'A' AS bank, aid, -balance AS amount FROM a_opening
        UNION ALL SELECT 'A', aid, -amount FROM a_journal
        UNION ALL SELECT 'A', aid, abalance FROM a_accounts
        UNION ALL SELECT 'B', aid, -balance FROM b_opening
        UNION ALL SELECT 'B', aid, -amount FROM b_journal
        UNION ALL SELECT 'B', aid, abalance FROM b_accounts) AS everything
 GROUP BY bank, aid HAVING sum(amount) <> 0;

-- What each transfer did to the accounts that it names, and to any others.
CREATE TEMP TABLE sum_of_transfer AS
SELECT t.*, a.changes AS a_changes, a.moved AS a_moved, b.changes AS b_changes, b.moved AS b_moved
  FROM transfer t,
       LATERAL (SELECT count(*) AS changes, coalesce(sum(j.amount), 0) AS moved FROM a_journal j
                 WHERE j.saga_id = t.saga_id AND j.aid = t.debtor) AS a,
       LATERAL (SELECT count(*) AS changes, coalesce(sum(j.amount), 0) AS moved FROM b_journal j
                 WHERE j.saga_id = t.saga_id AND j.aid = t.creditor) AS b;

INSERT INTO wrong
SELECT 5, format('%s of %s: %s in A by %s changes, %s in B by %s', key, amount, a_moved, a_changes,
                 b_moved, b_changes)
  FROM sum_of_transfer
 WHERE status = 'completed' AND (a_changes, a_moved, b_changes, b_moved) <> (1, -amount, 1, amount);
INSERT INTO wrong
SELECT CASE status WHEN 'failed' THEN 6 ELSE 5 END, format('%s changed another account', key)
  FROM sum_of_transfer t
 WHERE EXISTS (SELECT FROM a_journal j WHERE j.saga_id = t.saga_id AND j.aid <> t.debtor)
    OR EXISTS (SELECT FROM b_journal j WHERE j.saga_id = t.saga_id AND j.aid <> t.creditor);

INSERT INTO wrong
SELECT 6, format('%s of %s: %s in A by %s changes, %s in B by %s', key, amount, a_moved, a_changes,
                 b_moved, b_changes)
  FROM sum_of_transfer
 WHERE status = 'failed'
   AND (a_moved <> 0 OR b_moved <> 0 OR a_changes NOT IN (0, 2) OR b_changes NOT IN (0, 2));

INSERT INTO wrong
SELECT 7, format('%s, %s times', idempotency_key, count(*))
  FROM (TABLE a_journal UNION ALL TABLE b_journal) AS j
 GROUP BY idempotency_key HAVING count(*) > 1;

INSERT INTO wrong
SELECT 8, format('%s is %s, its credit %s', t.key, t.status, b.outcome)
  FROM b_applied b JOIN transfer t ON b.idempotency_key = t.saga_id || ':2:act'
 WHERE (t.status = 'completed') <> (b.outcome = 'applied');
INSERT INTO wrong
SELECT 8, format('%s was answered in A without a key in B', t.key)
  FROM transfer t
 WHERE t.status = 'completed'
   AND NOT EXISTS (SELECT FROM b_applied b WHERE b.idempotency_key = t.saga_id || ':2:act');

INSERT INTO wrong
SELECT 9, 'there is no window' WHERE NOT EXISTS (SELECT FROM stacksaga.token_window);
INSERT INTO wrong
SELECT 9, format('worker %s is %s', pid, mode) FROM stacksaga.worker_stats
 WHERE mode <> 'coordinator';

\pset format unaligned
\pset tuples_only on
SELECT CASE count(w.example) WHEN 0 THEN 'ok      ' ELSE 'NOT OK  ' END || s.text
       || CASE count(w.example) WHEN 0 THEN ''
          ELSE format(E'\n        %s times, such as: %s', count(w.example), min(w.example)) END
  FROM statement s LEFT JOIN wrong w USING (statement)
 GROUP BY s.statement, s.text ORDER BY s.statement;
SELECT format(E'\nbalances: %s before, %s after',
              (SELECT sum(balance) FROM (TABLE a_opening UNION ALL TABLE b_opening) AS o),
              (SELECT sum(abalance) FROM (TABLE a_accounts UNION ALL TABLE b_accounts) AS a));

-- What happened meanwhile.
CREATE TEMP TABLE outcome AS
SELECT CASE WHEN t.status = 'completed' THEN 'completed'
            WHEN NOT EXISTS (SELECT FROM a_journal j WHERE j.saga_id = t.saga_id) THEN 'refused by A'
            WHEN EXISTS (SELECT FROM stacksaga.failure f
                          WHERE f.saga_id = t.saga_id AND f.error_class = 'non_retryable') THEN 'refused by B'
            ELSE 'given up' END AS outcome, count(*)
  FROM transfer t GROUP BY 1;
SELECT format('%6s  %s', coalesce(count, 0), what)
  FROM (VALUES (1, 'transfers completed', (SELECT count FROM outcome WHERE outcome = 'completed')),
               (2, 'refused by bank A', (SELECT count FROM outcome WHERE outcome = 'refused by A')),
               (3, 'refused by bank B, the money given back in A',
                   (SELECT count FROM outcome WHERE outcome = 'refused by B')),
               (4, 'given up after all attempts, the money given back in A',
                   (SELECT count FROM outcome WHERE outcome = 'given up')),
               (5, 'attempts failed and were repeated or compensated',
                   (SELECT count(*) FROM stacksaga.failure)),
               (6, 'of them because a lease ran out',
                   (SELECT count(*) FROM stacksaga.failure WHERE error = 'the lease ran out')),
               (7, 'credits asked for again, and answered from the stored response',
                   (SELECT sum(replays) FROM b_applied)),
               (8, 'credits made and undone', (SELECT count(*) FROM b_applied WHERE outcome = 'undone')),
               (9, 'credits ruled out before they were made',
                   (SELECT count(*) FROM b_applied WHERE outcome = 'never')),
               (10, 'credits refused because they came after their compensation',
                   (SELECT sum(refusals) FROM b_applied)),
               (11, 'answers refused because they came too late', :late),
               (12, 'services that died between a credit and its answer', :died),
               (13, 'windows published by the coordinator',
                   (SELECT count(*) FROM stacksaga.token_window)),
               -- Slots and windows take their epochs from one counter.
               (14, 'slots of the ring taken over since the first of them',
                   (SELECT count(*) FROM stacksaga.slot s
                     WHERE s.epoch > (SELECT min(w.epoch) FROM stacksaga.token_window w
                                       WHERE w.ring_id = s.ring_id)))) AS facts(place, what, count)
 ORDER BY place;

-- The transfer with the longest timeline among those that failed, else among all.
SELECT format(E'\nThe timeline of %s, %s', t.key, t.saga_id)
       || (SELECT string_agg(E'\n    ' || line, '' ORDER BY n)
             FROM stacksaga.saga_timeline(t.saga_id) WITH ORDINALITY AS l(line, n))
  FROM transfer t
 ORDER BY t.status = 'failed' DESC,
          EXISTS (SELECT FROM b_journal j WHERE j.saga_id = t.saga_id) DESC,
          (SELECT count(*) FROM stacksaga.failure f WHERE f.saga_id = t.saga_id) DESC, t.key LIMIT 1;

DO $$
BEGIN
    IF EXISTS (SELECT FROM wrong) THEN
        RAISE EXCEPTION 'the proof does not hold';
    END IF;
END $$;
