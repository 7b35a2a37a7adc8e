-- Definitions drawn as Mermaid flowcharts.

CREATE SCHEMA diagram;
CREATE FUNCTION diagram.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION diagram.undo(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
\pset tuples_only on
\pset format unaligned

-- One step without compensation.
SELECT stacksaga.define_saga('diagram', ARRAY[stacksaga.queue_step('only', 'mail', false)]) > 0;
SELECT stacksaga.saga_diagram('diagram');

-- Stages with several steps, a stage with nothing to undo between two that have, a pivot.
SELECT stacksaga.define_saga('diagram', ARRAY[
    stacksaga.sql_step('flight', 'diagram.act(stacksaga.step_call)', 'diagram.undo(stacksaga.step_call)', stage => 10),
    stacksaga.sql_step('hotel', 'diagram.act(stacksaga.step_call)', 'diagram.undo(stacksaga.step_call)', stage => 10),
    stacksaga.sql_step('price', 'diagram.act(stacksaga.step_call)'),
    stacksaga.queue_step('hold', 'payments', compensable => true, stage => 30),
    stacksaga.queue_step('insurance', 'partners', false, stage => 30),
    stacksaga.queue_step('pay', 'payments', effect => 'irreversible'),
    stacksaga.sql_step('ticket', 'diagram.act(stacksaga.step_call)')]);
SELECT stacksaga.saga_diagram('diagram');
-- An older version, and the current one by number.
SELECT stacksaga.saga_diagram('diagram', 1);
SELECT stacksaga.saga_diagram('diagram', 2) = stacksaga.saga_diagram('diagram');

-- All kinds of steps, and what is tried in their place.
SELECT stacksaga.define_saga('diagram kinds', ARRAY[
    stacksaga.sql_step('sql', 'diagram.act(stacksaga.step_call)', 'diagram.undo(stacksaga.step_call)',
                       fallback => 'diagram.undo(stacksaga.step_call)'),
    stacksaga.queue_step('queue', 'first', compensable => true, fallback => 'second'),
    stacksaga.signal_step('signal', 'go "now"', stage => 2),
    stacksaga.timer_step('timer', '90 minutes', stage => 2),
    stacksaga.child_step('child', 'diagram')]);
SELECT stacksaga.saga_diagram('diagram kinds');

-- What follows a failure: of the saga where it parks, of the steps that say something else.
SELECT stacksaga.define_saga('diagram parks', ARRAY[
    stacksaga.sql_step('debit', 'diagram.act(stacksaga.step_call)', 'diagram.undo(stacksaga.step_call)'),
    stacksaga.queue_step('check', 'checks', false, on_failure => 'compensate'),
    stacksaga.queue_step('pay', 'payments', effect => 'irreversible', on_failure => 'park')], on_failure => 'park');
SELECT stacksaga.saga_diagram('diagram parks');
SELECT stacksaga.define_saga('diagram parks', ARRAY[
    stacksaga.queue_step('check', 'checks', false), stacksaga.timer_step('wait', '1 hour', on_failure => 'park')]);
SELECT stacksaga.saga_diagram('diagram parks');

-- Names that would end a label, a node, a line or a comment, or become HTML, stay text.
CREATE FUNCTION diagram."odd ("";)"(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
SELECT stacksaga.define_saga('diagram "odd" %%{init}%%', ARRAY[
    stacksaga.sql_step('a"] --> b; end %% c', 'diagram."odd ("";)"(stacksaga.step_call)'),
    stacksaga.queue_step('<img src=x onerror="alert(1)">', 'q#quot;|{}', false),
    stacksaga.queue_step('`style: \n#` end', ' ', false),
    stacksaga.queue_step('graph', 'Größe ☂', false)]);
SELECT stacksaga.saga_diagram('diagram "odd" %%{init}%%');

-- Every line is a statement of the part of Mermaid's grammar that is used, the text between quotes
-- has no character that means anything, and what an arrow names is defined once.
CREATE FUNCTION diagram.wrong(saga text, version integer) RETURNS SETOF text LANGUAGE sql AS $$
    WITH line AS (
        SELECT n, regexp_replace(trim(l),
                   '"([^]["''<>#;:%`{}|\\&/=[:cntrl:]]|<br/>|#[0-9]+;)*"', '"L"') AS l
          FROM regexp_split_to_table(stacksaga.saga_diagram(saga, version), '\n')
              WITH ORDINALITY AS s(l, n)
    ), defined AS (
        SELECT (regexp_match(l, '^(?:subgraph )?([a-z]+[0-9]*)[[({>]'))[1] AS id FROM line
    ), used AS (
        SELECT unnest(regexp_split_to_array(l, ' (-->|-\. (?:undone by|or else) \.->|-\.->|&) ')) AS id
          FROM line WHERE l ~ '->'
    )
    SELECT 'no statement: ' || l FROM line
     WHERE l !~ CASE WHEN n = 1 THEN '^flowchart TD$' ELSE
               '^(begin\(\("L"\)\)|(completed|failed)\(\((completed|failed)\)\)'
               '|s[0-9]+(\["L"\]|\[/"L"/\]|>"L"\]|\("L"\)|\[\["L"\]\])(:::pivot)?|f[0-9]+\["L"\]|c[0-9]+\(\["L"\]\):::undo'
               '|subgraph g[0-9]+\["L"\]|end|classDef [a-z]+ [a-z-]+:[0-9a-z]+'
               '|(begin|[sg][0-9]+) --> ([sg][0-9]+|completed)'
               '|s[0-9]+ -\. (undone by \.-> c|or else \.-> f)[0-9]+'
               '|c[0-9]+( & c[0-9]+)* -\.-> (failed|c[0-9]+( & c[0-9]+)*))$' END
    UNION ALL
    SELECT 'defined twice: ' || id FROM defined WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1
    UNION ALL
    SELECT 'not defined: ' || id FROM used
     WHERE id NOT IN (SELECT id FROM defined WHERE id IS NOT NULL)
$$;
SELECT w FROM stacksaga.saga_definition d, diagram.wrong(d.saga, d.version) w;
-- Every character of the beginning of Unicode but controls, each in a name of its own.
SELECT stacksaga.define_saga('diagram', array_agg(
           stacksaga.queue_step(format('%s%s%s', n, chr(n), chr(n)), chr(n), false) ORDER BY n)) > 0
  FROM generate_series(32, 900) n WHERE n NOT BETWEEN 127 AND 159;
SELECT w FROM diagram.wrong('diagram', NULL) w;

-- What is not there, and what is no name.
\set SHOW_CONTEXT never
SELECT stacksaga.saga_diagram('no such saga');
\echo :SQLSTATE
SELECT stacksaga.saga_diagram('diagram', 99);
\echo :SQLSTATE
SELECT stacksaga.saga_diagram('diagram', 0);
\echo :SQLSTATE
SELECT stacksaga.saga_diagram(NULL);
\echo :SQLSTATE
SELECT stacksaga.saga_diagram(repeat('x', 10000));
\echo :SQLSTATE
\pset tuples_only off
\pset format aligned
\set QUIET on
SET client_min_messages = warning;
DROP SCHEMA diagram CASCADE;
RESET client_min_messages;
\set QUIET off
