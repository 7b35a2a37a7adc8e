#!/usr/bin/python3
"""style.py [FILE...]: sentences of the documentation that have to be read twice, as far as a program can tell.

Prints each, by file and line, of the files given or of all pages.
Code, comments and quoted text are left out; a cell of a table is a sentence or several."""
import pathlib
import re
import sys

LONGEST = 35  # words
PATTERNS = {
    'a clause as the subject': r'^(?:What|Who|Whoever|Whose|Whatever) (?!.*\?$|can go wrong)',
    'Of as the first word': r'^Of (?!course\b)',
    'an amount as a clause': r'(?i)\bso (?:many|long|often|much) (?!that\b|as\b)|\bas (?:many|much) as\b',
    'is none': r'(?i)\b(?:is|are|be|was) none\b',
    'a word of the house': r'(?i)\b(?:anew|dear|dearly|dearer|tells? of|hears? of|half of all|goes? on as|casualt\w+|the ladder'
                           r'|is the business of|stands? for any)\b',
}


def sentences(text):
    """(line, sentence) of the prose."""
    def blank(match):
        return re.sub(r'[^\n]', ' ', match.group())
    text = re.sub(r'^---\n.*?^---$', blank, text, flags=re.DOTALL | re.MULTILINE) if text.startswith('---') else text
    # Written from the COMMENTs.
    text = re.sub(r'<!-- (?:call|contents|catalog: \w+|raises: \w+) -->.*?<!-- end -->', blank, text, flags=re.DOTALL)
    text = re.sub(r'^```.*?^```|<!--.*?-->|^ {4,}[^ *0-9-].*?$', blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r'\]\([^)]*\)', ']', text)
    text = re.sub(r'`[^`]*`', 'code', text)
    text = re.sub(r'"[^"\n]*"|\u201c[^\u201d]*\u201d', 'quote', text)
    block, start = [], 0
    for number, line in enumerate([*text.splitlines(), ''], 1):
        begins = re.match(r' *(?:[-*|#>]|\d+\.) ?|$', line)
        if begins and block:
            yield from split(' '.join(block), start)
            block = []
        if re.match(r'\|[-| :]*$', line):
            continue
        if line.startswith('|'):
            for cell in line.strip('|').split(' | '):
                yield from split(cell.strip(), number)
        elif line.strip():
            if not block:
                start = number
            block.append(re.sub(r'^ *(?:[-*#>]+|\d+\.) +', '', line).strip())


def split(text, line):
    text = re.sub(r'[*_\[\]]', '', text)
    for sentence in re.split(r'(?<=[.!?])\s+(?=[A-Zc"(])', text):
        if sentence.strip():
            yield line, sentence.strip()


def findings(file):
    for line, sentence in sentences(file.read_text()):
        for name, pattern in PATTERNS.items():
            if re.search(pattern, sentence):
                yield f'{file}:{line}: {name}: {sentence[:90]}'
        words = len(re.findall(r"[\w'/.,:-]*\w", sentence))
        if words > LONGEST:
            yield f'{file}:{line}: {words} words: {sentence[:90]}'


def pages():
    yield from sorted(pathlib.Path().glob('*.md'))
    for page in sorted(pathlib.Path('docs').rglob('*.md')):
        # Decisions are records of their day; runs write the proof.
        if page.name not in ('changelog.md', 'proof.md') and not {'node_modules', 'decisions'} & set(page.parts):
            yield page


for page in [pathlib.Path(name) for name in sys.argv[1:]] or pages():
    for finding in findings(page):
        print(finding)
