// The memory of a background process about each node that it works as: one for each ring.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

template <class T> class NodeMemory {
    static_assert(std::is_trivially_destructible_v<T>);

public:
    /// The memory of the node: T{} at first, and when it has registered again.
    T &of(const NodeIdentity &node) {
        if (table_ == nullptr) {
            HASHCTL control{};
            control.keysize = sizeof(int32);
            control.entrysize = sizeof(Entry);
            table_ = hash_create("stacksaga nodes", 8, &control, HASH_ELEM | HASH_BLOBS);
        }
        bool is_known = false;
        auto *entry =
            static_cast<Entry *>(hash_search(table_, &node.ring_id, HASH_ENTER, &is_known));
        if (!is_known || entry->incarnation != node.incarnation)
            *entry = {.ring_id = node.ring_id, .incarnation = node.incarnation, .value = T{}};
        return entry->value;
    }

private:
    struct Entry {
        int32 ring_id; ///< the key
        int64 incarnation;
        T value;
    };

    HTAB *table_ = nullptr;
};

} // namespace stacksaga
