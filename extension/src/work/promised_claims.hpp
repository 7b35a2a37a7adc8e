// What the sessions that wait for a queue share about those that have left its line: how many are
// to claim, how much a claim takes, and whether somebody watches that they do.
//
// It stands in the mapped file of counter_file.hpp. It decides only how many sessions look at once:
// where the file cannot be had, or two queues share a place, every session that sees a step takes
// it for itself, and each one that leaves the line wakes the next.
//
// Who leaves for a step writes its promise and then reads whether somebody watches; who watches
// says that it does not any more, and then looks. So either the one that leaves sees that nobody
// watches, and wakes the next one in line, or the look of the one that watched sees the step.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

class PromisedClaims {
public:
    PromisedClaims(int32 ring_id, std::string_view queue);

    /// How many due steps say that there are some for this session, and another one.
    size_t enough_steps() const;

    /// Whether more steps are due than others have promised to claim; then this session has
    /// promised it too, until note_claim().
    bool promise(size_t due);
    /// After that: whether even more are due.
    bool has_more() const { return has_more_; }

    /// Somebody looks again within `watch_us` from now on, as long as it does not call
    /// stop_watch().
    static constexpr int64 watch_us = 5000;
    void watch();
    void stop_watch();
    bool is_watched() const;

private:
    size_t count() const;

    struct SharedQueue *place_; ///< nullptr: nothing is shared
    uint16 tag_;
    bool has_more_ = false;
};
static_assert(std::is_trivially_destructible_v<PromisedClaims>);

/// A claim of at most `max_steps` of this queue took `taken` steps.
void note_claim(int32 ring_id, std::string_view queue, int32 taken, int32 max_steps);

} // namespace stacksaga
