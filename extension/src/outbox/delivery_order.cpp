#include "src/outbox/delivery_order.hpp"

#include "pg/clock.hpp"
#include "pg/function.hpp"
#include "pg/lookup.hpp"
#include "pg/query.hpp"

namespace stacksaga {

namespace {

// So many of the messages that wait behind a key are made ready at once: when the next one fails,
// the rest of them has to be put back.
constexpr size_t ready_max = 100;

#define OF_MESSAGE                                                                                 \
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"         \
    "   AND tick = $3 AND number = $4"
// It stays in its batch, whose consumer may say that it failed as well, but does not acknowledge
// it.
constinit pg::Statement put_back{
    "UPDATE stacksaga.message_retry"
    "   SET state = CASE state WHEN 'fallback' THEN state ELSE 'waiting' END,"
    "       due_at = 'infinity'" OF_MESSAGE};
constinit pg::Statement make_ready{
    "UPDATE stacksaga.message_retry"
    "   SET state = CASE state WHEN 'fallback' THEN state ELSE 'ready' END, due_at = $5,"
    "       batch_id = NULL" OF_MESSAGE};

/// Columns of the two tables.
constexpr AttrNumber number_column = 3, tick_column = 4;
constexpr AttrNumber retry_state = 7, retry_due_at = 8, retry_key = 15;
constexpr AttrNumber dead_key = 13;

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

std::string_view state_of(TupleTableSlot *row) {
    bool is_null;
    return pg::view_of_text(column(row, retry_state, is_null));
}

bool is_active(TupleTableSlot *row) {
    bool is_null;
    return DatumGetTimestampTz(column(row, retry_due_at, is_null)) != DT_NOEND;
}

/// What is aside of the key in the order of its places, less what is delayed.
template <class F> void each_aside(const Subscription &s, core::Token token, F &&visit) {
    const std::array<pg::KeyColumn, 2> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(token.value())}};
    pg::each_row("message_retry", "message_retry_pkey", key, [&](TupleTableSlot *row) {
        return !has_key(row, retry_key) || state_of(row) == "delayed" || visit(row);
    });
}

/// The first message of the key that is dead and not discarded.
std::optional<KeyPlace> first_dead(const Subscription &s, core::Token token) {
    const std::array<pg::KeyColumn, 3> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(partition_of(token))},
        pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(token.value())}};
    std::optional<KeyPlace> first;
    pg::each_row("dead_message", "dead_message_open", key, [&](TupleTableSlot *row) {
        if (!has_key(row, dead_key))
            return true;
        first = place_of(row);
        return false;
    });
    return first;
}

/// Whether something before this place has failed. What is ready before it is in the same batch.
bool is_behind_failure(const Subscription &s, core::Token token, KeyPlace place) {
    const std::optional<KeyPlace> dead = first_dead(s, token);
    bool found = dead && *dead < place;
    each_aside(s, token, [&](TupleTableSlot *row) {
        if (!(place_of(row) < place))
            return false;
        found = found || state_of(row) != "ready";
        return !found;
    });
    return found;
}

/// Whether there is a message with this place among those, which are in the order of their places.
bool holds_place(std::span<const Message> messages, KeyPlace place) {
    auto found =
        std::lower_bound(messages.begin(), messages.end(), place, [](const Message &m, KeyPlace p) {
            return KeyPlace{m.tick, m.number} < p;
        });
    return found != messages.end() && KeyPlace{found->tick, found->number} == place;
}

} // namespace

std::optional<KeyPlace> first_blocker(const Subscription &s, core::Token token,
                                      std::span<const Message> together) {
    CommandCounterIncrement(); // what this transaction has written itself counts as well
    std::optional<KeyPlace> first = first_dead(s, token);
    each_aside(s, token, [&](TupleTableSlot *row) {
        const KeyPlace place = place_of(row);
        if (holds_place(together, place))
            return true;
        if (!first || place < *first)
            first = place;
        return false;
    });
    return first;
}

bool is_behind_another(const Subscription &s, core::Token token, int64 tick, int64 number) {
    const std::optional<KeyPlace> first = first_blocker(s, token);
    return first && *first < KeyPlace{tick, number};
}

void hold(const Subscription &s, core::Token token, KeyPlace place) {
    put_back.run(pg::param(s.id), pg::param(token.value()), pg::param(place.tick),
                 pg::param(place.number));
}

void hold_active(const Subscription &s, core::Token token, KeyPlace place) {
    std::array<KeyPlace, ready_max> active{};
    for (size_t count = active.size(); count == active.size();) {
        CommandCounterIncrement();
        const std::array<pg::KeyColumn, 3> behind{
            pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(token.value())},
            pg::KeyColumn{F_INT8GE, InvalidOid, Int64GetDatum(place.tick),
                          BTGreaterEqualStrategyNumber}};
        count = 0;
        pg::each_row("message_retry", "message_retry_active", behind, [&](TupleTableSlot *row) {
            const KeyPlace found = place_of(row);
            if (place < found && has_key(row, retry_key))
                active[count++] = found;
            return count < active.size();
        });
        for (const KeyPlace &found : std::span{active}.first(count))
            hold(s, token, found);
        if (count > 0)
            place = active[count - 1];
    }
}

void hold_behind_failure(const Subscription &s, core::Token token, KeyPlace failed) {
    CommandCounterIncrement();
    if (is_behind_failure(s, token, failed))
        hold(s, token, failed);
}

void release_key(const Subscription &s, core::Token token, TimestampTz now) {
    if (!s.stop_on_first_failure)
        return;
    CommandCounterIncrement();
    const std::optional<KeyPlace> dead = first_dead(s, token);
    std::array<KeyPlace, ready_max> released{};
    size_t count = 0;
    each_aside(s, token, [&](TupleTableSlot *row) {
        const KeyPlace place = place_of(row);
        const bool is_fallback = state_of(row) == "fallback";
        if (is_active(row) || (dead && *dead < place) || (is_fallback && count > 0))
            return false;
        released[count++] = place;
        return !is_fallback && count < released.size();
    });
    for (const KeyPlace &place : std::span{released}.first(count))
        make_ready.run(pg::param(s.id), pg::param(token.value()), pg::param(place.tick),
                       pg::param(place.number), pg::param_time(now));
}

} // namespace stacksaga
