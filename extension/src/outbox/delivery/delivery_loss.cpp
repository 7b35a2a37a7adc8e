#include "src/outbox/delivery/delivery_loss.hpp"

#include "core/outbox/batch_room.hpp"
#include "core/outbox/message_state.hpp"

#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "src/outbox/delivery/delivery_order.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"

namespace stacksaga {

namespace {

enum class OwnColumn : uint8_t { consumer, received_at };
constinit pg::Select<OwnColumn> find_own{
    "SELECT consumer, received_at FROM stacksaga.message_batch WHERE batch_id = $1"};
constinit pg::Statement find_company{"SELECT FROM stacksaga.message_batch"
                                     " WHERE batch_id = $1 AND consumer = $2 AND received_at < $3"};
constinit pg::Statement find_lost_company{
    "SELECT FROM stacksaga.lost_batch"
    " WHERE subscription_id = $1 AND consumer = $2 AND lease_until > $3 AND received_at < $4"
    "   AND batch_id <> $5 LIMIT 1"};
constinit pg::Statement note_lost{
    "INSERT INTO stacksaga.lost_batch"
    " (batch_id, partition, subscription_id, consumer, received_at, lease_until)"
    " SELECT batch_id, $2, subscription_id, consumer, received_at, $3"
    "   FROM stacksaga.message_batch WHERE batch_id = $1"};
constinit pg::Statement doubt_given{
    "UPDATE stacksaga.message_retry SET in_doubt = true"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND batch_id = $3" // by the batch alone
    "   AND NOT in_doubt"};

/// How long the consumer had the batch.
struct Hold {
    std::string_view consumer;
    TimestampTz from, until;
};

std::optional<Hold> hold_of(const Position &p) {
    const auto own = find_own.run(pg::param(p.batch_id));
    if (own.empty())
        return std::nullopt;
    return Hold{.consumer = own.text(0, OwnColumn::consumer),
                .from = own.time(0, OwnColumn::received_at),
                .until = p.lease_until};
}

/// Of the batches that nobody has found to be lost yet.
core::Company open_company(const Subscription &s, const Position &p, const Hold &hold,
                           TimestampTz now) {
    core::Company company = core::Company::none;
    const std::optional<Positions> positions = read_positions(s.id, s.partitions);
    for (const Position &other : positions.value_or(Positions{})) {
        if (other.batch_id == 0 || other.batch_id == p.batch_id || other.lease_until <= hold.from ||
            find_company
                .run(pg::param(other.batch_id), pg::param(hold.consumer),
                     pg::param_time(hold.until))
                .empty())
            continue;
        if (!other.is_leased(now))
            return core::Company::lost;
        company = core::Company::open;
    }
    return company;
}

/// What else the consumer of a batch whose lease ran out held. The positions are read first: a
/// batch that another session finds to be lost meanwhile is among the lost ones then.
core::Company company_of(const Subscription &s, const Position &p, const Hold &hold,
                         TimestampTz now) {
    const core::Company company = open_company(s, p, hold, now);
    const bool is_lost =
        company == core::Company::lost ||
        !find_lost_company
             .run(pg::param(s.id), pg::param(hold.consumer), pg::param_time(hold.from),
                  pg::param_time(hold.until), pg::param(p.batch_id))
             .empty();
    return is_lost ? core::Company::lost : company;
}

core::Company company_of(const Subscription &s, const Position &p, TimestampTz now) {
    const std::optional<Hold> hold = p.batch_total == 1 ? hold_of(p) : std::nullopt;
    return hold ? company_of(s, p, *hold, now) : core::Company::none;
}

/// The messages of the log that the batch was given in this partition, without those that failed
/// since and those behind them.
std::span<const Message> unanswered_in_log(const Subscription &s, const Position &p,
                                           TimestampTz now) {
    if (p.batch_size == 0)
        return {};
    const std::span<Message> messages =
        read_log_again(s.filter, p.partition, p.at, p.batch_end).messages;
    mark_in_doubt(p, messages);
    auto *dispositions =
        static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
    decide_dispositions(s, messages, now, {dispositions, messages.size()});
    size_t count = 0;
    for (size_t i = 0; i < messages.size(); ++i)
        if (dispositions[i] == Disposition::deliver)
            messages[count++] = messages[i];
    return messages.first(count);
}

/// The attempt is over. The message stays the first of its partition, so that it comes alone again.
void charge(const Subscription &s, const Message &m, TimestampTz now) {
    write_retry(s, m,
                {.state = next_state(m.state, core::MessageEvent::lose),
                 .due_at = std::min(m.published_at, now), // a clock may have been ahead
                 .attempt = m.attempt,
                 .failed_since = now,
                 .error = unanswered_error});
    CRASH_POINT("retry: failure written, later ones not held");
    if (s.stop_on_first_failure && m.key != 0)
        hold_behind(s, m);
}

} // namespace

void doubt_batch(const Subscription &s, Position &p) {
    if (p.batch_id == 0)
        return;
    if (p.batch_size > 0)
        p.lost_until = std::max(p.lost_until, p.batch_end);
    doubt_given.run(pg::param(s.id), pg::param(p.partition), pg::param(p.batch_id));
}

void end_lost_batch(const Subscription &s, Position &p, TimestampTz now) {
    if (p.batch_id == 0)
        return;
    doubt_batch(s, p);
    const std::span<const Message> retries = messages_given(s, p.partition, p.batch_id, false);
    const std::span<const Message> log = unanswered_in_log(s, p, now);
    if (!retries.empty() || !log.empty()) {
        const core::Company company = company_of(s, p, now);
        note_lost.run(pg::param(p.batch_id), pg::param(p.partition), pg::param_time(p.lease_until));
        p.room = core::room_after_loss(p.batch_total, company);
        if (core::is_charged_for_loss(p.batch_total, company)) {
            charge(s, log.empty() ? retries[0] : log[0], now);
            p.at = std::max(p.at, p.batch_end); // nothing else of the log was before it
        }
    }
    p.batch_id = 0;
}

bool waits_for_company(const Subscription &s, const Position &p, TimestampTz now) {
    if (p.batch_id == 0 || p.batch_total != 1)
        return false;
    const std::optional<Hold> hold = hold_of(p);
    return hold && now < hold->until + (hold->until - hold->from) &&
           company_of(s, p, *hold, now) == core::Company::open;
}

} // namespace stacksaga
