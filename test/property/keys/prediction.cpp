// Calls: what the model predicts of one, and what its answer changes.
#include "model.hpp"
#include "rules.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stacksaga::property::keys {

namespace {

bool is_under_lock(Function function) {
    return function != Function::accept_message && function != Function::read_value &&
           function != Function::sweep && function != Function::invalid;
}

/// DETAIL of a key in progress under a lease says how many seconds are left. The clock does not
/// stand still, so they are some fewer.
bool has_seconds(const std::string &detail, int half_hours) {
    constexpr int slack = 600;
    const size_t place = detail.find("runs out in ");
    if (place == std::string::npos)
        return false;
    const int seconds = std::stoi(detail.substr(place + 12));
    return std::abs(seconds - half_hours * 1800) < slack;
}

} // namespace

std::optional<Expected> Model::early_reply(int session, const Call &call) const {
    const Expected reply = begin_key(call, find(session, call.thing));
    const bool is_decided = reply.sqlstate == "SG422" || (reply.sqlstate.empty() && !reply.write);
    const std::optional<int> holder = lock_holder(call.thing);
    const bool is_locked = holder && *holder != session;
    if (is_decided || (reply.sqlstate == "SR409" && !call.waits))
        return reply;
    if (is_locked && !call.waits)
        return Expected{.sqlstate = "SR409"};
    return std::nullopt;
}

bool Model::needs_lock(int session, const Call &call) const {
    const Session &s = at(session);
    if (s.is_aborted || s.is_read_only || !is_under_lock(call.function))
        return false;
    return call.function != Function::begin || !early_reply(session, call);
}

void Model::start(int session, const Call &call) {
    Session &s = at(session);
    if (!s.in_transaction)
        s.levels = {Level{}};
    s.call = call;
    s.phase = Phase::started;
    s.waited_for_row = s.may_wait_on = false;
    s.waits_on.reset();
    if (needs_lock(session, call)) {
        const std::optional<int> holder = lock_holder(call.thing);
        s.phase = holder && *holder != session ? Phase::queued : Phase::granted;
        if (!holder)
            s.levels.back().locks.insert(call.thing);
        if (s.phase == Phase::queued)
            queues_[call.thing].push_back(session);
    }
    note_row_waits();
}

void Model::note_row_waits() {
    for (size_t i = 0; i < sessions_.size(); ++i) {
        Session &s = sessions_[i];
        if (s.call && s.phase != Phase::queued && predict(static_cast<int>(i)).is_blocked())
            s.waited_for_row = true;
    }
}

Expected Model::decide(int session, const Call &call) const {
    const Session &s = at(session);
    if (s.is_aborted)
        return {.sqlstate = "25P02"};
    if (call.function == Function::invalid)
        return apply_rules(call, std::nullopt);
    if (s.is_read_only && call.function != Function::read_value)
        return {.sqlstate = "25006"};
    std::optional<Expected> early;
    if (call.function == Function::begin && s.phase == Phase::started)
        early = early_reply(session, call);
    Expected expected = early ? *early : apply_rules(call, find(session, call.thing));
    expected.may_not_serialize = s.isolation == Isolation::serializable ||
                                 (s.isolation == Isolation::repeatable_read && s.waited_for_row);
    return expected;
}

Prediction Model::predict(int session) const {
    const Session &s = at(session);
    const Call &call = *s.call;
    Prediction prediction;
    if (s.waits_on) {
        prediction.blockers = {*s.waits_on};
    } else if (s.phase == Phase::queued) {
        prediction.blockers = {*lock_holder(call.thing)};
        for (int other : queues_.at(call.thing)) {
            if (other == session)
                break;
            prediction.blockers.insert(other);
        }
    } else {
        prediction.expected = decide(session, call);
        // An accept waits for whatever another transaction does with the message, other calls only
        // when they write the row.
        const bool reads_only =
            call.function != Function::accept_message && !prediction.expected.write;
        const std::optional<int> holder = row_holder(call.thing, session);
        const bool is_refused =
            prediction.expected.sqlstate == "25P02" || prediction.expected.sqlstate == "25006";
        if (holder && !reads_only && !is_refused)
            prediction.blockers = {*holder};
    }
    if (prediction.is_blocked() && call.has_lock_timeout)
        return {.expected = {.sqlstate = "55P03"}};
    return prediction;
}

