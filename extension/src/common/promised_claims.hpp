// What the sessions of a line (waiting_line.hpp) share about those that have left it: how many are
// to claim, how much a claim takes, and whether somebody watches that they do. Claims are of steps
// of a queue, or of partitions of a subscription, which receive_messages() takes.
//
// It stands in the mapped file of counter_file.hpp. It decides only how many sessions look at once:
// where the file cannot be had, or two lines share a place, every session that sees something takes
// it for itself, and each one that leaves the line wakes the next.
//
// Who leaves to claim writes its promise and then reads whether somebody watches; who watches
// says that it does not any more, and then looks. So either the one that leaves sees that nobody
// watches, and wakes the next one in line, or the look of the one that watched sees what is due.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Where claims are made.
struct ClaimPlace {
    uint64 hash;    ///< of its name
    int64 watch_us; ///< how often somebody looks whether promised claims were made
    int64 hurry;    ///< a promise counts for 8 to 12 ms, divided by this
};

class PromisedClaims {
public:
    explicit PromisedClaims(const ClaimPlace &place);

    /// How many due ones say that there are some for this session, and another one.
    size_t enough() const;

    /// Whether more are due than others have promised to claim; then this session has
    /// promised it too, until note_claim().
    bool promise(size_t due);
    /// After that: whether even more are due.
    bool has_more() const { return has_more_; }

    /// Somebody looks again within watch_us() from now on, as long as it does not call
    /// stop_watch().
    void watch();
    int64 watch_us() const { return name_.watch_us; }
    void stop_watch();
    bool is_watched() const;

private:
    size_t count() const;

    ClaimPlace name_;
    struct SharedLine *place_; ///< nullptr: nothing is shared
    uint16 tag_;
    bool has_more_ = false;
};
static_assert(std::is_trivially_destructible_v<PromisedClaims>);

/// A claim of at most `most` took `taken` of them.
void note_claim(const ClaimPlace &place, int32 taken, int32 most);

} // namespace stacksaga
