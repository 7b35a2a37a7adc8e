#!/usr/bin/python3
"""Checks what the files of the extension include. A file of pg/ or src/ that uses a name of core
includes a header that declares it. pg/pg.hpp includes nothing of core, and every header of std that the
extension includes, since those that come after PostgreSQL's headers would see their macros. What
compiles with the precompiled pg.hpp compiles without it: each file includes pg.hpp, if through others, or
compiles alone. Prints what is wrong."""

import functools
import pathlib
import re
import subprocess

EXTENSION = pathlib.Path("extension")
CORE = EXTENSION / "core"
WALL = EXTENSION / "pg/pg.hpp"
NAMESPACE = re.compile(r"namespace (?:stacksaga::core::)?(\w+) \{")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union|concept) (\w+)\b(?!;)")
ALIAS = re.compile(r"using (\w+) =|__extension__ typedef .*\b(\w+);")
# The formatter breaks a long declaration before its name, never inside of it.
NAME = re.compile(r"(?:^|[\s*&])(\w+)(?:\(|\[|\{| =|;)")
USE = re.compile(r"(?<![\w:])(?:stacksaga::)?core::(\w+)")


def without_comments(text):
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', '""', text, flags=re.S)


def declared(header):
    """The names that a header of core declares in namespace core: what begins at a line's start."""
    names = set()
    for line in without_comments(header.read_text()).splitlines():
        line = re.sub(r"^template <[^>]*> ", "", line)
        if not re.match(r"[A-Za-z_]", line) or re.match("namespace stacksaga::core \\{|template|static_assert", line):
            continue
        found = NAMESPACE.match(line) or TYPE.search(line) or ALIAS.match(line) or NAME.search(line)
        if found:
            names.update(name for name in found.groups() if name)
    return names


def includes(file, pattern):
    return set(re.findall(rf"^ *# *include {pattern}", file.read_text(), flags=re.M))


@functools.cache
def reaches_wall(file):
    return file == WALL or any(reaches_wall(EXTENSION / name) for name in includes(file, '"((?:pg|src)/[^"]+)"'))


def errors_alone(file):
    compiler = ["g++", "-std=c++20", "-fsyntax-only", f"-I{EXTENSION}", "-x", "c++", "-include", file, "/dev/null"]
    return subprocess.run(compiler, capture_output=True, text=True).stderr


def main():
    for header in sorted(includes(WALL, '"(core/[^"]+)"')):
        print(f"{WALL} includes {header}")
    first = includes(WALL, r"<(\w+)>")
    for file in sorted(EXTENSION.glob("**/*.[ch]pp")):
        for header in sorted(includes(file, r"<(\w+)>") - first):
            print(f"{file} includes <{header}>, which {WALL} does not")
    headers = {}
    for header in sorted(CORE.glob("**/*.hpp")):
        for name in declared(header):
            headers.setdefault(name, []).append(header.relative_to(EXTENSION).as_posix())
    for folder in EXTENSION / "pg", EXTENSION / "src", pathlib.Path("test/module"):
        for file in sorted(folder.glob("**/*.[ch]pp")):
            if not reaches_wall(file):
                print(errors_alone(file), end="")
            included = includes(file, '"(core/[^"]+)"')
            for name in sorted(set(USE.findall(without_comments(file.read_text())))):
                if name not in headers:
                    print(f"{file} uses core::{name}, which no header of core declares")
                elif not included.intersection(headers[name]):
                    print(f"{file} uses core::{name} without {' or '.join(headers[name])}")


main()
