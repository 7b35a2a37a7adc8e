// A schedule: its instants pass, whether somebody fires it in time or not; its runs take long,
// fail, and are started again by operators; and a start may fail, and is tried again.
#include "small.hpp"

#include "core/time/schedule_run.hpp"

namespace stacksaga::truth {

namespace {

using core::CatchUp;
using core::Overlap;
using core::RunDecision;

constexpr int instants = 4;     ///< 1 to 4
constexpr int missed_after = 2; ///< what is so late is missed
constexpr int time_max = instants + 3;

enum Settled : Byte { open, started, skipped, passed_over };
enum Run : Byte { none, running, ended, has_failed };

struct Scheduled {
    Byte catch_up;
    Byte overlap;
    Byte now;
    Byte next;     ///< the next instant to settle
    Byte last;     ///< the last one that started, or 0
    Byte in_a_row; ///< skipped since then
    Byte waits;    ///< the last look has left it waiting
    Byte restarts;
    Byte failures;
    Byte wrong; ///< Wrong
    Byte settled[instants + 1];
    Byte run[instants + 1];
    Byte starts[instants + 1];
};
static_assert(std::has_unique_object_representations_v<Scheduled>);

enum Wrong : Byte { nothing_wrong, overlaps, is_lost };

CatchUp catch_up_of(const Scheduled &s) {
    return static_cast<CatchUp>(s.catch_up);
}

bool is_running(const Scheduled &s) {
    return s.last != 0 && s.run[s.last] == running;
}

/// As firing does: the first instant that is settled of those that are due.
int first_due(const Scheduled &s) {
    const int missed_until = s.now - missed_after;
    if (s.next > missed_until || catch_up_of(s) == CatchUp::all)
        return s.next;
    return catch_up_of(s) == CatchUp::skip ? missed_until + 1 : missed_until;
}

using Take = std::function<void(std::string, const Scheduled &)>;

/// Somebody looks at the schedule. `starts`: the start of a saga succeeds.
void fire(const Scheduled &before, bool starts, const Take &take) {
    Scheduled s = before;
    if (s.next > s.now || s.next > instants)
        return;
    const int first = std::min(first_due(s), instants + 1);
    for (; s.next < first; ++s.next)
        s.settled[s.next] = passed_over;
    if (s.next > s.now || s.next > instants) {
        take("the schedule is looked at, and passes over what was missed", s);
        return;
    }
    const bool is_missed = s.next <= s.now - missed_after;
    s.waits = 0;
    switch (core::decide_run(catch_up_of(s), static_cast<Overlap>(s.overlap), is_running(s),
                             is_missed)) {
    case RunDecision::waits:
        s.waits = 1;
        take("the schedule is looked at, and waits", s);
        return;
    case RunDecision::skip:
        if (catch_up_of(s) == CatchUp::all && is_missed)
            s.wrong = is_lost;
        s.settled[s.next++] = skipped;
        ++s.in_a_row;
        take("the schedule is looked at, and skips the run", s);
        return;
    case RunDecision::start:
        break;
    }
    if (!starts) { // and is tried again: nothing of the look is kept but that it failed
        if (before.failures < 2) {
            Scheduled failed = before;
            ++failed.failures;
            take("the start of the run fails", failed);
        }
        return;
    }
    if (static_cast<Overlap>(s.overlap) == Overlap::skip && is_running(s))
        s.wrong = overlaps;
    s.settled[s.next] = started;
    s.run[s.next] = running;
    ++s.starts[s.next];
    s.last = s.next++;
    s.in_a_row = 0;
    take("the schedule is looked at, and starts the run", s);
}

void next_of(const Scheduled &s, const Take &take) {
    fire(s, true, take);
    fire(s, false, take);
    if (s.now < time_max) {
        Scheduled later = s;
        ++later.now;
        take("time passes", later);
    }
    for (int i = 1; i <= instants; ++i) {
        if (s.run[i] == running)
            for (const Run end : {ended, has_failed}) {
                Scheduled next = s;
                next.run[i] = end;
                take("run " + std::to_string(i) + (end == ended ? " completes" : " fails"), next);
            }
        if (s.run[i] == has_failed && s.restarts < 2) {
            Scheduled next = s;
            next.run[i] = running;
            ++next.restarts;
            take("an operator starts run " + std::to_string(i) + " again", next);
        }
    }
}

const char *judge_schedule(const Scheduled &s) {
    int in_a_row = 0;
    for (int i = 1; i <= instants; ++i) {
        if (s.starts[i] > 1)
            return "S a run of a schedule was started twice";
        if ((s.settled[i] == open) != (i >= s.next))
            return "S a run of a schedule was forgotten, or settled before its turn";
        if (s.settled[i] == passed_over && catch_up_of(s) == CatchUp::all)
            return "S a missed run was passed over although all are to be caught up";
        if (s.settled[i] == started)
            in_a_row = 0;
        in_a_row += s.settled[i] == skipped ? 1 : 0;
    }
    if (s.wrong == overlaps)
        return "S a run was started beside the last one";
    if (s.wrong == is_lost)
        return "S a missed run was skipped although all are to be caught up";
    if (s.in_a_row != in_a_row)
        return "S a run was skipped without a word";
    if (s.waits != 0 && s.last == 0)
        return "S a schedule waits for nothing";
    return nullptr;
}

} // namespace

Counts explore_schedule(Violations &found) {
    Counts counts;
    for (std::size_t catch_up = 0; catch_up < core::catch_up_names.size(); ++catch_up)
        for (std::size_t overlap = 0; overlap < core::overlap_names.size(); ++overlap) {
            Scheduled first{};
            first.catch_up = static_cast<Byte>(catch_up);
            first.overlap = static_cast<Byte>(overlap);
            first.next = 1;
            const std::string name = "a schedule, catch_up " +
                                     std::string(core::catch_up_names[catch_up]) + ", overlap " +
                                     std::string(core::overlap_names[overlap]);
            counts += explore_small<Scheduled>(
                {.name = name, .first = first, .next = next_of, .judge = judge_schedule}, found);
        }
    return counts;
}

} // namespace stacksaga::truth
