#include "model.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stacksaga::property::outbox {

int pause_after(int attempt) {
    int pause = initial_interval;
    for (int i = 1; i < attempt && pause < max_interval; ++i)
        pause *= multiplier;
    return std::min(pause, max_interval);
}

const char *name_of(Status status) {
    switch (status) {
    case Status::open:
        return "open";
    case Status::fallback:
        return "left to the fallback";
    case Status::dead:
        return "dead";
    case Status::done:
        return "done";
    case Status::discarded:
        return "discarded";
    }
    return "?";
}

bool Model::wants(const Published &p) const {
    const std::string &topic = settings_.topic;
    const bool matches = topic.back() == '*'
                             ? p.topic.starts_with(topic.substr(0, topic.size() - 1))
                             : p.topic == topic;
    return matches && p.committed != never && p.committed > settings_.created_at;
}

std::string Model::describe(int number) const {
    const Published &p = published(number);
    std::string text = fmt::format("message {} (topic {}, key {}", number, p.topic,
                                   p.key.empty() ? "none" : p.key);
    if (p.is_delayed)
        text += fmt::format(", deliver_at minute {}", p.deliver_at);
    const auto found = deliveries_.find(number);
    if (found != deliveries_.end()) {
        const Delivery &d = found->second;
        text +=
            fmt::format(", {}, attempt {}, due at minute {}", name_of(d.status), d.attempt, d.due);
        if (d.batch != 0)
            text += fmt::format(", last in batch {}", d.batch);
    }
    return text + ")";
}

void Model::object(int number, const std::string &why) const {
    throw Disagreement(
        fmt::format("subscription {}: {} {}", settings_.name, describe(number), why));
}

Model::Delivery &Model::require_deliverable(const Given &given, int now) {
    const auto found = log_.find(given.number);
    if (found == log_.end())
        throw Disagreement(fmt::format("message {} was never published", given.number));
    const Published &p = found->second;
    if (!wants(p))
        object(p.number, "is not for this subscription, or not committed");
    Delivery &d = deliveries_[p.number];
    if (d.status != Status::open)
        object(p.number, "is given once more");
    if (p.is_delayed && p.deliver_at > now)
        object(p.number, fmt::format("is given before its time, at minute {}", now));
    if (d.due > now)
        object(p.number, fmt::format("is tried again too early, at minute {}", now));
    const auto [least, most] = charged(p.number, d);
    if (given.attempt <= least || given.attempt > most + 1)
        object(p.number, fmt::format("is given as attempt {}, not {} to {}", given.attempt,
                                     least + 1, most + 1));
    return d;
}

/// A failure is charged, and the loss of a batch to a message that was alone with its consumer: any
/// other may be lost with a message that ends its consumer.
Model::Charged Model::charged(int number, const Delivery &d) const {
    if (d.next_attempt != 0)
        return {d.next_attempt - 1, d.next_attempt - 1};
    if (!d.was_given)
        return {0, 0};
    const auto found = batches_.find(d.batch);
    const bool is_alone = found != batches_.end() && found->second.messages.size() == 1 &&
                          !found->second.failed.contains(number) && !found->second.is_lost_together;
    if (!is_alone)
        return {d.attempt - 1, d.attempt - 1};
    return {may_have_company(found->second) ? d.attempt - 1 : d.attempt, d.attempt};
}

bool Model::may_have_company(const Batch &batch) const {
    return std::ranges::any_of(batches_, [&](const auto &entry) {
        const Batch &other = entry.second;
        return &other != &batch && other.consumer == batch.consumer &&
               other.received_at <= batch.lease_until && other.lease_until >= batch.received_at &&
               other.answered_at >= batch.lease_until;
    });
}

void Model::lost_together(int64_t id, int now) {
    Batch &batch = batches_.at(id);
    batch.is_lost_together = !batch.is_over && batch.lease_until > now;
}

void Model::require_order(const Published &p, const std::set<int> &before,
                          const std::set<int> &together) {
    if (p.key.empty())
        return;
    for (const auto &[number, other] : log_) {
        if (other.key != p.key || !other.is_before(p) || !wants(other) || before.contains(number))
            continue;
        if (together.contains(number))
            object(p.number, fmt::format("comes before {} in one batch", describe(number)));
        const Delivery &d = deliveries_[number];
        if (d.status == Status::done || d.status == Status::discarded)
            continue;
        // A delayed message that is not due blocks no other.
        if (!d.was_given && other.is_delayed)
            continue;
        if (settings_.stops || !d.was_given)
            object(p.number, fmt::format("overtakes {}", describe(number)));
    }
}

