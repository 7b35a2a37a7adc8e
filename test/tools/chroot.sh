# Root folders of Debian's and Ubuntu's suites, and commands inside them; sourced after lib.sh. Wants root and debootstrap.

ubuntu_keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
chroots=${STACKSAGA_CHROOTS:-/var/cache/stacksaga}

need_chroots() {
    [ "$(id -u)" = 0 ] || fail "only root can enter another root folder: use sudo"
    command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
    mkdir -p "$chroots"
}

# mirror_of DISTRIBUTION: where this machine's sources of packages have Debian or Ubuntu from; other suites of it
# are taken from there as well. $STACKSAGA_MIRROR is the address where the machine has no such source.
mirror_of() {
    local address
    address=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n "s/^$1 //p" | head -n 1)
    address=${address:-${STACKSAGA_MIRROR:-}}
    [ -n "$address" ] || fail "this machine has no source of $1's packages: say one with STACKSAGA_MIRROR=ADDRESS"
    printf '%s\n' "${address%/}"
}

# The suites of Ubuntu that have a PostgreSQL which no suite of Debian has: 14 and 16.
is_ubuntu() { [ "$1" = jammy ] || [ "$1" = noble ]; }

need_ubuntu_keyring() {
    [ -e "$ubuntu_keyring" ] || fail "$ubuntu_keyring is missing: it is in the package ubuntu-keyring, of Debian from 13 on"
}

# unpack_suite SUITE ROOT PACKAGES: what is there stays. A suite that this machine's debootstrap does not know
# yet is made as sid is, or as all of Ubuntu's are.
unpack_suite() {
    local suite=$1 root=$2 packages=$3 from script=sid options=()
    [ ! -e "$root" ] || return 0
    if is_ubuntu "$suite"; then
        need_ubuntu_keyring
        script=gutsy options=(--keyring="$ubuntu_keyring" --components=main,universe)
    elif [ -e "/usr/share/debootstrap/scripts/$suite" ]; then
        script=$suite
    fi
    from=$(mirror_of "$(is_ubuntu "$suite" && say Ubuntu || say Debian)")
    say "$suite is unpacked into $root"
    rm -rf "$root.new"
    debootstrap --variant=minbase --include="$packages" "${options[@]}" "$suite" "$root.new" "$from" "$script" \
        >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; fail "debootstrap of $suite failed"; }
    # Its PostgreSQL would be the first of its version.
    ! is_ubuntu "$suite" || printf "deb $from %s main universe\n" "$suite" "$suite-updates" "$suite-security" \
        >"$root.new/etc/apt/sources.list"
    # Where certificates of this machine's own are trusted, as for a proxy, they are there as well.
    if [ -d "$root.new/etc/ssl/certs" ]; then
        mkdir -p "$root.new/usr/local/share/ca-certificates"
        find /usr/local/share/ca-certificates -name '*.crt' -exec cp -t "$root.new/usr/local/share/ca-certificates" {} +
        chroot "$root.new" update-ca-certificates >>"$root.log" 2>&1
    fi
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
            NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt \
            ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
            bash -c '\''cd "$1" && shift && exec "$@"'\'' - "$folder" "$@"
    ' - "$root" "${archives:-}" "$@"
}
