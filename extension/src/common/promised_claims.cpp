#include "src/common/promised_claims.hpp"

#include "core/work/promise_count.hpp"

#include "pg/clock.hpp"
#include "src/common/counter_file.hpp"

namespace stacksaga {

namespace {

using Words = core::PromiseCount;

/// A look counts no more than this.
constexpr size_t looked_at_max = 256;

/// What this session has promised last.
struct Promise {
    SharedLine *place;
    uint32 period;
    uint16 tag;
};
constinit std::optional<Promise> owed{};

/// Two words hold the tag of their line above a number of 48 bits.
constexpr int tag_shift = 48;
uint64 tagged(uint16 tag, int64 number) {
    return uint64{tag} << tag_shift | static_cast<uint64>(number);
}
int64 number_of(pg_atomic_uint64 &word, uint16 tag) {
    const uint64 value = pg_atomic_read_u64(&word);
    return value >> tag_shift == tag ? static_cast<int64>(value << 16 >> 16) : 0;
}

struct Place {
    SharedLine *shared;
    uint16 tag;
};

Place place_of(const ClaimPlace &name) {
    CounterFile *file = counter_file();
    return {.shared = file == nullptr ? nullptr : &file->lines[name.hash % file->lines.size()],
            .tag = static_cast<uint16>(name.hash >> 48)};
}

uint32 period_now(const ClaimPlace &name) {
    return Words::period_of(pg::steady_now() * name.hurry);
}

/// Replaces the word by what `change` makes of it. Returns what it was; nullopt: it stayed.
template <class F> std::optional<uint64> exchange(pg_atomic_uint64 &word, F &&change) {
    uint64 was = pg_atomic_read_u64(&word);
    for (;;) {
        const std::optional<uint64> changed = change(was);
        if (!changed)
            return std::nullopt;
        if (pg_atomic_compare_exchange_u64(&word, &was, *changed))
            return was;
    }
}

pg_atomic_uint64 &word_of(SharedLine &place, uint32 period) {
    return place.promised[Words::word_of(period)];
}

void withdraw() {
    if (owed)
        exchange(word_of(*owed->place, owed->period),
                 [](uint64 word) { return Words::removed(word, owed->period, owed->tag); });
    owed.reset();
}

/// How many a claim takes, a mean of the last ones.
size_t taken_by_claim(SharedLine &place, uint16 tag) {
    return std::max<size_t>(1, static_cast<size_t>(number_of(place.taken, tag)) / 16);
}

} // namespace

PromisedClaims::PromisedClaims(const ClaimPlace &name) : name_(name) {
    const Place place = place_of(name);
    place_ = place.shared;
    tag_ = place.tag;
}

size_t PromisedClaims::count() const {
    const uint32 period = period_now(name_);
    size_t sum = 0;
    for (pg_atomic_uint64 &word : place_->promised)
        sum += Words::counted(pg_atomic_read_u64(&word), period, tag_);
    return sum;
}

size_t PromisedClaims::enough() const {
    if (place_ == nullptr)
        return 1;
    return std::min(looked_at_max, (count() + 1) * taken_by_claim(*place_, tag_) + 1);
}

bool PromisedClaims::promise(size_t due) {
    has_more_ = true; // where nothing is shared, the next one looks itself
    if (due == 0 || place_ == nullptr)
        return due > 0;
    const uint32 period = period_now(name_);
    const auto add = [&](uint64 word) { return Words::added(word, period, tag_); };
    const std::optional<uint64> was = exchange(word_of(*place_, period), add);
    if (!was)
        return true;
    owed = {.place = place_, .period = period, .tag = tag_};
    // Of two that promise at once one counts the other, which does not count it.
    size_t before = Words::counted(*was, period, tag_);
    for (uint32 past = 1; past < Words::periods_counted; ++past)
        before +=
            Words::counted(pg_atomic_read_u64(&word_of(*place_, period - past)), period, tag_);
    const size_t taken = taken_by_claim(*place_, tag_);
    const bool is_for_it = due > before * taken || due >= looked_at_max;
    if (!is_for_it)
        withdraw();
    has_more_ = due > (before + 1) * taken || due >= looked_at_max;
    return is_for_it;
}

void PromisedClaims::watch() {
    if (place_ != nullptr)
        pg_atomic_write_u64(&place_->watched_until,
                            tagged(tag_, pg::steady_now() + name_.watch_us));
}

void PromisedClaims::stop_watch() {
    if (place_ != nullptr)
        pg_atomic_write_u64(&place_->watched_until, 0);
    pg_memory_barrier(); // what is looked at next is as it is after that
}

bool PromisedClaims::is_watched() const {
    if (place_ == nullptr)
        return false;
    pg_memory_barrier(); // the promise is written
    const int64 now = pg::steady_now(), until = number_of(place_->watched_until, tag_);
    return until > now && until <= now + name_.watch_us;
}

void note_claim(const ClaimPlace &name, int32 taken, int32 most) {
    const Place place = place_of(name);
    if (owed && owed->place == place.shared && owed->tag == place.tag)
        withdraw();
    if (place.shared == nullptr || taken == 0)
        return;
    const int64 was = number_of(place.shared->taken, place.tag);
    const int64 mean = was == 0 ? int64{16} * most : was + (16 * most - was) / 4;
    if (mean != was)
        pg_atomic_write_u64(&place.shared->taken, tagged(place.tag, mean));
}

} // namespace stacksaga
