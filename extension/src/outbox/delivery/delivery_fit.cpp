#include "src/outbox/delivery/delivery_fit.hpp"

#include "core/common/put_off.hpp"
#include "core/outbox/message_state.hpp"

#include "pg/clock.hpp"
#include "pg/fault_point.hpp"
#include "pg/random.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "src/common/sent_values.hpp"
#include "src/handler/handler_error.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"

namespace stacksaga {

namespace {

using State = core::MessageState;

/// Messages of the log that this process could neither read nor copy, so that no row says when they
/// are due: one that falls on the place of another takes it.
struct Place {
    pg_uuid_t id;
    int32 times;
    TimestampTz until;
};
constinit std::array<Place, 64> places{};

Place &place_of_stuck(const Message &m) {
    Place &place = places[static_cast<size_t>(m.id.data[UUID_LEN - 1]) % places.size()];
    if (memcmp(place.id.data, m.id.data, UUID_LEN) != 0)
        place = {.id = m.id, .times = 0, .until = DT_NOBEGIN};
    return place;
}

bool is_plain(Datum value) {
    return value == 0 || SentText::is_surely_sent(value);
}

/// False when it failed; what it did has not happened then.
template <class F> bool attempt_on_item(F &&body) {
    return pg::attempt_expecting([](const ErrorData &error) { return !is_of_session(error); },
                                 static_cast<F &&>(body));
}

/// Nothing when the message could be read.
std::optional<HandlerError> read_values(Message &m) {
    HandlerError error{};
    const bool is_done = pg::attempt_expecting(
        [&](const ErrorData &caught) {
            if (is_of_session(caught))
                return false;
            error = unfit_error(caught);
            return true;
        },
        [&] {
            FAULT_POINT("read: message", m.id);
            SentText text;
            if (m.payload != 0) {
                const SentValue payload = text.add(m.payload);
                m.payload = payload.value;
                m.payload_bytes = payload.text_bytes;
            }
            m.headers = text.add(m.headers).value;
        });
    if (is_done)
        return std::nullopt;
    return error;
}

void leave_out_values(Message &m) {
    m.payload = 0;
    m.headers = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
}

/// Writes the row of a retry that is due later, without another attempt.
void write_put_off(const Subscription &s, const Message &m, const HandlerError &error, int32 times,
                   TimestampTz due_at) {
    const bool is_fallback = m.state == State::fallback;
    write_retry(s, m,
                {.state = is_fallback ? m.state : next_state(m.state, core::MessageEvent::fail),
                 .due_at = due_at,
                 .attempt = m.attempt - 1,
                 .crashes = m.crashes,
                 .error = error.message,
                 .detail = error.detail,
                 .postponed = times});
    if (s.stop_on_first_failure && m.key != 0)
        hold_behind(s, m);
}

/// A message that has a row keeps what is in it. One of the log is copied, and where that fails as
/// well nothing of it may be lost: it stays there, and its partition waits.
Fit put_off(const Subscription &s, Message &m, const HandlerError &error, int32 times,
            TimestampTz now) {
    const TimestampTz due_at = pg::time_plus(now, core::put_off_us(times, pg::random_fraction()));
    if (m.is_retry()) {
        leave_out_values(m);
        write_put_off(s, m, error, times + 1, due_at);
        return Fit::settled;
    }
    if (attempt_on_item([&] {
            FAULT_POINT("copy: message", m.id);
            write_put_off(s, m, error, times + 1, due_at);
        })) {
        leave_out_values(m);
        return Fit::settled;
    }
    Place &place = place_of_stuck(m);
    place.times = times + 1;
    place.until = due_at;
    return Fit::stuck;
}

/// A message that cannot be read can often not be copied either.
void end_unfit(const Subscription &s, Message &m, const HandlerError &error, TimestampTz now) {
    const auto write = [&] {
        Message dead = m;
        dead.attempt = m.attempt - 1;
        write_dead(s, dead, 0, error.message, error.detail, now);
    };
    const bool is_copied = attempt_on_item(write);
    leave_out_values(m);
    if (!is_copied)
        write();
    if (s.stop_on_first_failure && m.key != 0)
        hold_behind(s, m);
}

} // namespace

Fit settle_unfit(const Subscription &s, Message &m, TimestampTz now) {
    if (is_plain(m.payload) && is_plain(m.headers))
        return Fit::fits;
    const bool is_in_log = !m.is_retry();
    if (is_in_log && place_of_stuck(m).until > now)
        return Fit::stuck;
    const std::optional<HandlerError> error = read_values(m);
    if (!error)
        return Fit::fits;
    if (is_in_log && is_settled(s, m)) { // by a batch that was lost
        leave_out_values(m);
        return Fit::settled;
    }
    const int32 times = is_in_log ? place_of_stuck(m).times : m.postponed;
    if (error->may_pass && core::may_be_put_off(times))
        return put_off(s, m, *error, times, now);
    end_unfit(s, m, *error, now);
    return Fit::settled;
}

} // namespace stacksaga
