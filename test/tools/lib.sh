# What the scripts of this folder share; sourced by bash, with `set -euo pipefail` in force.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*"; }
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Where the server's programs are. Debian keeps them out of PATH.
server_programs() {
    local found
    found=$("${PG_CONFIG:-pg_config}" --bindir 2>/dev/null) || fail "no pg_config: run 'make packages'"
    [ -x "$found/initdb" ] || fail "no PostgreSQL server in $found: run 'make packages'"
    printf '%s\n' "$found"
}

# PostgreSQL refuses to run as root, so root's servers belong to the user postgres.
as_server_user() {
    if [ "$(id -u)" = 0 ]; then
        runuser -u postgres -- "$@"
    else
        "$@"
    fi
}

# Makes a folder of the server's user and sets $scratch. A watcher outside this process group
# holds the other end of a pipe: whatever way this script ends, kill -9 included, the watcher reads
# the end of file, stops the servers that live in the folder and removes it. Children must not
# inherit the pipe: start them with {lifeline}>&-.
make_scratch() {
    local base=${TMPDIR:-/tmp}
    # A socket's path has at most 107 bytes, and TAP makes folders below this one.
    [ "${#base}" -le 50 ] && as_server_user test -w "$base" -a -x "$base" || base=/tmp
    scratch=$(mktemp -d "$base/stacksaga.XXXXXX")
    exec {lifeline}> >(trap '' INT TERM HUP; exec setsid "$top/test/tools/watcher" "$scratch")
    watcher=$!
    trap 'exec {lifeline}>&-; wait "$watcher" || true' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [ "$(id -u)" = 0 ]; then
        chown postgres: "$scratch"
    fi
}

# Runs a command to its end, passing on the signals that this script gets, and returns its status.
# (A script that waits for a foreground command sees a signal only after it.) The command is told
# to end should this script be killed.
run_attended() {
    local status command
    env --default-signal=INT,QUIT setpriv --pdeathsig TERM "$@" <&0 {lifeline}>&- &
    command=$!
    trap 'kill -INT "$command" 2>/dev/null || true' INT
    trap 'kill -TERM "$command" 2>/dev/null || true' TERM
    trap 'kill -HUP "$command" 2>/dev/null || true' HUP
    while :; do
        wait "$command" && status=0 || status=$?
        kill -0 "$command" 2>/dev/null || break
    done
    return "$status"
}

# Installs the extension below a folder, and builds it where that is due: one at a time in a tree.
install_extension() {
    flock "$top/extension" env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
        make -s -C "$top" install DESTDIR="$1" >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        fail "the extension does not build"
    }
}

# The settings that let a server find an extension installed below a folder (Debian's
# extension_destdir finds the control file and the script, and \$libdir in them).
destdir_settings() {
    printf "extension_destdir = '%s'\n" "$1"
    printf "dynamic_library_path = '%s:\$libdir'\n" "$1$("${PG_CONFIG:-pg_config}" --pkglibdir)"
}

# Tells `make test` what a part counted: tally PART PASSED FAILED. Fails if anything failed.
tally() {
    if [ -n "${STACKSAGA_TALLY:-}" ]; then
        printf '%s %s %s\n' "$1" "$2" "$3" >>"$STACKSAGA_TALLY"
    fi
    [ "$3" -eq 0 ]
}
