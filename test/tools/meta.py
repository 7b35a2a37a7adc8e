#!/usr/bin/python3
"""meta.py: prints what of META.json PGXN would refuse (https://pgxn.org/meta/spec.txt, 1.0.0), of what we use of it,
and what of the public CI file no longer fits the Makefile."""
import json
import os
import re
import sys

import yaml

REQUIRED = ("abstract", "maintainer", "license", "provides", "name", "version", "meta-spec")
OPTIONAL = ("description", "generated_by", "tags", "no_index", "prereqs", "release_status", "resources")
LICENSES = ("agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1 gpl_2 gpl_3 "
            "lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0 ssleay sun zlib "
            "open_source restricted unrestricted unknown").split()
PHASES = ("configure", "build", "test", "runtime", "develop")
RELATIONS = ("requires", "recommends", "suggests", "conflicts")
SEMVER = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z][-.0-9A-Za-z]*)?")


def meta_problems(meta):
    for key in REQUIRED:
        if not meta.get(key):
            yield f"{key} is missing"
    for key in meta.keys() - {*REQUIRED, *OPTIONAL}:
        if not key.lower().startswith("x_"):
            yield f"{key} is not in the specification"
    if not SEMVER.fullmatch(meta.get("version", "")):
        yield f"version {meta.get('version')} is not a semantic version"
    if meta.get("license") not in LICENSES:
        yield f"license {meta.get('license')} is not one that PGXN knows"
    if meta.get("release_status", "stable") not in ("stable", "testing", "unstable"):
        yield f"release_status {meta['release_status']} is not stable, testing or unstable"
    if meta.get("meta-spec", {}).get("version") != "1.0.0":
        yield "meta-spec.version is not 1.0.0"
    if not re.fullmatch(r"[^\s/\\\x00-\x1f]{2,}", meta.get("name", "")):
        yield f"name {meta.get('name')} is not a name"
    for name, part in meta.get("provides", {}).items():
        for key in ("file", "version"):
            if key not in part:
                yield f"provides.{name}.{key} is missing"
        for key in ("file", "docfile"):
            if not os.path.isfile(part.get(key, "META.json")):
                yield f"provides.{name}.{key}: there is no {part[key]}"
        if not SEMVER.fullmatch(part.get("version", "")):
            yield f"provides.{name}.version is not a semantic version"
    for phase, relations in meta.get("prereqs", {}).items():
        if phase not in PHASES:
            yield f"prereqs.{phase} is not one of {', '.join(PHASES)}"
        for relation, extensions in relations.items():
            if relation not in RELATIONS:
                yield f"prereqs.{phase}.{relation} is not one of {', '.join(RELATIONS)}"
            for name, version in extensions.items():
                if version != 0 and not SEMVER.fullmatch(str(version).split()[-1]):
                    yield f"prereqs: {name} {version} is not a semantic version"
    for tag in meta.get("tags", []):
        if not re.fullmatch(r"[^/\\\x00-\x1f]{2,255}", tag):
            yield f"tag {tag} is not a tag"


def ci_problems(ci, makefile):
    targets = set()
    for job in ci["jobs"].values():
        # A target may have settings behind it.
        targets.update(target.split()[0] for target in job.get("strategy", {}).get("matrix", {}).get("target", []))
        for step in job["steps"]:
            targets.update(re.findall(r"\bmake ([a-z][-a-z]*)", step.get("run", "")))
    phony = set(re.sub(r"\\\n", " ", makefile).split(".PHONY:")[1].split("\n\n")[0].split())
    for target in sorted(targets - phony):
        yield f"the Makefile has no target {target}"
    # make test says what the parts are.
    parts = set(re.search(r"make ((?:\w+ \| )+\w+)", makefile)[1].split(" | "))
    for part in sorted(parts - targets):
        yield f"no job runs make {part}"


def main():
    found = []
    with open("META.json", encoding="utf-8") as file:
        found += [f"META.json: {problem}" for problem in meta_problems(json.load(file))]
    name = ".github/workflows/ci.yml"
    with open(name, encoding="utf-8") as file, open("Makefile", encoding="utf-8") as makefile:
        found += [f"{name}: {problem}" for problem in ci_problems(yaml.safe_load(file), makefile.read())]
    print("".join(line + "\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
