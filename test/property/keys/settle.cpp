// What an episode does with the sessions: it sends calls, takes the answers in an order that the
// model allows, sees that calls wait that have to, and compares the tables.
#include "calls.hpp"
#include "episode.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stacksaga::property::keys {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto patience = std::chrono::seconds(60);

// A payload of 1 kB is the largest one; deadlocks are found soon.
const std::string client_options =
    fmt::format("-c statement_timeout=2min -c deadlock_timeout=10ms -c stacksaga.max_payload=1kB"
                " -c stacksaga.dedupe_retention={}min",
                default_retention * 30);

std::optional<std::string> optional_text(const Reply &reply, size_t row, size_t column) {
    return reply.at(row, column);
}
int number(const Reply &reply, size_t row, size_t column) {
    return std::stoi(reply.at(row, column).value_or("0"));
}

} // namespace

Sessions::Sessions(const std::string &conninfo) : observer(conninfo, "-c statement_timeout=2min") {
    for (int i = 0; i < sessions_max; ++i)
        clients.push_back(std::make_unique<Connection>(conninfo, client_options));
}

void Episode::note(int session, const std::string &text) {
    trace_ += fmt::format("{:4} session {}: {}\n", operation_, session, text);
}

Reply Episode::statement(int session, const std::string &sql) {
    Reply reply = sessions_.client(session).run(sql);
    note(session, reply.is_accepted() ? sql : sql + ": " + reply.text());
    return reply;
}

void Episode::call(int session, Call call) {
    Model probe = model_;
    const bool has_lock_timeout = random_.chance(8);
    probe.start(session, call);
    if (const std::set<int> members = probe.deadlock(); !members.empty()) {
        // A third session that waits here might get its turn earlier when the deadlock is resolved.
        const std::vector<int> waiting = sessions_that(true);
        for (int other : waiting)
            if (!members.contains(other) || waiting.size() > 1)
                return;
    } else
        call.has_lock_timeout = has_lock_timeout;
    Connection &client = sessions_.client(session);
    if (!model_.is_aborted(session)) {
        client.require(fmt::format("SELECT set_config('stacksaga.clock_offset', '{} min', false),"
                                   "       set_config('lock_timeout', '{}', false)",
                                   now_ * 30, call.has_lock_timeout ? 20 : 0));
    }
    note(session, call.sql + (call.has_lock_timeout ? " (with a lock_timeout)" : ""));
    client.send(call.sql);
    model_.start(session, call);
    settle();
    check_tables();
}

void Episode::settle() {
    for (;;) {
        for (int session : sessions_that(true))
            if (model_.may_wait_on(session))
                find_out_whether_waiting(session);
        if (take_one())
            continue;
        const std::set<int> members = model_.deadlock();
        if (members.empty())
            break;
        take_victim(members);
    }
    for (int session : sessions_that(true))
        check_blocked(session);
}

/// What held up the call is gone: if the server says that it still waits for the same session, it
/// waits for the whole transaction. It may also wait for another one by now, which had the message
/// first.
void Episode::find_out_whether_waiting(int session) {
    Connection &client = sessions_.client(session);
    const int holder = sessions_.client(*model_.predict(session).blockers.begin()).pid();
    const auto end = Clock::now() + patience;
    std::set<int> blockers;
    while (!client.poll() && blockers.empty()) {
        blockers = read_blockers(session);
        if (Clock::now() > end)
            throw Disagreement(fmt::format("session {} neither waits nor has an answer", session));
    }
    model_.waits_on(session, !client.poll() && blockers.contains(holder));
}

/// The processes that the server says it waits for.
std::set<int> Episode::read_blockers(int session) {
    const Reply reply = sessions_.observer.require(
        fmt::format("SELECT unnest(pg_blocking_pids({}))", sessions_.client(session).pid()));
    std::set<int> pids;
    for (size_t i = 0; i < reply.rows.size(); ++i)
        pids.insert(number(reply, i, 0));
    return pids;
}

/// Takes an answer that the model expects now; false: no call should have one. Which of several
/// that wait for one message goes first is left open.
bool Episode::take_one() {
    const auto end = Clock::now() + patience;
    for (;;) {
        std::vector<int> ready;
        for (int session : sessions_that(true))
            if (!model_.predict(session).is_blocked())
                ready.push_back(session);
        if (ready.empty())
            return false;
        std::string wrong;
        size_t answers = 0;
        for (int session : ready) {
            const std::optional<Reply> &reply = sessions_.client(session).poll();
            if (!reply)
                continue;
            ++answers;
            const std::string mismatch = model_.mismatch(session, *reply);
            if (mismatch.empty()) {
                note(session, "  is answered " + reply->text());
                model_.answered(session, *sessions_.client(session).take(0));
                seen_blocked_.erase(session);
                return true;
            }
            wrong +=
                fmt::format("session {} is answered {}; {}\n", session, reply->text(), mismatch);
        }
        if (answers == ready.size())
            throw Disagreement(wrong);
        if (Clock::now() > end)
            throw Disagreement(
                fmt::format("session {} should have an answer", fmt::join(ready, " or ")));
        sessions_.client(ready.front()).wait(answers == 0 && ready.size() == 1 ? 100 : 1);
    }
}

