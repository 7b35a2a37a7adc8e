// run_pending: due work in the caller's transaction, for tests and for servers without the worker.
#include "core/queue/claim_order.hpp"
#include "core/work/item_order.hpp"
#include "core/work/search_start.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/caller.hpp"
#include "src/common/limits.hpp"
#include "src/handler/handler_error.hpp"
#include "src/handler/process_retry_budget.hpp"
#include "src/handler/session/deferred_constraints.hpp"
#include "src/handler/session/handler_settings.hpp"
#include "src/handler/session/session_guard.hpp"
#include "src/handler/session/temporary_objects.hpp"
#include "src/outbox/delivery/delivery_worker.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/held_back.hpp"
#include "src/saga/postpone.hpp"
#include "src/schedule/firing.hpp"
#include "src/work/pending_search.hpp"

namespace stacksaga {

namespace {

constexpr int32 items_max = 1000000;
// The most steps that a call brings back whose pause is over.
constexpr int32 brought_back_max = 1000;
// A search lists more items than are wanted, since other sessions may hold the first ones, and as
// many as the limit allows when they hold all of these.
constexpr int32 probe_spare = 15;
constexpr int32 probe_max = 256;

// Shared by the calls of this session.
constinit core::LowerRankTurn lower_ranks{};
constinit bool has_begun = false;
constinit core::SearchStart search_start{};

/// Where a search begins: the more sessions it contends with at the oldest items, the further from
/// them.
enum class Place : uint8_t {
    in_some_slots, ///< at their oldest items
    at_oldest,     ///< of all slots
    at_many,       ///< of these as many as the limit allows
};

Place first_place() {
    return search_start.is_elsewhere() ? Place::in_some_slots : Place::at_oldest;
}

void leave(LeftItems &left, const DueItem &item, const HandlerError &error) {
    if (left.count % probe_max == 0)
        left.list = static_cast<DueItem *>(
            repalloc(left.list, sizeof(DueItem) * static_cast<size_t>(left.count + probe_max + 1)));
    left.list[left.count++] = item;
    ereport(WARNING, (errmsg("step %d of saga %s is left to a worker", item.step_no,
                             uuid_text(item.saga_id)),
                      errdetail("%s.", error.message.data()),
                      errhint("worker_ensure() starts workers where none run.")));
}

/// The outcome of the items that a call ran.
struct Ran {
    int64 done = 0;
    int32 held = 0; ///< by other sessions
};

/// Runs the first of these items, and after it the steps of its saga that follow at once, together
/// no more than `room`. Each is in a subtransaction of its own and is written before it runs, so
/// that it fails alone. When others must come between, the step that follows is put in the place of
/// the first; otherwise that item is done.
Ran run_saga(std::span<FoundItem> &waiting, int64 room, LeftItems &left) {
    constexpr std::string_view worker = "run_pending";
    FoundItem &found = waiting[0];
    const std::span<FoundItem> all = waiting;
    const std::span<const FoundItem> others = waiting.subspan(1);
    DueItem item = found.item;
    waiting = waiting.subspan(1);
    Ran ran;
    for (Saga *saga = nullptr;;) {
        CHECK_FOR_INTERRUPTS();
        const bool may_go_on =
            ran.done + 1 < room && core::may_run_ahead(found, others, lower_ranks);
        const RunAhead run_ahead = may_go_on ? RunAhead::written : RunAhead::no;
        ItemOutcome outcome{};
        const std::optional<HandlerError> error = attempt_handler([&] {
            outcome = saga != nullptr ? run_next(*saga, item, worker, run_ahead)
                                      : run_item(item, worker, run_ahead);
        });
        if (error && error->is_for_worker) {
            leave(left, item, *error);
            return ran;
        }
        if (error && error->is_unfit) {
            if (settle_unfit(item, worker, *error))
                ++ran.done;
            else
                leave(left, item, *error);
            return ran;
        }
        if (error)
            outcome = fail_item(item, worker, *error);
        if (outcome.first_attempt)
            count_first_attempt(*outcome.first_attempt);
        if (outcome.is_done) {
            core::note_step(lower_ranks);
            ++ran.done;
        } else if (!outcome.is_gone && !error) {
            ++ran.held;
        }
        if (!outcome.has_next || left.has(outcome.next))
            return ran;
        if (outcome.saga == nullptr) {
            put_back(found, outcome.next, pg::clock_now());
            waiting = all;
            return ran;
        }
        saga = outcome.saga;
        item = outcome.next;
    }
}

/// Runs items until none is next, together no more than `room`.
Ran run_found(std::span<FoundItem> found, int64 room, LeftItems &left) {
    Ran ran;
    while (ran.done < room) {
        FoundItem *next = core::next_item(found, lower_ranks);
        if (next == nullptr)
            break;
        move_to_front(found, next);
        if (left.has(found[0].item)) {
            found = found.subspan(1);
            continue;
        }
        // Memory that a step leaves behind is released with the step, not with the call.
        const Ran of_saga = pg::with_spi([&] { return run_saga(found, room - ran.done, left); });
        ran.done += of_saga.done;
        ran.held += of_saga.held;
    }
    return ran;
}

struct Searched {
    int64 done;
    bool is_all; ///< nothing else was due
};

/// Searches from this place, and runs the items that it finds, no more than are wanted.
Searched search_from(Place place, const Ring &ring, int64 wanted, std::span<FoundItem> room,
                     LeftItems &left) {
    const bool is_of_all = place != Place::in_some_slots;
    const int64 listed =
        std::min<int64>(place == Place::at_many ? probe_max : wanted + probe_spare, probe_max);
    const std::span<FoundItem> found =
        find_pending(ring, is_of_all ? all_slots(ring) : some_slots(ring), left, room,
                     static_cast<size_t>(listed));
    const Ran ran = run_found(found, has_reserve(found) ? std::min(wanted, listed) : wanted, left);
    search_start.note(ran.held);
    return {.done = ran.done, .is_all = is_of_all && found.size() < static_cast<size_t>(listed)};
}

int64 run_pending(int32 limit) {
    Ring ring = current_ring();
    tick_soon(); // before this transaction has an id, or at its end
    // Sessions whose calls are short must also give lower ranks their part.
    if (limit < core::steps_per_turn && !has_begun)
        lower_ranks = core::LowerRankTurn(pg::random_fraction());
    has_begun = true;
    (void)bring_back_all(brought_back_max, pg::clock_now());
    int64 count = 0;
    LeftItems left{.list = static_cast<DueItem *>(palloc(sizeof(DueItem)))};
    const std::span room{
        static_cast<FoundItem *>(palloc(sizeof(FoundItem) * room_of_list(probe_max))),
        room_of_list(probe_max)};
    Place place = first_place();
    while (count < limit) {
        const int64 wanted = limit - count;
        const int32 left_before = left.count;
        const Searched searched = search_from(place, ring, wanted, room, left);
        count += searched.done;
        if (searched.done > 0 || left.count > left_before) {
            if (place == Place::in_some_slots)
                place = first_place();
            continue;
        }
        if (place != Place::at_many && !searched.is_all) {
            place = place == Place::in_some_slots ? Place::at_oldest : Place::at_many;
            continue;
        }
        // Nothing is due, or other sessions hold all that is.
        const auto few = static_cast<int32>(std::min<int64>(wanted, probe_max));
        const int64 fired = fire_due_schedules(ring.ring_id, few).settled;
        if (fired == 0)
            return count + deliver_pending(ring.ring_id, few);
        count += fired;
    }
    return count;
}

} // namespace

// run_pending(max_items) -> bigint
STACKSAGA_FUNCTION(run_pending) {
    int32 limit = pg::Arguments(fcinfo).required_int4(0, "max_items");
    if (limit < 1 || limit > items_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_items\" is out of range"),
                        errdetail("The value is %d.", limit), errhint("Use 1 to %d.", items_max)));
    refuse_inside_handler("run_pending()");
    (void)who_asks();
    check_constraints_of_caller();
    begin_handler_settings();
    note_temporary_objects();
    const int64 count =
        pg::with_pinned_path([&] { return pg::with_spi([&] { return run_pending(limit); }); });
    clear_session();
    PG_RETURN_INT64(count);
}

// clock_now() -> timestamptz
STACKSAGA_FUNCTION(clock_now) {
    (void)fcinfo;
    PG_RETURN_TIMESTAMPTZ(pg::clock_now());
}

// statement_clock() -> timestamptz: one instant for all rows of a query. A VOLATILE function in the
// columns of a view keeps the planner from using the order of an index below it.
STACKSAGA_FUNCTION(statement_clock) {
    (void)fcinfo;
    struct Instant {
        TimestampTz statement = 0;
        CommandId command = InvalidCommandId;
        TimestampTz now = 0;
    };
    static constinit Instant last{};
    const TimestampTz statement = GetCurrentStatementStartTimestamp();
    const CommandId command = GetCurrentCommandId(false);
    if (statement != last.statement || command != last.command)
        last = {.statement = statement, .command = command, .now = pg::clock_now()};
    PG_RETURN_TIMESTAMPTZ(last.now);
}

} // namespace stacksaga
