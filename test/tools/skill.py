#!/usr/bin/python3
"""skill.py [--write]: what docs/SKILL.md and llms.txt repeat of other pages, compared with these; with --write it is written.

The calls of SKILL.md are declarations of docs/reference/*.md with the first sentence of their COMMENT, and what they raise.
llms.txt is the list of docs/README.md."""
import pathlib
import re
import sys

CALLS = '''define_saga sql_step queue_step start_saga saga_result await_saga saga_timeline claim_steps wait_for_steps complete_step fail_step release_step extend_step
    signal_saga publish receive_messages ack_messages fail_message retry_policy run_pending'''.split()
SUMMARY = '''# stacksaga

> A PostgreSQL extension (14 to 18) for sagas with retries and compensation, idempotency keys and an outbox. Steps are SQL
> functions or jobs that services claim in plain SQL. 1.0 is not released.

To write a saga with a service, docs/SKILL.md is enough.
'''


def comments():
    sources = ''.join(file.read_text() for file in sorted(pathlib.Path('extension/sql').rglob('*.sql')))
    found = re.findall(r"^COMMENT ON (?:FUNCTION|PROCEDURE) stacksaga\.(\w+)(?:\([^;]*?\))? IS\s+((?:'(?:[^']|'')*'\s*)+);",
                       sources, re.MULTILINE)
    return {name: ''.join(re.findall(r"'((?:[^']|'')*)'", text)).replace("''", "'") for name, text in found}


def calls():
    reference, comment = ''.join(page.read_text() for page in sorted(pathlib.Path('docs/reference').glob('*.md'))), comments()
    lines = ['```postgresql']
    for name in CALLS:
        text = re.search(rf'^```postgresql\n((?:CALL )?{name}\(.*?)^```', reference, re.MULTILINE | re.DOTALL).group(1)
        declaration = re.sub(r'\( ', '(', ' '.join(text.split()))
        lines += [f'-- {comment[name]}', declaration]
    columns = re.search(r'<!-- catalog: claimed_step -->\n(.*?)<!-- end -->', reference, re.DOTALL).group(1)
    names = re.findall(r'^\| (`\w+`) \| `', columns, re.MULTILINE)
    return '\n'.join([*lines, '```', 'A row of `claim_steps` has ' + ', '.join(names) + '.']) + '\n'


def skill():
    text = pathlib.Path('docs/SKILL.md').read_text()
    return re.sub(r'(?<=<!-- calls -->\n).*?(?=<!-- end -->)', lambda _: calls(), text, flags=re.DOTALL)


def llms():
    text = pathlib.Path('docs/README.md').read_text()
    lines = [SUMMARY]
    for line in text.splitlines():
        row = re.fullmatch(r'\| \[(.*?)\]\((.*?)\) \| (.*) \|', line)
        if line.startswith('## '):
            lines.append(('' if lines[-1] is SUMMARY else '\n') + line + '\n')
        elif row:
            lines.append(f'- [{row[1]}](docs/{row[2]}): {row[3]}')
    return '\n'.join(lines) + '\n'


for name, wanted in ('docs/SKILL.md', skill()), ('llms.txt', llms()):
    file = pathlib.Path(name)
    if sys.argv[1:] == ['--write']:
        file.write_text(wanted)
    elif not file.exists() or file.read_text() != wanted:
        print(f'{name} is not what docs/reference, the COMMENTs and docs/README.md say: run test/tools/skill.py --write')
