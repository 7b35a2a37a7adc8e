#!/usr/bin/env bash
# install.sh NAME: installs the package of /packages that a pattern names, and nothing that an image does not need.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
# start-server.sh makes the cluster.
mkdir -p /etc/postgresql-common/createcluster.d
echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/stacksaga.conf
apt-get -q update
# shellcheck disable=SC2086  # a pattern
apt-get -qy install --no-install-recommends ca-certificates /packages/${1}_*.deb
rm -rf /var/lib/apt/lists/* /packages
