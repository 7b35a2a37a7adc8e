#!/usr/bin/env bash
# man.sh PROGRAM: prints the manual page of the daemon, made of what its --help says.
set -euo pipefail
program=$1
version=$("$program" --version)

# Help as roff: an option begins a paragraph, what is indented below it belongs to it.
options() {
    sed -e 's/\\/\\e/g' -e "s/^\([.']\)/\\\\\&\1/" | awk '
        /^Usage:/      { print ".PP"; print "\\fB" substr($0, 8) "\\fR"; next }
        /^[A-Z][a-z]+:$/ { in_list = ($0 != "Positionals:"); next }
        /^  [^ ]/      { if (match($0, /   +[^ ]/)) { head = substr($0, 3, RSTART - 3); rest = substr($0, RSTART + RLENGTH - 1) }
                         else { head = substr($0, 3); rest = "" }
                         gsub(/-/, "\\-", head); print ".TP"; print "\\fB" head "\\fR"; if (rest != "") print rest; next }
        /^ +[^ ]/      { sub(/^ +/, ""); print; next }
        /^$/           { next }
                       { print ".PP"; print }'
}

printf '.TH STACKSAGA\\-COORDINATOR 1 "" "%s" "stacksaga"\n' "$version"
printf '.SH NAME\nstacksaga\\-coordinator \\- coordinates the token rings of a database that has the extension stacksaga\n'
printf '.SH SYNOPSIS\n.B stacksaga\\-coordinator\n.I COMMAND\n[\\fIOPTION\\fR]...\n'
printf '.SH COMMANDS\n'
"$program" --help | sed -n '/^Subcommands:/,/^$/p' | options
"$program" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' | while read -r command; do
    printf '.SH OPTIONS OF %s\n' "${command^^}"
    "$program" "$command" --help | sed '1d;/^The connection uses libpq/,$d' | options
done
printf '.SH ENVIRONMENT, EXIT CODES, SIGNALS\n'
"$program" --help | sed -n '/^The connection uses libpq/,$p' | sed 's/^$/.PP/'
