#!/usr/bin/env bash
# update.sh OLD NEW: prints the script that updates the extension from version OLD to NEW: the check of the library,
# what upgrade/OLD--X.sql, upgrade/X--Y.sql and so on do until NEW, and all functions and views.
set -euo pipefail
old=$1 new=$2
cd "$(dirname "$0")"

printf '%s\n' "\\echo Use \"ALTER EXTENSION stacksaga UPDATE TO '$new'\" to load this file. \\quit"
cat tables/02_library.sql
version=$old
while [ "$version" != "$new" ]; do
    step=$(printf '%s\n' upgrade/"$version"--*.sql)
    [ -e "$step" ] || { echo "update.sh: no single file upgrade/$version--*.sql leads on to $new" >&2; exit 1; }
    cat "$step"
    version=${step##*--}
    version=${version%.sql}
done
# Triggers would lock out the writers of their tables until the update commits.
cat functions/*.sql views/*.sql privileges/*.sql install/*.sql |
    awk '/^(CREATE OR REPLACE|COMMENT ON) TRIGGER / { skip = 1 } !skip { print } /;$/ { skip = 0 }'
