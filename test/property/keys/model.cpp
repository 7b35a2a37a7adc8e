#include "model.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::keys {

namespace {

std::string quoted(const std::optional<std::string> &text) {
    return text ? "\"" + *text + "\"" : "none";
}

} // namespace

std::string name_of(const Thing &thing) {
    constexpr const char *kinds[] = {"key", "message", "producer", "value"};
    return fmt::format("{} {}", kinds[static_cast<size_t>(thing.kind)], thing.name);
}

std::string text_of(const Row &row) {
    if (const auto *key = std::get_if<KeyRow>(&row))
        return fmt::format(
            "attempt {}, lease {} of {} until {}, retention {}, {}, request {}, "
            "recovery point {}, response {}",
            key->attempt, key->lease, key->lease_length, key->lease_until, key->retention,
            key->completed_at ? fmt::format("completed at {}", *key->completed_at) : "in progress",
            quoted(key->request), quoted(key->recovery_point), quoted(key->response));
    if (const auto *message = std::get_if<MessageRow>(&row))
        return fmt::format("expires at {}", message->expires_at);
    if (const auto *producer = std::get_if<ProducerRow>(&row))
        return fmt::format("epoch {}, sequence {}", producer->epoch, producer->sequence);
    const auto &value = std::get<ValueRow>(row);
    return fmt::format("version {}, value {}", value.version, quoted(value.value));
}

// Transactions.

void Model::begin(int session, Isolation isolation, bool is_read_only) {
    at(session) = {.in_transaction = true,
                   .is_read_only = is_read_only,
                   .isolation = isolation,
                   .levels = {Level{}}};
}

void Model::savepoint(int session) {
    at(session).levels.emplace_back();
}

void Model::roll_back_to(int session, size_t level) {
    Session &s = at(session);
    keep_waiting(s, level);
    std::set<Thing> locks;
    for (size_t i = level; i < s.levels.size(); ++i)
        locks.merge(s.levels[i].locks);
    s.levels.resize(level);
    s.levels.emplace_back();
    s.is_aborted = false;
    unlock(locks);
}

void Model::release(int session, size_t level) {
    Session &s = at(session);
    Level &below = s.levels[level - 1];
    for (size_t i = level; i < s.levels.size(); ++i) {
        for (auto &[thing, row] : s.levels[i].writes) {
            below.writes.insert_or_assign(thing, row);
            below.released.insert(thing);
        }
        below.released.merge(s.levels[i].released);
        below.released.insert(s.levels[i].touched.begin(), s.levels[i].touched.end());
        below.locks.merge(s.levels[i].locks);
        below.touched.merge(s.levels[i].touched);
    }
    s.levels.resize(level);
}

bool Model::commit(int session) {
    Session &s = at(session);
    const bool commits = !s.is_aborted;
    for (const Level &level : s.levels) {
        if (!commits)
            break;
        for (const auto &[thing, row] : level.writes)
            if (row)
                committed_.insert_or_assign(thing, *row);
            else
                committed_.erase(thing);
    }
    end_transaction(s);
    return commits;
}

void Model::roll_back(int session) {
    end_transaction(at(session));
}

/// With its locks, which the others then have, its writes end: they are visible or gone.
void Model::end_transaction(Session &s) {
    std::set<Thing> locks;
    for (Level &level : s.levels)
        locks.merge(level.locks);
    s = {};
    end_waits_on(s);
    ++commits_;
    unlock(locks);
}

/// Nobody waits any longer for the end of its transaction.
void Model::end_waits_on(const Session &s) {
    for (Session &other : sessions_)
        if (other.waits_on && &at(*other.waits_on) == &s) {
            other.waits_on.reset();
            other.may_wait_on = false;
        }
}

/// Those who wait for a row of the levels that are about to be undone may go on waiting.
void Model::keep_waiting(const Session &holder, size_t level) {
    for (size_t i = 0; i < sessions_.size(); ++i) {
        Session &waiter = sessions_[i];
        if (&waiter == &holder || !waiter.call || waiter.phase == Phase::queued)
            continue;
        const std::set<int> blockers = predict(static_cast<int>(i)).blockers;
        for (size_t l = level; l < holder.levels.size(); ++l)
            if (blockers.size() == 1 && &at(*blockers.begin()) == &holder &&
                holder.levels[l].released.contains(waiter.call->thing)) {
                waiter.waits_on = *blockers.begin();
                waiter.may_wait_on = true;
            }
    }
}

void Model::waits_on(int session, bool waits) {
    at(session).may_wait_on = false;
    if (!waits)
        at(session).waits_on.reset();
}

void Model::abort(Session &s) {
    // An error outside of savepoints ends the transaction, before its ROLLBACK.
    if (s.levels.size() == 1)
        end_waits_on(s);
    else
        keep_waiting(s, s.levels.size() - 1);
    const std::set<Thing> locks = std::move(s.levels.back().locks);
    s.levels.back() = {};
    s.is_aborted = s.in_transaction;
    unlock(locks);
}

void Model::unlock(const std::set<Thing> &locks) {
    for (const Thing &thing : locks) {
        std::deque<int> &queue = queues_[thing];
        if (queue.empty())
            continue;
        Session &next = at(queue.front());
        queue.pop_front();
        next.levels.back().locks.insert(thing);
        next.phase = Phase::granted;
    }
    note_row_waits();
}

// Rows and locks.

std::optional<Row> Model::find(int session, const Thing &thing) const {
    const Session &s = at(session);
    for (auto level = s.levels.rbegin(); level != s.levels.rend(); ++level)
        if (const auto found = level->writes.find(thing); found != level->writes.end())
            return found->second;
    const auto found = committed_.find(thing);
    return found != committed_.end() ? std::optional(found->second) : std::nullopt;
}

Table Model::visible(int session) const {
    Table table = committed_;
    for (const Level &level : at(session).levels)
        for (const auto &[thing, row] : level.writes)
            if (row)
                table.insert_or_assign(thing, *row);
            else
                table.erase(thing);
    return table;
}

std::optional<int> Model::lock_holder(const Thing &thing) const {
    for (size_t i = 0; i < sessions_.size(); ++i)
        for (const Level &level : sessions_[i].levels)
            if (level.locks.contains(thing))
                return static_cast<int>(i);
    return std::nullopt;
}

std::optional<int> Model::row_holder(const Thing &thing, int except) const {
    for (size_t i = 0; i < sessions_.size(); ++i)
        for (const Level &level : sessions_[i].levels)
            if (static_cast<int>(i) != except &&
                (level.writes.contains(thing) || level.touched.contains(thing)))
                return static_cast<int>(i);
    return std::nullopt;
}

std::string Model::describe() const {
    std::string text = "committed:\n";
    for (const auto &[thing, row] : committed_)
        text += fmt::format("  {}: {}\n", name_of(thing), text_of(row));
    for (size_t i = 0; i < sessions_.size(); ++i) {
        const Session &s = sessions_[i];
        if (s.in_transaction || s.call)
            text += fmt::format("session {}{}{}:\n", i, s.is_aborted ? ", failed" : "",
                                s.call ? ", waits with " + s.call->sql : "");
        for (const Level &level : s.levels) {
            for (const auto &[thing, row] : level.writes)
                text += fmt::format("  writes {}: {}\n", name_of(thing),
                                    row ? text_of(*row) : "removed");
            for (const Thing &thing : level.locks)
                text += fmt::format("  holds {}\n", name_of(thing));
        }
    }
    return text;
}

} // namespace stacksaga::property::keys
