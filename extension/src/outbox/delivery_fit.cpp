#include "src/outbox/delivery_fit.hpp"

#include "core/retry.hpp"
#include "core/saga_state.hpp"

#include "pg/function.hpp"
#include "src/common/sent_text.hpp"
#include "src/handler/handler_error.hpp"
#include "src/outbox/delivery_retry.hpp"

namespace stacksaga {

namespace {

constexpr int64 put_off_max = 3;
constexpr core::RetryPolicy pauses{.max_attempts = 0,
                                   .initial_interval_us = USECS_PER_SEC,
                                   .max_interval_us = 60 * USECS_PER_SEC,
                                   .multiplier = 2,
                                   .jitter = 0};

/// How often this process has put messages off: one that falls on the place of another takes it.
struct Place {
    pg_uuid_t id;
    int64 times;
};
constinit std::array<Place, 64> places{};

int64 &times_of(const Message &m) {
    Place &place = places[static_cast<size_t>(m.id.data[UUID_LEN - 1]) % places.size()];
    if (memcmp(place.id.data, m.id.data, UUID_LEN) != 0)
        place = {.id = m.id, .times = 0};
    return place.times;
}

bool is_plain(Datum value) {
    return value == 0 || SentText::is_surely_sent(value);
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
            SentText text;
            if (m.payload != 0)
                m.payload = text.add(m.payload);
            m.headers = text.add(m.headers);
        });
    if (is_done)
        return std::nullopt;
    return error;
}

/// What cannot be read cannot be copied either.
void fail_without_values(const Subscription &s, Message &m, const MessageFailure &failure,
                         TimestampTz now) {
    const bool is_done =
        pg::attempt_expecting([](const ErrorData &error) { return !is_of_session(error); },
                              [&] { fail_message(s, m, failure, now); });
    m.payload = 0;
    if (is_done)
        return;
    m.headers = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
    fail_message(s, m, failure, now);
}

} // namespace

bool settle_unfit(const Subscription &s, Message &m, TimestampTz now) {
    if (is_plain(m.payload) && is_plain(m.headers))
        return false;
    const std::optional<HandlerError> error = read_values(m);
    if (!error)
        return false;
    MessageFailure failure{.failure_class = core::FailureClass::non_retryable,
                           .error = error->message};
    if (error->may_pass && times_of(m) < put_off_max) {
        failure.failure_class = core::FailureClass::retryable;
        failure.retry_after_us = core::delay_before(++times_of(m) + 1, pauses, 0);
    }
    fail_without_values(s, m, failure, now);
    return true;
}

} // namespace stacksaga
