#!/usr/bin/python3
"""compose.py FILE [SERVICE KEY]: checks what stacksaga's compose file says, or prints one thing that it says of a service.

Variables of the environment take the place of ${NAME} and ${NAME:?}. A list is printed a line each, a mapping as
NAME=VALUE.
"""
import os
import re
import sys

import yaml

KEYS = {"build", "command", "depends_on", "environment", "healthcheck", "ports", "restart", "volumes"}


def replace_variables(value):
    if isinstance(value, dict):
        return {key: replace_variables(item) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_variables(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda match: os.environ.get(match[1], ""), value)
    return value


def problems(compose, folder):
    services = compose["services"]
    for name, service in services.items():
        for key in service.keys() - KEYS:
            yield f"{name}: no test knows what {key} says"
        build = service["build"]
        containerfile = os.path.join(folder, build["context"], build["dockerfile"])
        stages = re.findall(r"^FROM \S+ AS (\w+)$", open(containerfile, encoding="utf-8").read(), re.M)
        if build["target"] not in stages:
            yield f"{name}: {build['dockerfile']} has no stage {build['target']}"
        for port in service.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                yield f"{name}: port {port} is open to other machines"
        for other in service.get("depends_on", {}):
            if "healthcheck" not in services.get(other, {}):
                yield f"{name} waits for {other}, which has no healthcheck"
        for volume in service.get("volumes", []):
            if volume.split(":")[0] not in compose.get("volumes", {}):
                yield f"{name}: there is no volume {volume.split(':')[0]}"


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        compose = replace_variables(yaml.safe_load(file))
    if len(sys.argv) == 2:
        found = list(problems(compose, os.path.dirname(path)))
        print("".join(line + "\n" for line in found), end="")
        return 1 if found else 0
    value = compose["services"][sys.argv[2]]
    for key in sys.argv[3].split("."):
        value = value.get(key, [])
    if isinstance(value, dict):
        value = [f"{key}={item}" for key, item in value.items()]
    print("\n".join(value if isinstance(value, list) else [value]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