std::string Model::mismatch(int session, const Reply &reply) const {
    const Prediction prediction = predict(session);
    if (prediction.is_blocked())
        return fmt::format("it should wait for session {}", fmt::join(prediction.blockers, ", "));
    const Expected &expected = prediction.expected;
    if (reply.sqlstate == "40001" && expected.may_not_serialize)
        return {};
    if (reply.sqlstate != expected.sqlstate)
        return expected.sqlstate.empty() ? "it should be accepted"
                                         : "it should be " + expected.sqlstate;
    if (expected.lease_left && !has_seconds(reply.detail, *expected.lease_left))
        return fmt::format("its lease has {} half hours left", *expected.lease_left);
    const Function function = at(session).call->function;
    if (!reply.is_accepted() || function == Function::sweep)
        return {};
    auto row = reply.rows.empty() ? std::vector<std::optional<std::string>>{} : reply.rows[0];
    if (expected.gives_lease && row.size() == 5) {
        const auto given = leases_.find(at(session).call->thing);
        const long long lease = std::stoll(row[4].value_or("0"));
        if (lease <= 0 || (given != leases_.end() &&
                           std::ranges::find(given->second, lease) != given->second.end()))
            return "its lease is not a new one";
        if (const std::optional<Row> before = find(session, at(session).call->thing);
            before && row[0] == "resume" && std::get<KeyRow>(*before).lease >= lease)
            return "its lease does not rise";
        row[4].reset();
    }
    if (row != expected.row || reply.rows.size() > 1)
        return fmt::format(
            "it should be {}",
            Reply{.rows = {expected.row}, .sqlstate = {}, .message = {}, .detail = {}}.text());
    return {};
}

void Model::answered(int session, const Reply &reply) {
    Session &s = at(session);
    Prediction prediction = predict(session);
    if (reply.is_accepted() && prediction.expected.write) {
        std::optional<Row> row = *prediction.expected.write;
        if (prediction.expected.gives_lease) {
            auto &key = std::get<KeyRow>(*row);
            key.lease = std::stoll(*reply.at(0, 4));
            leases_[s.call->thing].push_back(key.lease);
        }
        s.levels.back().writes.insert_or_assign(s.call->thing, row);
        // It inserts in a subtransaction of its own.
        if (s.call->function == Function::accept_message &&
            s.isolation != Isolation::read_committed)
            s.levels.back().released.insert(s.call->thing);
    }
    end_call(session, reply.is_accepted());
}

void Model::swept(int session, const std::set<Thing> &removed, const std::set<Thing> &touched) {
    Session &s = at(session);
    for (const Thing &thing : removed) {
        const std::optional<Row> row = find(session, thing);
        const bool may_go =
            row &&
            ((thing.kind == Kind::key && std::get<KeyRow>(*row).has_expired(s.call->now)) ||
             (thing.kind == Kind::message && std::get<MessageRow>(*row).expires_at <= s.call->now));
        if (!may_go)
            throw Disagreement(fmt::format("{} should not have been removed", name_of(thing)));
        if (row_holder(thing, session))
            throw Disagreement(
                fmt::format("{} was removed, and another session is writing it", name_of(thing)));
        s.levels.back().writes.insert_or_assign(thing, std::nullopt);
    }
    for (const Thing &thing : touched)
        s.levels.back().touched.insert(thing);
    // It removes and postpones in subtransactions of its own, to pass over what cannot be removed.
    s.levels.back().released.insert(removed.begin(), removed.end());
    s.levels.back().released.insert(touched.begin(), touched.end());
    end_call(session, true);
}

void Model::cancelled(int session) {
    end_call(session, false);
}

void Model::end_call(int session, bool accepted) {
    Session &s = at(session);
    const Thing thing = s.call->thing;
    s.call.reset();
    s.waits_on.reset();
    s.may_wait_on = false;
    if (const auto queue = queues_.find(thing); queue != queues_.end())
        std::erase(queue->second, session);
    if (s.is_aborted)
        return;
    if (!accepted)
        abort(s);
    if (!s.in_transaction)
        accepted ? (void)commit(session) : roll_back(session);
    note_row_waits();
}

std::set<int> Model::deadlock() const {
    std::map<int, std::set<int>> waits;
    for (size_t i = 0; i < sessions_.size(); ++i)
        if (sessions_[i].call)
            waits[static_cast<int>(i)] = predict(static_cast<int>(i)).blockers;
    std::set<int> members;
    for (const auto &[first, blockers] : waits) {
        std::set<int> seen;
        std::vector<int> next(blockers.begin(), blockers.end());
        while (!next.empty()) {
            const int session = next.back();
            next.pop_back();
            if (!seen.insert(session).second)
                continue;
            if (const auto further = waits.find(session); further != waits.end())
                next.insert(next.end(), further->second.begin(), further->second.end());
        }
        if (seen.contains(first))
            members.insert(first);
    }
    return members;
}

} // namespace stacksaga::property::keys
