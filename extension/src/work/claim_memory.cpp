#include "src/work/claim_memory.hpp"

#include "core/queue/claim_order.hpp"
#include "core/ring/murmur3.hpp"

#include "pg/random.hpp"

namespace stacksaga {

QueueMemory &memory_of(int32 ring_id, std::string_view queue) {
    static constinit std::array<QueueMemory, 16> places{};
    const uint64 key = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
    QueueMemory &place = places[key % places.size()];
    if (place.key != key)
        place = QueueMemory(key, core::LowerRankTurn(pg::random_fraction()));
    return place;
}

} // namespace stacksaga
