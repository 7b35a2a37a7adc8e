#include "pg/citus/two_phase.hpp"

#include "pg/citus/shard_moves.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"

namespace stacksaga::pg {

namespace {

// Not 0 in a transaction that has written through Citus, or may.
constinit Statement select_distributed{
    "SELECT transaction_number <> 0 FROM pg_catalog.get_current_transaction_id()"};
constinit Statement touch_guard{"SELECT stacksaga_internal.touch_citus_guard()"};

/// A part of a transaction that another node commits.
bool is_of_other_node() {
    constexpr std::string_view prefix = "citus_internal";
    return application_name != nullptr && std::string_view(application_name).starts_with(prefix);
}

void touch() {
    PushActiveSnapshot(GetTransactionSnapshot());
    as_owner([] {
        with_pinned_path([] {
            with_spi([] {
                if (select_distributed.run().boolean(0))
                    static_cast<void>(touch_guard.run());
            });
        });
    });
    PopActiveSnapshot();
}

void before_prepare() {
    if (is_citus_loaded())
        require_shards_in_place();
}

void before_commit() {
    if (!is_citus_loaded())
        return;
    require_shards_in_place();
    if (TransactionIdIsValid(GetTopTransactionIdIfAny()) && !is_of_other_node() && is_on_citus())
        touch();
}

} // namespace

constinit const TransactionUser two_phase_events{
    .before_commit = before_commit,
    .before_prepare = before_prepare,
};

bool is_on_citus() {
    const Oid schema = get_namespace_oid("stacksaga", true);
    return OidIsValid(schema) && OidIsValid(get_relname_relid("citus_guard", schema));
}

void commit_in_two_phases() {
    // Citus wants to be loaded first. What was registered last is called first: the table of the
    // extension before Citus decides how to commit.
    if (is_citus_loaded())
        watch_transactions();
}

} // namespace stacksaga::pg
