// The arguments of find_sagas(), checked, and the test of a saga's row against them.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"

namespace stacksaga {

/// A saga's place in the list: newest first, then by descending id.
struct ListPlace {
    TimestampTz created_at;
    pg_uuid_t saga_id;

    bool is(const ListPlace &other) const {
        return created_at == other.created_at &&
               memcmp(saga_id.data, other.saga_id.data, UUID_LEN) == 0;
    }
    /// Whether this saga comes before the other one in the list.
    bool is_newer_than(const ListPlace &other) const {
        if (created_at != other.created_at)
            return created_at > other.created_at;
        return memcmp(saga_id.data, other.saga_id.data, UUID_LEN) > 0;
    }
};

struct SagaFilter {
    std::optional<std::string_view> saga;
    std::span<const int32> definitions{}; ///< all versions of that saga
    std::optional<core::Status> status;
    std::optional<std::string_view> key_prefix;
    std::optional<Datum> attributes; ///< jsonb
    std::span<const int64> hashes{}; ///< of the attributes
    std::optional<ListPlace> before; ///< the last row of the page before
    size_t max_sagas;

    bool accepts(TupleTableSlot *saga) const;
    /// Whether it accepts all sagas whose keys have the prefix.
    bool accepts_each_key() const { return !saga && !status && !attributes; }
};

/// SG400 for invalid arguments. The caller looks up `definitions`.
SagaFilter find_argument(const pg::Arguments &arguments);

} // namespace stacksaga
