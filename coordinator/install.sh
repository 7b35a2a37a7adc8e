#!/usr/bin/env bash
# install.sh BUILD: installs the daemon below DESTDIR and PREFIX: the program, its unit, manual page,
# completion and a sample of its settings, which replaces no settings that are there.
set -euo pipefail
build=$1
source=$(dirname "$0")
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
program=$build/coordinator/stacksaga-coordinator

install -D -m 755 "$program" "$root$prefix/bin/stacksaga-coordinator"
install -D -m 644 "$build/stacksaga-coordinator.1" "$root$prefix/share/man/man1/stacksaga-coordinator.1"
install -d "$root$prefix/lib/systemd/system" "$root$prefix/share/bash-completion/completions" \
    "$root$prefix/share/zsh/site-functions" "$root/etc/stacksaga"
sed "s#/usr/local/bin#$prefix/bin#" "$source/systemd/stacksaga-coordinator.service" \
    >"$root$prefix/lib/systemd/system/stacksaga-coordinator.service"
"$program" completion bash >"$root$prefix/share/bash-completion/completions/stacksaga-coordinator"
"$program" completion zsh >"$root$prefix/share/zsh/site-functions/_stacksaga-coordinator"
install -m 644 "$source/systemd/coordinator.toml" "$root/etc/stacksaga/coordinator.toml.sample"
# The dynamic user of the unit has to read it; passwords belong into a password file.
[ -e "$root/etc/stacksaga/coordinator.toml" ] ||
    install -m 644 "$source/systemd/coordinator.toml" "$root/etc/stacksaga/coordinator.toml"
echo "installed $root$prefix/bin/stacksaga-coordinator; its settings are in $root/etc/stacksaga/coordinator.toml"
