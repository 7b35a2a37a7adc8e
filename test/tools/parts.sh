# Runs parts of the tests one after the other and sums them up; sourced after lib.sh by `quick` and `test`.

logs=$(mktemp -d)
export STACKSAGA_TALLY=$logs/tally
: >"$STACKSAGA_TALLY"
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# part NAME COMMAND...: a part that fails without saying how often counts as one failure.
part() {
    local name=$1 started=$SECONDS status=0
    shift
    printf "\n== %s\n" "$name"
    STACKSAGA_PART=$name "$@" 2>&1 | tee "$logs/$name" || status=$?
    if [ "$status" -ne 0 ] && ! grep -q "^$name [0-9]* [1-9]" "$STACKSAGA_TALLY"; then
        tally "$name" 0 1 || true
    fi
    say "== $name took $((SECONDS - started)) s"
    return "$status"
}

# The lines of a part's output that name what failed, in the words of prove, pg_regress, ctest, compilers,
# Python's unittest and the scripts here: whoever sees only the end of a long output sees them.
failures() {
    local words='^# +Failed test |\.\.\. FAILED|^not ok |\*\*\*Failed|: error: |^(FAIL|ERROR|FAILED): |Bail out'
    words+='|\(Wstat|violated|NOT SETTLED|NOT OK'
    grep -E "$words" "$logs/$1" | awk '!seen[$0]++' | head -n 12 | cut -c 1-160 | sed 's/^ */    /'
}

# Ends the run with the sums.
summary() {
    local passed failed name count
    read -r passed failed < <(awk '{ p += $2; f += $3 } END { print p + 0, f + 0 }' "$STACKSAGA_TALLY")
    say ""
    awk '$3 > 0 { print $1, $3 }' "$STACKSAGA_TALLY" | while read -r name count; do
        say "failed: $name ($count)"
        failures "$name" || true
    done
    say "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}
