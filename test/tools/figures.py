#!/usr/bin/python3
"""figures.py [--write]: the figures that prose quotes from the benches, compared with docs/performance.md.

A figure in prose stands between <!-- figure NAME --> and <!-- end -->; FIGURES says from which row and column of which
bench NAME comes, or how it follows from others. Prints each that differs, each rate or time in prose that has no mark,
and each name that nobody knows; with --write it writes the figures instead, as `test/tools/bench --write` does.

Figures that no bench makes need their source before the paragraph or table: <!-- figures of SOURCE -->."""
import pathlib
import re
import sys

PAGE = pathlib.Path('docs/performance.md')
# They hold what benches and runs print, or declarations.
NOT_PROSE = {'performance.md', 'proof.md', 'reference.md', 'changelog.md'}  # and docs/reference/
MARK = re.compile(r'(<!-- figure ([\w]+) -->)(.*?)(<!-- end -->)', re.DOTALL)
SOURCE = re.compile(r'<!-- figures of [^>]+ -->\n(?:.+\n)+')
# Rates of a thousand and more, times in microseconds, and fractions of a millisecond.
LOOSE = re.compile(r'\d{1,3}(?:,\d{3})+ (?:[a-z]+ ){0,3}(?:a|per) second|[\d.,]+ ?(?:µs|us)\b|\d+\.\d+ ms\b')


def rows(bench):
    """The rows of a bench's table, by column."""
    table = re.search(rf'<!-- bench {bench} -->\n(.*?)<!-- end -->', PAGE.read_text(), re.DOTALL).group(1)
    lines = [[cell.strip() for cell in line.strip('|\n').split(' | ')] for line in table.splitlines() if line[:1] == '|']
    return [dict(zip([head.strip() for head in lines[0]], line)) for line in lines[2:]]


def number(text):
    return float(re.match(r'[\d,.]+', text).group().replace(',', ''))


def measured(bench, what):
    return number(next(row['measured'] for row in rows(bench) if row['what'] == what))


def rate(bench, what, clients, side=0):
    """A second, of ours (0) or of what it is compared with (1)."""
    found = next(row for row in rows(bench) if row['what'] == what and row['clients'] == str(clients))
    return number(found['a second'].split(' : ')[side])


def core_of_view(view):
    return next(number(row['CPU']) for row in rows('page_views') if row['view'] == view)


def costliest_view():
    """Of the page's own: the problems are read for all pages at once, and /metrics is not a view."""
    return max(number(row['CPU']) for row in rows('page_views') if not re.search('`/', row['view']))


ANSWER = ('saga_answer', '`claim_steps` + `complete_step`', 16)


def core_of_start():
    """Microseconds of a core: two cores, shared by clients and server, are busy."""
    return 2e6 / rate('saga_start', '`start_saga`', 16)


def core_of_steps():
    """One worker is one process, so it takes at most one core."""
    return 1e6 / measured('worker_sagas', 'sagas, each step inserts a row')


def core_of_saga():
    return round(core_of_start()) + round(core_of_steps())


def sagas_of_two_cores():
    return round(2e6 / core_of_saga(), -2)


FIGURES = {
    'worker_sagas': lambda: measured('worker_sagas', 'sagas, each step inserts a row'),
    'worker_sagas_by_hand': lambda: measured('worker_sagas', 'by hand, each step inserts a row'),
    'starts': lambda: rate('saga_start', '`start_saga`', 16),
    'answers': lambda: rate(*ANSWER),
    'answers_by_hand': lambda: rate(*ANSWER, side=1),
    'wal_start': lambda: measured('saga_wal', 'starting a saga of three SQL steps'),
    'wal_steps': lambda: measured('saga_wal', 'running its steps, which insert a row each, in batches'),
    'core_of_start': core_of_start,
    'core_of_steps': core_of_steps,
    'core_of_saga': core_of_saga,
    'core_of_answer': lambda: round(2e6 / rate(*ANSWER), -1),
    'sagas_of_two_cores': sagas_of_two_cores,
    'page_view': lambda: f'{costliest_view():.1f}',
    'page_problems': lambda: f"{core_of_view('problems and rings, `/status`'):.1f}",
    # Of a server that does 10,000 a second.
    'busy_cores': lambda: f'{core_of_saga() / 100:.1f}',
    'servers_for_a_million': lambda: round(1e6 / sagas_of_two_cores()),
}


def text_of(name):
    value = FIGURES[name]()
    return value if isinstance(value, str) else f'{value:,.0f}'


def main(write):
    for page in [pathlib.Path('README.md'), *sorted(pathlib.Path('docs').rglob('*.md'))]:
        if 'node_modules' in page.parts:
            continue
        if page.name in NOT_PROSE or {'decisions', 'reference'} & set(page.parts):
            continue
        text = page.read_text()
        for _, name, shown, _ in MARK.findall(text):
            if name not in FIGURES:
                print(f'{page}: there is no figure {name}')
            elif not write and shown != text_of(name):
                print(f'{page}: {name} is {text_of(name)} in {PAGE} and {shown} here: '
                      'run test/tools/figures.py --write')
        if write:
            page.write_text(MARK.sub(lambda mark: f'{mark[1]}{text_of(mark[2])}{mark[4]}', text))
        prose = re.sub(r'^```.*?^```', '', SOURCE.sub('', MARK.sub('', text)), flags=re.DOTALL | re.MULTILINE)
        for loose in LOOSE.finditer(prose):
            print(f'{page}: {" ".join(loose.group().split())}: which bench, or <!-- figures of SOURCE -->?')


main(sys.argv[1:] == ['--write'])
