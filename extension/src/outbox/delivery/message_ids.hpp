// The message ids that a batch holds: each once, so that an answer for an id is for one message.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

class MessageIds {
public:
    /// For at most `most` ids; they are kept in the memory context of the first one.
    explicit MessageIds(size_t most) : most_(most) {}

    /// False: it is there already.
    bool add(const pg_uuid_t &id);

private:
    struct Place {
        pg_uuid_t id;
        bool is_taken;
    };
    size_t most_;
    std::span<Place> places_{}; ///< a power of two, at least twice the number of ids
};
static_assert(std::is_trivially_destructible_v<MessageIds>);

} // namespace stacksaga
