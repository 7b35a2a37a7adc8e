// Values of jsonb that are about to be given to a client or a handler: whether they can be, and how
// many bytes they are as text.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// A value, and the bytes of its text as far as they had to be counted.
struct SentValue {
    Datum value; ///< 0: none
    uint64 text_bytes = 0;
};

/// Values of one row: read from where they are stored, and not longer as text than a row can be.
/// The client's row is printed when the call has returned, and an error then would be nobody's.
class SentText {
public:
    /// The value, for the row: a small one as it is in memory, a large one where it is stored.
    SentValue add(Datum value);

    /// A value that is in memory, and too small to have a text that is too long.
    static bool is_surely_sent(Datum value);

private:
    uint64 bytes_ = 0; ///< at most, of what was added
};

/// What a batch gives to its consumer, up to stacksaga.batch_bytes: the batch ends behind the first
/// value that passes them. Values are kept where they are, and counted exactly only when the sum of
/// what they have at most passes the limit.
class BatchBytes {
public:
    void add(const SentValue &value);
    bool are_passed();
    /// What there is room for, at most.
    uint64 left() const;

private:
    struct Estimate {
        Datum value;
        uint64 at_most;
    };

    void keep(const Estimate &estimate);

    uint64 counted_ = 0;
    uint64 at_most_ = 0; ///< the sum of the estimates from `next_` on
    Estimate *estimates_ = nullptr;
    size_t next_ = 0, count_ = 0, capacity_ = 0;
};
static_assert(std::is_trivially_destructible_v<BatchBytes>);

/// The fewest bytes that a value can have as text; its size is known without reading it.
uint64 text_at_least(Datum value);

} // namespace stacksaga
