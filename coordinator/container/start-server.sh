#!/usr/bin/env bash
# start-server.sh [OPTION...]: starts the server of the image `server`. The first start makes the cluster in $PGDATA: the
# superuser postgres with $POSTGRES_PASSWORD, the database $POSTGRES_DB (app) with the extension and its workers, and,
# where $COORDINATOR_PASSWORD is set, the role coordinator of the daemon.
set -euo pipefail
bin=$(echo /usr/lib/postgresql/*/bin)
: "${PGDATA:=/var/lib/postgresql/data}" "${POSTGRES_DB:=app}"

make_cluster() {
    local new=$1
    : "${POSTGRES_PASSWORD:?is the password of the superuser; set it for the first start}"
    rm -rf "$new"
    "$bin/initdb" -D "$new" -U postgres -E UTF8 --locale=C.UTF-8 -A scram-sha-256 \
        --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") >/dev/null
    echo 'host all all all scram-sha-256' >>"$new/pg_hba.conf"
    {
        echo "listen_addresses = '*'"
        echo "shared_preload_libraries = 'stacksaga'"
        echo "stacksaga.databases = '\"${POSTGRES_DB//\"/\"\"}\"'"
    } >>"$new/postgresql.conf"
    # Nobody else can connect yet.
    "$bin/pg_ctl" -D "$new" -w -o "-c listen_addresses='' -c unix_socket_directories='$new' -c stacksaga.databases=''" \
        start >/dev/null
    export PGPASSWORD=$POSTGRES_PASSWORD PGHOST=$new PGUSER=postgres
    psql -qX -v ON_ERROR_STOP=1 -d postgres -v database="$POSTGRES_DB" <<'SQL'
SELECT format('CREATE DATABASE %I', :'database') WHERE :'database' <> 'postgres' \gexec
SQL
    psql -qX -v ON_ERROR_STOP=1 -d "$POSTGRES_DB" -v password="${COORDINATOR_PASSWORD:-}" >/dev/null <<'SQL'
CREATE EXTENSION stacksaga;
SELECT :'password' <> '' AS has_coordinator \gset
\if :has_coordinator
CREATE ROLE coordinator LOGIN PASSWORD :'password';
SELECT stacksaga.grant_usage('coordinator', 'coordinator'), stacksaga.grant_usage('coordinator', 'monitor');
\endif
SQL
    "$bin/pg_ctl" -D "$new" -w stop >/dev/null
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    # A start that was interrupted is done again.
    (make_cluster "$PGDATA.new")
    [ ! -d "$PGDATA" ] || rmdir "$PGDATA"
    mv "$PGDATA.new" "$PGDATA"
fi
unset POSTGRES_PASSWORD COORDINATOR_PASSWORD
exec "$bin/postgres" -D "$PGDATA" -c unix_socket_directories=/tmp "$@"
