-- What each declared effect relies on when it is repeated, and where the promise ends.

CREATE OR REPLACE VIEW stacksaga.effects AS
SELECT d.saga AS source,
       s.step,
       s.effect,
       CASE WHEN s.effect = 'idempotent' THEN 'algebra'
            WHEN s.kind = 'sql' THEN 'transaction'
            ELSE 'dedupe record' END AS rung,
       CASE WHEN s.kind = 'sql' AND s.effect = 'idempotent' THEN
                'committed once with its marker, in this database; what it does elsewhere may be repeated, which changes nothing'
            WHEN s.kind = 'sql' THEN
                'committed once with its marker, in this database; what it does elsewhere may be repeated'
            WHEN s.effect = 'idempotent' THEN
                'offered at least once; a repetition changes nothing'
            ELSE
                'offered at least once; applied once where the service records the idempotency key with its effect' END
       || CASE s.effect
            WHEN 'compensable' THEN ', and undone by its compensation if the saga fails'
            WHEN 'irreversible' THEN ', and never undone: an unknown outcome waits for an operator'
            ELSE '' END AS guarantee,
       d.version
  FROM stacksaga.saga_definition d
  JOIN stacksaga.definition_step s USING (definition_id);
COMMENT ON VIEW stacksaga.effects IS
    'Every declared effect with its rung of the dedupe ladder (algebra, compare and set, sequence, dedupe record, transaction) and where its guarantee ends';
