// How far from the head of what is due a session begins, so that those that look at the same time
// do not all try the same first items. Who meets nobody begins at the head.
#pragma once
#include "pg/random.hpp"

namespace stacksaga {

class Spread {
    // Reading so many candidates costs as much as some claims do.
    static constexpr int32 items_max = 1024;
    static constexpr int32 items_per_conflict = 16;

public:
    /// So many items had been locked by others.
    void note(int32 conflicts) {
        if (conflicts > 0)
            items_ = std::min(items_max, items_ + items_per_conflict * conflicts);
        else
            items_ -= (items_ + 7) / 8;
    }

    /// Of so many items one is to be the first.
    int32 items() const { return items_; }
    /// So many of them are passed over, at random, fewer than `most`.
    int32 passed(int32 most = items_max) const {
        return static_cast<int32>(pg::random_fraction() * std::min(items_, most));
    }

private:
    int32 items_ = 0;
};
static_assert(std::is_trivially_destructible_v<Spread>);

} // namespace stacksaga
