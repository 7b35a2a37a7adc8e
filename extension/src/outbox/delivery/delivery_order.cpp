#include "src/outbox/delivery/delivery_order.hpp"

#include "core/outbox/message_state.hpp"
#include "core/ring/token.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/table/lookup.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

namespace {

// Maximum number of messages of a key that are released at once: when the next one fails, the rest
// of them are held again.
constexpr size_t released_max = 100;

#define OF_MESSAGE                                                                                 \
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"         \
    "   AND tick = $3 AND number = $4"
// It stays in its batch, whose consumer may fail it as well, but does not acknowledge it.
constinit pg::Statement hold_message{
    "UPDATE stacksaga.message_retry SET state = $5, due_at = 'infinity'" OF_MESSAGE};
constinit pg::Statement release_message{
    "UPDATE stacksaga.message_retry SET state = $5, due_at = $6, batch_id = NULL" OF_MESSAGE};

// Both tables have their places in the same columns.
constexpr AttrNumber number_column = pg::column_number(RetryColumn::number),
                     tick_column = pg::column_number(RetryColumn::tick);
static_assert(number_column == pg::column_number(DeadColumn::number) &&
              tick_column == pg::column_number(DeadColumn::tick));
constexpr AttrNumber retry_state = pg::column_number(RetryColumn::state),
                     retry_key = pg::column_number(RetryColumn::key);
constexpr AttrNumber dead_key = pg::column_number(DeadColumn::key);

Datum column(TupleTableSlot *row, AttrNumber number, bool &is_null) {
    return slot_getattr(row, number, &is_null);
}

bool has_key(TupleTableSlot *row, AttrNumber key) {
    bool is_null;
    column(row, key, is_null);
    return !is_null;
}

KeyPlace place_of(TupleTableSlot *row) {
    bool is_null;
    return {.tick = DatumGetInt64(column(row, tick_column, is_null)),
            .number = DatumGetInt64(column(row, number_column, is_null))};
}

core::MessageState state_of(TupleTableSlot *row) {
    bool is_null;
    return retry_state_of(pg::view_of_text(column(row, retry_state, is_null)));
}

/// Retries of the key in the order of their places, without the delayed ones.
template <class F> void each_retry(const Subscription &s, core::Token token, F &&visit) {
    const std::array<pg::KeyColumn, 2> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(token.value())}};
    pg::each_row(retry_table, RetryIndex::primary_key, key, [&](TupleTableSlot *row) {
        if (!has_key(row, retry_key))
            return true;
        const core::MessageState state = state_of(row);
        return state == core::MessageState::delayed || visit(place_of(row), state);
    });
}

/// Whether there is a message with this place among those, which are in the order of their places.
bool holds_place(std::span<const Message> messages, KeyPlace place) {
    auto found = std::lower_bound(messages.begin(), messages.end(), place,
                                  [](const Message &m, KeyPlace p) { return place_of(m) < p; });
    return found != messages.end() && place_of(*found) == place;
}

/// The first message of the key that is dead and not discarded, nor among `together`.
std::optional<KeyPlace> first_dead(const Subscription &s, core::Token token,
                                   std::span<const Message> together = {}) {
    const std::array<pg::KeyColumn, 3> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(partition_of(token, s.partitions))},
        pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(token.value())}};
    std::optional<KeyPlace> first;
    pg::each_row(dead_table, DeadIndex::open, key, [&](TupleTableSlot *row) {
        if (!has_key(row, dead_key) || holds_place(together, place_of(row)))
            return true;
        first = place_of(row);
        return false;
    });
    return first;
}

/// A message of a key with the state that it is in.
struct PlacedState {
    KeyPlace place;
    core::MessageState state;
};

} // namespace

std::optional<KeyPlace> first_blocker(const Subscription &s, core::Token token,
                                      std::span<const Message> together) {
    CommandCounterIncrement(); // what this transaction has written itself counts as well
    std::optional<KeyPlace> first = first_dead(s, token, together);
    each_retry(s, token, [&](KeyPlace place, core::MessageState) {
        if (holds_place(together, place))
            return true;
        if (!first || place < *first)
            first = place;
        return false;
    });
    return first;
}

bool is_behind_another(const Subscription &s, core::Token token, KeyPlace place) {
    const std::optional<KeyPlace> first = first_blocker(s, token);
    return first && *first < place;
}

void hold(const Subscription &s, core::Token token, KeyPlace place, core::MessageState state) {
    const core::MessageState held = next_state(state, core::MessageEvent::hold);
    hold_message.run(pg::param(s.id), pg::param(token.value()), pg::param(place.tick),
                     pg::param(place.number), pg::param(core::name_of(held)));
}

void hold_behind(const Subscription &s, const Message &m) {
    std::array<PlacedState, released_max> active{};
    KeyPlace from = place_of(m);
    for (size_t count = active.size(); count == active.size();) {
        CommandCounterIncrement();
        const std::array<pg::KeyColumn, 3> behind{
            pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.token.value())},
            pg::KeyColumn{F_INT8GE, InvalidOid, Int64GetDatum(from.tick),
                          BTGreaterEqualStrategyNumber}};
        count = 0;
        pg::each_row(retry_table, RetryIndex::active, behind, [&](TupleTableSlot *row) {
            const KeyPlace found = place_of(row);
            const core::MessageState state = state_of(row);
            if (from < found && core::is_held_at_once(state) && has_key(row, retry_key))
                active[count++] = {.place = found, .state = state};
            return count < active.size();
        });
        for (const PlacedState &found : std::span{active}.first(count))
            hold(s, m.token, found.place, found.state);
        if (count > 0)
            from = active[count - 1].place;
    }
}

void release_key(const Subscription &s, core::Token token, TimestampTz now) {
    if (!s.stop_on_first_failure)
        return;
    CommandCounterIncrement();
    const std::optional<KeyPlace> dead = first_dead(s, token);
    std::array<PlacedState, released_max> released{};
    size_t count = 0;
    each_retry(s, token, [&](KeyPlace place, core::MessageState state) {
        const bool is_fallback = state == core::MessageState::held_fallback;
        if (!core::is_held(state) || (dead && *dead < place) || (is_fallback && count > 0))
            return false;
        released[count++] = {.place = place, .state = state};
        return !is_fallback && count < released.size();
    });
    for (const PlacedState &found : std::span{released}.first(count)) {
        const core::MessageState state = next_state(found.state, core::MessageEvent::release);
        release_message.run(pg::param(s.id), pg::param(token.value()), pg::param(found.place.tick),
                            pg::param(found.place.number), pg::param(core::name_of(state)),
                            pg::param_time(now));
    }
    if (count > 0)
        wake_receivers_at_commit(s);
}

} // namespace stacksaga
