#!/usr/bin/python3
"""rooms.py ROOM KIND: prints the names of the tests that a room's README and those below it name.
rooms.py --check: prints what is wrong: a test that is not there, a regression file or isolation spec
that no room names, a source file that its room's README does not name.

A room is a folder of extension/ or coordinator/ with a README.md, whose section "Tests" has a line for each
KIND of regress, isolation, unit and tap, or several: "- KIND: `name`, `begin_*`", or "- KIND, of what: ...". A
unit test is named by its suite."""

import fnmatch
import pathlib
import re
import sys

KINDS = {
    "regress": lambda: {file.stem for file in pathlib.Path("sql").glob("*.sql")},
    "isolation": lambda: {file.stem for file in pathlib.Path("test/isolation/specs").glob("*.spec")},
    "tap": lambda: {file.stem for file in pathlib.Path("test/tap").glob("*.pl")},
    "unit": lambda: {
        suite
        for file in pathlib.Path("test/unit").glob("**/*.cpp")
        for suite in re.findall(r"^TEST(?:_F|_P)?\((\w+)", file.read_text(), flags=re.M)
    },
}


def readmes():
    for folder in "extension", "coordinator":
        yield from sorted(pathlib.Path(folder).glob("**/README.md"))


def patterns(readme, kind):
    section = re.search(r"^## Tests\n(.*?)(?=^## |\Z)", readme.read_text(), flags=re.M | re.S)
    lines = re.findall(rf"^- {kind}\b[^:]*:(.*?)(?=^- |^\n|\Z)", section[1], flags=re.M | re.S) if section else []
    return [name for line in lines for name in re.findall(r"`([^`]+)`", line)]


def tests_of(room, kind):
    there = KINDS[kind]()
    found = set()
    for readme in readmes():
        if room in readme.parent.parts:
            for pattern in patterns(readme, kind):
                found.update(fnmatch.filter(there, pattern))
    return sorted(found)


def problems():
    for kind, there in KINDS.items():
        names = there()
        named = set()
        for readme in readmes():
            for pattern in patterns(readme, kind):
                found = fnmatch.filter(names, pattern)
                named.update(found)
                if not found:
                    yield f"{readme}: there is no {kind} test {pattern}"
        if kind in ("regress", "isolation"):
            for name in sorted(names - named):
                yield f"no room names the {kind} test {name}"
    folders = pathlib.Path("extension"), pathlib.Path("coordinator")
    sources = [file for folder in folders for file in folder.glob("**/*.[ch]pp")]
    page = list(pathlib.Path("coordinator/page").iterdir())  # all of it becomes a part of the daemon
    for file in sorted(sources + page):
        room = next(folder for folder in file.parents if (folder / "README.md").exists())
        if file in page:
            room = pathlib.Path("coordinator/web")
        if not re.search(rf"`(?:[a-z]+/)?{file.stem}(\.[a-z]+)?`", (room / "README.md").read_text()):
            yield f"{room}/README.md does not name {file}"


def main():
    if sys.argv[1:] == ["--check"]:
        print("".join(f"{problem}\n" for problem in problems()), end="")
    elif len(sys.argv) == 3 and sys.argv[2] in KINDS:
        rooms = {part for readme in readmes() for part in readme.parent.parts}
        if sys.argv[1] not in rooms:
            sys.exit(f"no room {sys.argv[1]}")
        print("".join(f"{name}\n" for name in tests_of(*sys.argv[1:])), end="")
    else:
        sys.exit(__doc__)


main()