void Model::give(const std::vector<Given> &messages, int64_t batch, int now) {
    std::set<int> together, before;
    for (const Given &given : messages)
        if (!together.insert(given.number).second)
            object(given.number, "is twice in one batch");
    for (const Given &given : messages) {
        Delivery &d = require_deliverable(given, now);
        if (const auto held = batches_.find(d.batch); held != batches_.end() && d.batch != batch) {
            Batch &old = held->second;
            if (!old.is_over && old.lease_until > now && !old.failed.contains(given.number))
                object(given.number, fmt::format("is leased with batch {}", d.batch));
            if (!old.failed.contains(given.number)) {
                const size_t room = std::max<size_t>(1, old.messages.size() / 2);
                if (batch != 0 && !old.is_over && old.halves && messages.size() > room)
                    object(given.number,
                           fmt::format("comes with {} messages after batch {} of {}",
                                       messages.size(), d.batch, old.messages.size()));
                old.is_over = d.in_doubt = true;
            }
        }
        require_order(published(given.number), before, together);
        before.insert(given.number);
    }
    for (const Given &given : messages) {
        Delivery &d = deliveries_[given.number];
        for (auto &[id, old] : batches_)
            old.is_given_again =
                old.is_given_again ||
                std::ranges::find(old.messages, given.number) != old.messages.end();
        d.was_given = true;
        d.attempt = given.attempt;
        d.next_attempt = 0;
        d.batch = batch;
        d.may_be_given_up = false;
    }
}

void Model::received(int64_t batch, const std::vector<Given> &messages, const std::string &consumer,
                     int now, int lease) {
    give(messages, batch, now);
    Batch made{.messages = {},
               .failed = {},
               .consumer = consumer,
               .received_at = now,
               .lease_until = now + lease};
    for (const Given &given : messages) {
        made.messages.push_back(given.number);
        const std::string &key = published(given.number).key;
        for (const auto &[id, other] : batches_)
            for (int number : other.messages)
                if (!key.empty() && !other.is_over && other.lease_until > now &&
                    published(number).key == key)
                    object(given.number,
                           fmt::format("comes beside {} of batch {}", describe(number), id));
    }
    batches_.emplace(batch, std::move(made));
}

Model::Batch &Model::answer(int64_t id, bool accepted, int now, const char *what) {
    Batch &batch = batches_.at(id);
    if (accepted && batch.is_over)
        throw Disagreement(
            fmt::format("subscription {}: {} was accepted for batch {}, which is lost",
                        settings_.name, what, id));
    if (!accepted && !batch.is_over && batch.lease_until > now)
        throw Disagreement(
            fmt::format("subscription {}: {} was refused for batch {}, which is leased",
                        settings_.name, what, id));
    batch.is_over = batch.is_over || !accepted;
    return batch;
}

void Model::fail(int number, FailureClass failure_class, int retry_after, int now) {
    Delivery &d = deliveries_[number];
    d.in_doubt = d.in_doubt || failure_class == FailureClass::unknown;
    if (failure_class != FailureClass::non_retryable && settings_.may_retry(d.attempt)) {
        d.due = now + (retry_after >= 0 ? retry_after : pause_after(d.attempt));
        d.next_attempt = d.attempt + 1;
    } else {
        d.status = settings_.has_fallback && !d.in_doubt ? Status::fallback : Status::dead;
    }
}

void Model::failed(int64_t id, int number, FailureClass failure_class, int retry_after,
                   bool accepted, int now) {
    Batch &batch = answer(id, accepted, now, "a failure");
    if (accepted && batch.failed.insert(number).second)
        fail(number, failure_class, retry_after, now);
}

void Model::extended(int64_t id, int minutes, bool accepted, int now) {
    Batch &batch = answer(id, accepted, now, "an extension");
    if (accepted)
        batch.lease_until = std::max(batch.lease_until, now + minutes);
}

void Model::acknowledged(int64_t id, bool accepted, long long count, int now) {
    Batch &batch = answer(id, accepted, now, "an acknowledgement");
    if (!accepted)
        return;
    batch.is_over = true;
    batch.answered_at = now;
    std::set<std::string> stopped;
    int settled = 0;
    for (int number : batch.messages) {
        const std::string &key = published(number).key;
        if (batch.failed.contains(number)) {
            if (settings_.stops && !key.empty())
                stopped.insert(key);
        } else if (!stopped.contains(key)) {
            deliveries_[number].status = Status::done;
            ++settled;
        } else {
            deliveries_[number].batch = 0; // its consumer has left it out
        }
    }
    if (count != settled)
        throw Disagreement(
            fmt::format("subscription {}: batch {} was acknowledged for {} messages, "
                        "not {}",
                        settings_.name, id, count, settled));
}

