# What the scripts of this folder share; sourced by bash, with `set -euo pipefail` in force.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# A make that calls these scripts must not lend its job slots to the ones that they call.
unset MAKEFLAGS MFLAGS MAKELEVEL

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
server_user=()
[ "$(id -u)" != 0 ] || server_user=(runuser -u postgres --)
as_server_user() { "${server_user[@]}" "$@"; }

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
# (A script that waits for a foreground command sees a signal only after it.) The kernel
# ends the command if this script is killed.
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
    flock "$top/extension" make -s -C "$top" install DESTDIR="$1" >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        fail "the extension does not build"
    }
}

# The module that tests load, beside the extension.
install_testing() {
    flock "$top/extension" make -s -C "$top" test/module/stacksaga_testing.so >/dev/null
    cp "$top/test/module/stacksaga_testing.so" "$1$("${PG_CONFIG:-pg_config}" --pkglibdir)"
}

# The settings that let a server find an extension installed below a folder: PostgreSQL 18 has one for the
# control file and the script, in which it takes \$libdir for the library path; before, Debian's does both.
destdir_settings() {
    local config=${PG_CONFIG:-pg_config}
    if [ "$("$config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')" -ge 18 ]; then
        printf "extension_control_path = '%s:\$system'\n" "$1$("$config" --sharedir)"
    else
        printf "extension_destdir = '%s'\n" "$1"
    fi
    printf "dynamic_library_path = '%s:\$libdir'\n" "$1$("$config" --pkglibdir)"
}

# Reports the counts of a part to `make test`, which may have a name of its own for it: tally PART PASSED FAILED.
# Fails if anything failed.
tally() {
    if [ -n "${STACKSAGA_TALLY:-}" ]; then
        printf '%s %s %s\n' "${STACKSAGA_PART:-$1}" "$2" "$3" >>"$STACKSAGA_TALLY"
    fi
    [ "$3" -eq 0 ]
}

# The names of the files FOLDER/*.SUFFIX in alphabetical order; nothing if there are none.
names_in() {
    local file
    for file in "$1"/*."$2"; do
        [ ! -e "$file" ] || basename "$file" ".$2"
    done | LC_ALL=C sort
}

# One process of run_regression: run_lane NUMBER PART DRIVER FOLDER LAUNCHER TEST...  A statement that waits
# for ever would block all later ones.
run_lane() {
    local number=$1 part=$2 driver=$3 folder=$4 launcher=$5
    local output=$folder/results/lane.$number
    shift 5
    mkdir -p "$output"
    env --default-signal=INT,QUIT setpriv --pdeathsig TERM \
        "$top/test/tools/with-postgres" --testing --conf "statement_timeout = '5min'" \
        "$driver" --bindir="$(server_programs)" --inputdir="$folder" --outputdir="$output" \
        --dbname="stacksaga_$part" ${launcher:+--launcher="$launcher"} --load-extension=stacksaga "$@" 2>&1 |
        grep --line-buffered -vE '^((DROP|CREATE|ALTER) (DATABASE|EXTENSION)|SET|=*| All [0-9]+ tests passed\. *|)$' |
        grep --line-buffered -vE '^(The differences that caused|file "|above is saved|\(using postmaster|=====* [a-z])' |
        tee "$output/driver" || true
}

# Runs PostgreSQL's own regression or isolation driver and tallies its tests, in two processes or one for each
# processor, each with a private server and an even share of the tests:
# run_regression PART DRIVER FOLDER LAUNCHER TEST...  The driver is a path below PGXS, the folder holds the
# tests, and the launcher is a command that runs the program of each test, or ''.
run_regression() {
    local part=$1 driver folder=$3 launcher=$4 total passed=0 name number lanes share runnable=() pids=()
    driver=$(dirname "$("${PG_CONFIG:-pg_config}" --pgxs)")/../../$2
    shift 4
    total=$#
    [ "$total" -gt 0 ] || say "$part: there are no tests"
    for name in "$@"; do
        # The driver would stop at it, and leave out all tests that come after.
        if [ -e "$folder/expected/$name.out" ]; then
            runnable+=("$name")
        else
            say "$part: $folder/expected/$name.out is missing (an empty one will do to see the output)"
        fi
    done
    rm -rf "$folder/regression.diffs" "$folder/results"
    mkdir -p "$folder/results"
    lanes=$(nproc)
    [ "$lanes" -ge 2 ] || lanes=2
    [ "$lanes" -le ${#runnable[@]} ] || lanes=${#runnable[@]}
    trap 'kill "${pids[@]}" 2>/dev/null || true; exit 143' TERM
    for ((number = 0; number < lanes; number++)); do
        share=()
        for ((name = number; name < ${#runnable[@]}; name += lanes)); do
            share+=("${runnable[$name]}")
        done
        run_lane "$number" "$part" "$driver" "$folder" "$launcher" "${share[@]}" &
        pids+=($!)
    done
    wait
    trap - TERM
    for ((number = 0; number < lanes; number++)); do
        # Up to PostgreSQL 15 the driver says "test NAME ... ok", after it "ok 1 - NAME".
        passed=$((passed + $(grep -cE '^(test .* \.\.\. ok|ok [0-9]+) ' "$folder/results/lane.$number/driver" || true)))
        mv "$folder/results/lane.$number/results"/* "$folder/results/" 2>/dev/null || true
        [ ! -s "$folder/results/lane.$number/regression.diffs" ] ||
            cat "$folder/results/lane.$number/regression.diffs" >>"$folder/regression.diffs"
    done
    # with-postgres says it, whatever each test printed.
    [ "$passed" -ne "$total" ] || ! grep -q '^TRAP:' "$folder"/results/lane.*/driver || passed=$((total - 1))
    if [ "$passed" -ne "$total" ] && [ -s "$folder/regression.diffs" ]; then
        cat "$folder/regression.diffs"
    fi
    rm -rf "$folder"/results/lane.*
    say "$part: $passed of $total passed"
    tally "$part" "$passed" $((total - passed))
}

# Says every ten seconds of a build, whose output it reads, how many files have been compiled. (make does
# not know how many there will be.)
build_progress() {
    local line files=0 started=$SECONDS said=$SECONDS
    while IFS= read -r line; do
        case $line in *' -c -o '* | *'Building CXX object'*) files=$((files + 1)) ;; esac
        if [ $((SECONDS - said)) -ge 10 ]; then
            said=$SECONDS
            say "  $files files compiled, $((said - started)) s"
        fi
    done
}

# Builds targets of the Makefile: build TARGET...  Shows the compiler's output only if it fails.
build() {
    local output started=$SECONDS
    say "Building: $*"
    output=$(mktemp)
    make -C "$top" -j "$(nproc)" "$@" 2>&1 | tee "$output" | build_progress || {
        cat "$output" >&2
        rm -f "$output"
        return 1
    }
    rm -f "$output"
    say "Built in $((SECONDS - started)) s"
}
