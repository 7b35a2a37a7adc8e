#include "src/outbox/delivery/message_ids.hpp"

namespace stacksaga {

bool MessageIds::add(const pg_uuid_t &id) {
    if (places_.empty()) {
        size_t size = 16;
        while (size < most_ * 2)
            size *= 2;
        places_ = {static_cast<Place *>(palloc0(sizeof(Place) * size)), size};
    }
    const uint64 hash = hash_bytes_extended(id.data, UUID_LEN, 0);
    for (size_t i = 0;; ++i) {
        Place &place = places_[(hash + i) & (places_.size() - 1)];
        if (place.is_taken && memcmp(place.id.data, id.data, UUID_LEN) == 0)
            return false;
        if (place.is_taken)
            continue;
        place = {.id = id, .is_taken = true};
        return true;
    }
}

} // namespace stacksaga
