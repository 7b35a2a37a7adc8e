# Root folders of Debian suites, and commands inside them; sourced after lib.sh. Wants root and debootstrap.

mirror=http://deb.debian.org/debian
chroots=${STACKSAGA_CHROOTS:-/var/cache/stacksaga}

need_chroots() {
    [ "$(id -u)" = 0 ] || fail "only root can enter another root folder: use sudo"
    command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
    mkdir -p "$chroots"
}

# unpack_suite SUITE ROOT PACKAGES: what is there stays. A suite that this machine's debootstrap does not know
# yet is made as sid is.
unpack_suite() {
    local suite=$1 root=$2 packages=$3 script=()
    [ ! -e "$root" ] || return 0
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
    say "$suite is unpacked into $root"
    rm -rf "$root.new"
    debootstrap --variant=minbase --include="$packages" "$suite" "$root.new" "$mirror" "${script[@]}" \
        >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; fail "debootstrap of $suite failed"; }
    # A mirror that lags behind its suite is good enough for a test.
    printf 'Acquire::Check-Valid-Until "false";\n' >"$root.new/etc/apt/apt.conf.d/99late-mirror"
    mv "$root.new" "$root"
}

# inside ROOT FOLDER COMMAND...: what the command starts ends with it. Packages that it downloads are kept in
# $archives, if that is set.
inside() {
    local root=$1
    shift
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    # shellcheck disable=SC2016  # expanded in the other shell
    unshare --mount --pid --fork --kill-child bash -c '
        set -euo pipefail
        root=$1 archives=$2 folder=$3
        shift 3
        mount -t proc proc "$root/proc"
        mkdir -p "$root/dev/shm" "$root/dev/pts"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
        [ -z "$archives" ] || mount --bind "$archives" "$root/var/cache/apt/archives"
        exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive ${CI:+CI="$CI"} \
            ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
            bash -c '\''cd "$1" && shift && exec "$@"'\'' - "$folder" "$@"
    ' - "$root" "${archives:-}" "$@"
}
