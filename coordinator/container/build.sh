#!/usr/bin/env bash
# build.sh SOURCE PACKAGES FOLDER VOLUME: puts the Debian packages of the source into FOLDER: those of the folder
# SOURCE/PACKAGES, or, where that is '', new ones. VOLUME gets what the extension's package has, as lib/ and share/.
set -euo pipefail
source=$1 packages=$2 folder=$3 volume=$4

build_packages() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update
    apt-get -qy install --no-install-recommends dpkg-dev postgresql-common
    # The servers that the tests of the packages start do not run as root: `make test-packages` runs them.
    export DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" DEB_BUILD_PROFILES=nocheck PG_UPDATECONTROL=yes
    pg_buildext updatecontrol
    apt-get -qy build-dep --no-install-recommends ./
    dpkg-buildpackage -us -uc -b
}

mkdir -p "$folder" "$volume/lib" "$volume/share"
cd "$source"
[ -n "$packages" ] || build_packages
cp "${packages:-..}"/*.deb "$folder/"
dpkg-deb -x "$folder"/postgresql-*-stacksaga_*.deb /tmp/extension
cp /tmp/extension/usr/lib/postgresql/*/lib/* "$volume/lib/"
cp -r /tmp/extension/usr/share/postgresql/*/extension "$volume/share/"
