// wait_for_messages: a service waits until a subscription may have messages for it
// (common/waiting.hpp).
//
// A look makes a tick where one is due, so that what the wait returned for is there for the next
// receive_messages(), and each look is a transaction of its own. The first one in line keeps the
// time for all: it wakes when a retry, a lease or a pause ends. Who is not the first, and has
// watched, wakes the first one, which may have looked before what was watched.
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/waiting.hpp"
#include "src/outbox/delivery/delivery_look.hpp"
#include "src/outbox/log/message_waiters.hpp"

namespace stacksaga {

namespace {

/// At what may be rolled back, is prepared, or is for other consumers.
constexpr int64 look_again_us = USECS_PER_SEC;
constexpr int64 ticking_us = 1000; ///< how long others take to make a tick

template <class F> auto as_extension(F &&body) {
    return pg::with_pinned_path([&] { return pg::as_owner([&] { return pg::with_spi(body); }); });
}

/// A session that waits. The arguments may be gone after a commit.
struct Waiter {
    std::array<char, NAMEDATALEN> name{};
    std::array<char, name_bytes_max> consumer{};
    size_t consumer_size = 0;
    int32 subscription_id = 0;
    WaitingLine line{};
    ClaimPlace claims{};
    ReadAhead ahead{};

    std::optional<std::string_view> consumer_name() const {
        if (consumer_size == 0)
            return std::nullopt;
        return std::string_view{consumer.data(), consumer_size};
    }
    void find(std::string_view subscription, int64 wait_us);
    Receivable look_once(size_t enough);
    Receivable look(size_t enough);
};

void Waiter::find(std::string_view subscription, int64 wait_us) {
    const Subscription &s = find_subscription(subscription);
    require_no_handler(s);
    std::copy(s.name.begin(), s.name.end(), name.begin());
    subscription_id = s.id;
    line = line_of(s);
    claims = claims_of(s);
    announce_waiting(s, pg::steady_now() + wait_us);
}

/// SG404 when it was dropped meanwhile. One that was created again with its name, or has got a
/// handler, may have something: what it is the next call of receive_messages() says.
Receivable Waiter::look_once(size_t enough) {
    // What depends on the tick commits after it, so this commit need not be flushed.
    set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                      true, 0, false);
    const Subscription *s = find_subscription(subscription_id);
    if (s == nullptr)
        (void)find_subscription(std::string_view{name.data()});
    Receivable anything{};
    anything.due = 1;
    return s == nullptr || s->handler ? anything
                                      : look_for_messages(*s, consumer_name(), enough, ahead);
}

Receivable Waiter::look(size_t enough) {
    Receivable found{};
    // A statement that finds no snapshot takes one that lasts as long as the procedure.
    PushActiveSnapshot(GetTransactionSnapshot());
    as_extension([&] { found = look_once(enough); });
    PopActiveSnapshot();
    begin_anew();
    return found;
}

/// How long nothing will be due unless another session wakes this one.
int64 rest(const Receivable &found, bool has_watched) {
    if (found.has_others)
        wake_one_behind();
    if (found.is_behind_ticks)
        return ticking_us;
    const bool is_first = place_in_line() == 0;
    if (!is_first && has_watched)
        wake_first_in_line();
    // A share grows when other consumers have not asked for a second.
    const bool looks_again =
        found.has_others || (is_first && (found.is_being_taken || found.is_prepared));
    const int64 until_due =
        is_first && !TIMESTAMP_NOT_FINITE(found.next) ? found.next - pg::clock_now() : wait_max_us;
    return looks_again ? std::min(until_due, look_again_us) : until_due;
}

void wait_for_messages(Waiter &waiter, int64 wait_us) {
    PromisedClaims promises(waiter.claims);
    wait_in_line(
        waiter.line, promises, wait_us, [&](size_t enough) { return waiter.look(enough); },
        [](const Receivable &found, TimestampTz, bool has_watched) {
            return rest(found, has_watched);
        });
}

} // namespace

// wait_for_messages(subscription, wait, consumer), a procedure
STACKSAGA_FUNCTION(wait_for_messages) {
    PreventCommandDuringRecovery("wait_for_messages()");
    require_no_transaction(fcinfo, "wait_for_messages()");
    pg::Arguments arguments(fcinfo);
    const std::string_view subscription = arguments.required_text(0, "subscription");
    const int64 wait_us = wait_argument(arguments, 1);
    Waiter waiter;
    if (const std::optional<std::string_view> consumer = arguments.optional_text(2)) {
        check_name(*consumer, "consumer");
        std::copy(consumer->begin(), consumer->end(), waiter.consumer.begin());
        waiter.consumer_size = consumer->size();
    }
    as_extension([&] { waiter.find(subscription, wait_us); });
    if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect_ext failed");
    begin_anew();
    wait_for_messages(waiter, wait_us);
    SPI_finish();
    PG_RETURN_NULL();
}

} // namespace stacksaga