/// Its messages come with the same attempt, and none before its pause is over; a second call
/// changes nothing.
void Model::released(int64_t id, int minutes, bool accepted, int now) {
    Batch &batch = batches_.at(id);
    if (batch.is_released) {
        if (accepted && batch.is_given_again)
            throw Disagreement(fmt::format("subscription {}: batch {} was given back once more",
                                           settings_.name, id));
        return;
    }
    answer(id, accepted, now, "a release");
    if (!accepted)
        return;
    batch.is_over = batch.is_released = true;
    batch.answered_at = now;
    for (int number : batch.messages) {
        Delivery &d = deliveries_[number];
        d.due = std::max(d.due, now + minutes);
        if (batch.failed.contains(number))
            continue;
        d.next_attempt = d.attempt;
        d.batch = 0;
    }
}

void Model::gave_up(int number, Delivery &d) {
    const int attempts = charged(number, d).most;
    const bool has_attempts =
        (attempts == 0 || settings_.may_retry(attempts)) && !d.may_be_given_up;
    if (d.status != Status::open || !d.was_given || has_attempts)
        object(number, "is given up");
    if (const auto batch = batches_.find(d.batch); batch != batches_.end()) {
        batch->second.is_over = true;
        d.in_doubt = d.in_doubt || !batch->second.failed.contains(number);
    }
    d.status = settings_.has_fallback && !d.in_doubt ? Status::fallback : Status::dead;
}

void Model::handled(const std::vector<Given> &messages, bool by_fallback, bool succeeded,
                    FailureClass failure_class, int now) {
    if (by_fallback) {
        const int number = messages.at(0).number;
        Delivery &d = deliveries_[number];
        if (d.status != Status::fallback)
            gave_up(number, d);
        if (!settings_.has_fallback)
            object(number, "has its fallback run, and there is none");
        require_order(published(number), {}, {});
        d.status = succeeded ? Status::done : Status::dead;
        return;
    }
    give(messages, 0, now);
    if (succeeded)
        for (const Given &given : messages)
            deliveries_[given.number].status = Status::done;
    else if (messages.size() == 1)
        fail(messages[0].number, failure_class, -1, now);
}

void Model::maintained() {
    for (auto &[id, batch] : batches_)
        batch.halves = false;
}

void Model::are_dead(const std::set<int> &numbers) {
    for (int number : numbers)
        if (Delivery &d = deliveries_[number]; d.status != Status::dead) {
            gave_up(number, d);
            if (d.status != Status::dead)
                object(number, "is dead without its fallback");
        }
    for (const auto &[number, d] : deliveries_)
        if (d.status == Status::dead && !numbers.contains(number))
            object(number, "is not among the dead messages");
}

void Model::redriven(int number, int due) {
    Delivery &d = deliveries_[number];
    d.status = Status::open;
    d.due = due;
    d.next_attempt = 1;
    d.may_be_given_up = false;
}

void Model::discarded(int number) {
    deliveries_[number].status = Status::discarded;
}

void Model::altered(const Settings &settings, int now) {
    for (auto &[number, d] : deliveries_) {
        const auto batch = batches_.find(d.batch);
        const bool is_leased = batch != batches_.end() && !batch->second.is_over &&
                               batch->second.lease_until > now &&
                               !batch->second.failed.contains(number);
        d.may_be_given_up =
            d.may_be_given_up || (d.was_given && !is_leased && charged(number, d).most > 0 &&
                                  !settings_.may_retry(charged(number, d).most));
    }
    if (settings.stops != settings_.stops || settings_.is_service() != settings.is_service())
        for (auto &[id, batch] : batches_)
            batch.is_over = true;
    settings_ = settings;
}

bool Model::holds_lease(int now) const {
    return std::ranges::any_of(batches_, [&](const auto &entry) {
        return !entry.second.is_over && entry.second.lease_until > now;
    });
}

std::vector<int> Model::dead() const {
    std::vector<int> numbers;
    for (const auto &[number, d] : deliveries_)
        if (d.status == Status::dead)
            numbers.push_back(number);
    return numbers;
}

std::string Model::unsettled() const {
    std::string text;
    for (const auto &[number, p] : log_) {
        if (!wants(p))
            continue;
        const auto found = deliveries_.find(number);
        if (found == deliveries_.end() ||
            (found->second.status != Status::done && found->second.status != Status::discarded))
            text += fmt::format("subscription {}: {} was not settled\n", settings_.name,
                                describe(number));
    }
    return text;
}

} // namespace stacksaga::property::outbox