/// One of the calls is refused. The others may have had their answers before it is seen here.
void Episode::take_victim(const std::set<int> &members) {
    const auto end = Clock::now() + patience;
    while (Clock::now() < end) {
        size_t others = 0;
        for (int session : members) {
            Connection &client = sessions_.client(session);
            client.wait(1);
            const std::optional<Reply> &reply = client.poll();
            if (reply && reply->sqlstate != "40P01")
                ++others;
            if (!reply || reply->sqlstate != "40P01")
                continue;
            note(session, "  is answered " + client.take(0)->text());
            model_.cancelled(session);
            seen_blocked_.erase(session);
            return;
        }
        if (others == members.size())
            break;
    }
    throw Disagreement("a deadlock should be resolved by 40P01");
}

/// The server says that it waits for those for whom it should.
void Episode::check_blocked(int session) {
    Connection &client = sessions_.client(session);
    const std::set<int> blockers = model_.predict(session).blockers;
    const auto end = Clock::now() + patience;
    for (;;) {
        if (client.poll())
            throw Disagreement(fmt::format("session {} should wait for {}, and is answered {}",
                                           session, fmt::join(blockers, ", "),
                                           client.poll()->text()));
        if (const auto seen = seen_blocked_.find(session);
            seen != seen_blocked_.end() && seen->second == blockers)
            return;
        const std::set<int> seen = read_blockers(session);
        if (std::ranges::all_of(blockers, [&](int blocker) {
                return seen.contains(sessions_.client(blocker).pid());
            })) {
            note(session, fmt::format("  waits for {}", fmt::join(blockers, ", ")));
            seen_blocked_[session] = blockers;
        } else if (Clock::now() > end)
            throw Disagreement(
                fmt::format("session {} should wait for {}", session, fmt::join(blockers, ", ")));
    }
}

// Sweeps.

Episode::Swept Episode::read_swept(Connection &connection) {
    const Reply reply = connection.require(fmt::format(
        "SELECT 'key', key, sweep_at FROM stacksaga.idempotency_key WHERE scope = '{0}' UNION ALL "
        "SELECT 'message', message_id, expires_at FROM stacksaga.accepted_message"
        " WHERE consumer = '{0}'",
        scope()));
    Swept swept;
    for (size_t i = 0; i < reply.rows.size(); ++i)
        swept.emplace(Thing{reply.at(i, 0) == "key" ? Kind::key : Kind::message, *reply.at(i, 1)},
                      *reply.at(i, 2));
    return swept;
}

void Episode::sweep(int session, int rows_max) {
    // In a snapshot of its own it would not see what it removes.
    if (model_.is_aborted(session) || model_.is_read_only(session) ||
        model_.isolation(session) != Isolation::read_committed)
        return;
    Connection &client = sessions_.client(session);
    const Swept before = read_swept(client);
    client.require(fmt::format("SET stacksaga.clock_offset = '{} min'", now_ * 30));
    const Call call{.function = Function::sweep, .now = now_};
    model_.start(session, call);
    const Reply reply = client.run(fmt::format("SELECT stacksaga.expire_dedupe({})", rows_max));
    const Swept after = read_swept(client);
    std::set<Thing> removed, touched;
    for (const auto &[thing, at] : before)
        if (const auto left = after.find(thing); left == after.end())
            removed.insert(thing);
        else if (left->second != at)
            touched.insert(thing);
    std::string list;
    for (const Thing &thing : removed)
        list += ", " + name_of(thing);
    note(session, fmt::format("expire_dedupe({}) at {}: {}{}", rows_max, now_, reply.text(), list));
    if (!reply.is_accepted() || number(reply, 0, 0) != static_cast<int>(removed.size()) ||
        number(reply, 0, 0) > rows_max)
        throw Disagreement(fmt::format("a sweep that removed {} rows is answered {}",
                                       removed.size(), reply.text()));
    model_.swept(session, removed, touched);
    settle();
    check_tables();
}

// Looks.

namespace {

std::string state_of(const Table &rows, const Thing &thing, int now) {
    const auto found = rows.find(thing);
    if (found == rows.end())
        return "absent";
    const auto &row = std::get<KeyRow>(found->second);
    if (row.completed_at)
        return row.has_expired(now) ? "expired" : "completed";
    return row.lease_until > now ? "in_progress" : "abandoned";
}

} // namespace

/// A session sees the state of a key that it has begun itself, be its row written or not.
void Episode::look(int session) {
    if (model_.is_aborted(session))
        return;
    Connection &client = sessions_.client(session);
    client.require(fmt::format("SET stacksaga.clock_offset = '{} min'", now_ * 30));
    const Thing thing = any_thing(Kind::key);
    const Reply reply =
        statement(session, fmt::format("SELECT state FROM stacksaga.dedupe_state('{}', '{}')"
                                       " WHERE rung = 'idempotency_key'",
                                       scope(), thing.name));
    if (reply.sqlstate == "40001" && model_.isolation(session) == Isolation::serializable) {
        model_.fail(session);
        return settle();
    }
    const std::string seen = reply.rows.empty() ? "absent" : reply.at(0, 0).value_or("NULL");
    const std::string expected = state_of(model_.visible(session), thing, now_);
    if (!reply.is_accepted() || seen != expected)
        throw Disagreement(fmt::format("{} should be {}, and its state is {}", name_of(thing),
                                       expected, reply.is_accepted() ? seen : reply.text()));
}

// Tables.

Table Episode::read_tables() {
    const auto half_hours = [&](const char *column) {
        return fmt::format("round(extract(epoch FROM {} - '{}'::timestamptz) / 1800)::integer",
                           column, base_);
    };
    Table table;
    const Reply keys = sessions_.observer.require(fmt::format(
        "SELECT key, attempt, lease, {}, extract(epoch FROM lease_length)::integer / 1800,"
        "       extract(epoch FROM retention)::integer / 1800, {}, encode(fingerprint, 'hex'),"
        "       recovery_point, response"
        "  FROM stacksaga.idempotency_key WHERE scope = '{}'",
        half_hours("lease_until"), half_hours("completed_at"), scope()));
    for (size_t i = 0; i < keys.rows.size(); ++i) {
        KeyRow row{.attempt = number(keys, i, 1),
                   .lease = std::stoll(*keys.at(i, 2)),
                   .lease_until = number(keys, i, 3),
                   .lease_length = number(keys, i, 4),
                   .retention = number(keys, i, 5),
                   .completed_at = std::nullopt,
                   .request = optional_text(keys, i, 7),
                   .recovery_point = optional_text(keys, i, 8),
                   .response = optional_text(keys, i, 9)};
        if (row.request)
            row.request = requests_by_fingerprint_[*row.request];
        if (keys.at(i, 6)) {
            row.completed_at = number(keys, i, 6);
            row.lease_until = 0;
        }
        table.emplace(Thing{Kind::key, *keys.at(i, 0)}, row);
    }
    const Reply rest = sessions_.observer.require(
        fmt::format("SELECT 'message', message_id, {0}, NULL::bigint, NULL::text"
                    "  FROM stacksaga.accepted_message WHERE consumer = '{1}' UNION ALL "
                    "SELECT 'producer', split_part(producer, '.', 2), epoch, sequence, NULL"
                    "  FROM stacksaga.producer_sequence WHERE producer LIKE '{1}.%' UNION ALL "
                    "SELECT 'value', key, version, NULL, value::text"
                    "  FROM stacksaga.versioned_value WHERE scope = '{1}'",
                    half_hours("expires_at"), scope()));
    for (size_t i = 0; i < rest.rows.size(); ++i) {
        const std::string &kind = *rest.at(i, 0), &name = *rest.at(i, 1);
        if (kind == "message")
            table.emplace(Thing{Kind::message, name}, MessageRow{number(rest, i, 2)});
        else if (kind == "producer")
            table.emplace(Thing{Kind::producer, name},
                          ProducerRow{number(rest, i, 2), number(rest, i, 3)});
        else
            table.emplace(Thing{Kind::value, name},
                          ValueRow{number(rest, i, 2), optional_text(rest, i, 4)});
    }
    return table;
}

void Episode::check_tables() {
    if (model_.commits() == checked_commits_)
        return;
    checked_commits_ = model_.commits();
    const Table table = read_tables();
    const Table &expected = model_.committed();
    for (const auto &[thing, row] : expected)
        if (const auto found = table.find(thing); found == table.end())
            throw Disagreement(fmt::format("{} is not in its table", name_of(thing)));
        else if (!(found->second == row))
            throw Disagreement(fmt::format("{} should be {}\nand is {}", name_of(thing),
                                           text_of(row), text_of(found->second)));
    for (const auto &[thing, row] : table)
        if (!expected.contains(thing))
            throw Disagreement(fmt::format("{} is in its table: {}", name_of(thing), text_of(row)));
}

} // namespace stacksaga::property::keys
