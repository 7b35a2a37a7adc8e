// The generator of an episode: which session does what next, and the end.
#include "episode.hpp"

#include "calls.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::keys {

namespace {

constexpr int operations_min = 40, operations_max = 120;
// Sweeps may leave rows for another one, which the next minutes allow.
constexpr int sweeps_max = 8;

} // namespace

Episode::Episode(Sessions &sessions, uint64_t seed, int number)
    : sessions_(sessions), number_(number), random_(seed, {static_cast<uint64_t>(number)}),
      count_(random_.between(2, sessions_max)), model_(count_), things_(random_.between(1, 2)) {}

std::optional<std::string> Episode::run() {
    try {
        set_up();
        const int operations = random_.between(operations_min, operations_max);
        while (operation_ < operations)
            operate();
        drain();
        return std::nullopt;
    } catch (const std::exception &error) {
        return fmt::format("{}\n{}", error.what(), model_.describe());
    }
}

void Episode::set_up() {
    base_ = *sessions_.observer.require("SELECT clock_timestamp()").at(0, 0);
    for (const Request &request : requests) {
        const std::string fingerprint =
            *sessions_.observer
                 .require(
                     fmt::format("SELECT encode(stacksaga.fingerprint('{}'), 'hex')", request.text))
                 .at(0, 0);
        const auto [known, is_new] =
            requests_by_fingerprint_.emplace(fingerprint, request.canonical);
        if (!is_new && known->second != request.canonical)
            throw Disagreement("different requests have the same fingerprint");
    }
    if (requests_by_fingerprint_.size() != 3)
        throw Disagreement("equal requests have different fingerprints");
}

std::vector<int> Episode::sessions_that(bool wait) const {
    std::vector<int> found;
    for (int i = 0; i < count_; ++i)
        if (model_.is_waiting(i) == wait)
            found.push_back(i);
    return found;
}

Thing Episode::any_thing(Kind kind) {
    return {kind, fmt::format("k{}", random_.between(1, things_))};
}

void Episode::operate() {
    ++operation_;
    const int dice = random_.below(100);
    if (dice < 8) {
        now_ += 2 * random_.one_of({1, 1, 2, 4, 8, 20});
        trace_ += fmt::format("{:4} time is {}\n", operation_, now_);
        return;
    }
    if (const std::vector<int> waiting = sessions_that(true); dice < 13 && !waiting.empty())
        return interrupt(waiting[random_.next() % waiting.size()]);
    const std::vector<int> free = sessions_that(false);
    if (free.empty())
        return interrupt(random_.below(count_));
    const int session = free[random_.next() % free.size()];
    const bool is_open = model_.is_in_transaction(session);
    if (is_open && !model_.is_aborted(session) && random_.chance(25))
        if (const std::optional<Thing> key = begun_by(session))
            return random_.chance(50) ? use_savepoint(session)
                                      : call(session, make_answer_to(*key));
    if (dice < 14)
        cut(session);
    else if (dice < 19)
        sweep(session, random_.one_of({1, 2, 1000, 1000}));
    else if (dice < 22)
        look(session);
    else if (dice < 50 && !is_open)
        begin_transaction(session);
    else if (dice < 34 && is_open)
        end_transaction(session);
    else if (dice < 46 && is_open)
        use_savepoint(session);
    else if (model_.is_aborted(session) && random_.chance(80))
        random_.chance(50) ? end_transaction(session) : use_savepoint(session);
    else
        call(session, make_call(session));
}

/// A key that the session has begun in its transaction, and neither finished nor released: its row
/// may be still to be written.
std::optional<Thing> Episode::begun_by(int session) const {
    for (const auto &[thing, row] : model_.visible(session)) {
        const auto *key = std::get_if<KeyRow>(&row);
        const auto before = model_.committed().find(thing);
        if (key != nullptr && !key->completed_at &&
            (before == model_.committed().end() ||
             std::get<KeyRow>(before->second).lease != key->lease))
            return thing;
    }
    return std::nullopt;
}

/// Ends a call that waits.
void Episode::interrupt(int session) {
    Connection &client = sessions_.client(session);
    if (random_.chance(40))
        return cut(session);
    note(session, "its call is cancelled");
    client.cancel();
    const std::optional<Reply> reply = client.take(30'000);
    if (!reply || reply->sqlstate != "57014")
        throw Disagreement("a cancelled call is answered " + (reply ? reply->text() : "nothing"));
    model_.cancelled(session);
    seen_blocked_.erase(session);
    settle();
}

/// The session breaks, by its client or by the server.
void Episode::cut(int session) {
    Connection &client = sessions_.client(session);
    note(session, "the session is cut");
    // A server that waits for a lock does not notice that its client is gone.
    if (model_.is_waiting(session) || random_.chance(30))
        sessions_.observer.require(fmt::format("SELECT pg_terminate_backend({})", client.pid()));
    const int pid = client.pid();
    client.cut();
    await_end_of(sessions_.observer, pid);
    if (model_.is_waiting(session))
        model_.cancelled(session);
    model_.roll_back(session);
    seen_blocked_.erase(session);
    client.open();
    settle();
    check_tables();
}

// The calls.

Call Episode::make_call(int session) {
    const int dice = random_.below(100);
    Call c{.function = Function::begin, .now = now_};
    c.retention = default_retention;
    const bool names_retention = random_.chance(70);
    if (names_retention)
        c.retention = random_.one_of({9, 15, 15, 41});
    if (dice < 4 && !model_.is_read_only(session)) // else either refusal would be right
        return make_invalid();
    if (dice < 36) {
        c.thing = any_thing(Kind::key);
        const Request *request = random_.chance(85)   ? &requests[random_.below(3)]
                                 : random_.chance(60) ? &requests[random_.between(3, 4)]
                                                      : nullptr;
        if (request != nullptr)
            c.request = request->canonical;
        c.lease_length = random_.one_of({1, 3, 5, 9});
        c.waits = random_.chance(50);
        c.sql = sql_of(c, scope(), request != nullptr ? request->text : nullptr, names_retention);
        return c;
    }
    if (dice < 70) {
        const Call answer = make_answer(any_thing(Kind::key));
        c = answer;
    } else if (dice < 80) {
        c.function = Function::accept_message;
        c.thing = any_thing(Kind::message);
    } else if (dice < 88) {
        c.function = Function::accept_sequence;
        c.thing = any_thing(Kind::producer);
        const Table rows = model_.visible(session);
        const auto found = rows.find(c.thing);
        const ProducerRow at =
            found != rows.end() ? std::get<ProducerRow>(found->second) : ProducerRow{1, 0};
        c.epoch = std::max(0LL, at.epoch + random_.one_of({0, 0, 0, 0, 1, -1}));
        c.sequence = c.epoch == at.epoch
                         ? std::max(1LL, at.sequence + random_.one_of({1, 1, 1, 0, 2}))
                         : random_.one_of({1, 1, 2});
    } else if (dice < 97 || model_.isolation(session) != Isolation::read_committed) {
        c.function = Function::compare_and_set;
        c.thing = any_thing(Kind::value);
        const Table rows = model_.visible(session);
        const auto found = rows.find(c.thing);
        if (found != rows.end() && random_.chance(80))
            c.version =
                std::get<ValueRow>(found->second).version + random_.one_of({0, 0, 0, -1, 1});
        if (!c.version || random_.chance(75))
            c.text = fmt::format("{}", random_.below(10));
    } else {
        c.function = Function::read_value;
        c.thing = any_thing(Kind::value);
    }
    c.now = now_;
    c.sql = sql_of(c, scope(), nullptr, names_retention);
    return c;
}

/// Under the latest lease mostly, else under an older one or none that was ever given.
Call Episode::make_answer(const Thing &thing) {
    Call c{.function = random_.one_of(
               {Function::finish, Function::finish, Function::checkpoint, Function::release}),
           .thing = thing,
           .now = now_,
           .lease = 4711};
    if (const std::vector<long long> &leases = model_.leases(thing);
        !leases.empty() && random_.chance(95))
        c.lease = random_.chance(75) ? leases.back() : leases[random_.next() % leases.size()];
    if (c.function == Function::checkpoint)
        c.text = fmt::format("point {}", random_.below(3));
    else if (c.function == Function::finish && random_.chance(90))
        c.text = fmt::format("{}", random_.below(2));
    return c;
}

Call Episode::make_answer_to(const Thing &key) {
    Call c = make_answer(key);
    c.sql = sql_of(c, scope(), nullptr, false);
    return c;
}

Call Episode::make_invalid() {
    const std::vector<Invalid> &calls = invalid_calls();
    const Invalid &chosen = calls[random_.next() % calls.size()];
    return {.function = Function::invalid,
            .now = now_,
            .sql = "SELECT stacksaga." + fmt::format(fmt::runtime(chosen.sql), scope()),
            .refusal = chosen.sqlstate};
}

// The end.

void Episode::drain() {
    trace_ += fmt::format("{:4} no new calls\n", operation_);
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < count_; ++i)
            if (!model_.is_waiting(i) && model_.is_in_transaction(i)) {
                end_transaction(i);
                any = true;
            }
    }
    check_tables();
    finish_keys();
    expire_all();
}

/// Whatever has happened, each key can be brought to an end: by a resume, or anew.
void Episode::finish_keys() {
    now_ += 200;
    for (int i = 1; i <= things_; ++i) {
        const Thing thing{Kind::key, fmt::format("k{}", i)};
        Call begin{.function = Function::begin, .thing = thing, .now = now_};
        begin.request = "a";
        const auto row = model_.committed().find(thing);
        if (row != model_.committed().end())
            begin.request = std::get<KeyRow>(row->second).request;
        const Request *request = nullptr;
        for (const Request &r : requests)
            if (begin.request == r.canonical)
                request = &r;
        begin.lease_length = 1;
        begin.retention = 9;
        begin.sql = sql_of(begin, scope(), request != nullptr ? request->text : nullptr, true);
        call(0, begin);
        const auto begun = model_.committed().find(thing);
        if (begun == model_.committed().end())
            throw Disagreement(name_of(thing) + " is not there after its begin");
        if (const KeyRow &key = std::get<KeyRow>(begun->second); !key.completed_at) {
            Call finish{
                .function = Function::finish, .thing = thing, .now = now_, .lease = key.lease};
            finish.text = "7";
            finish.sql = sql_of(finish, scope(), nullptr, false);
            call(0, finish);
            call(0, begin); // a replay
        }
    }
}

/// In the end nothing stays that has a retention, but a key in progress does.
void Episode::expire_all() {
    const Thing kept{Kind::key, "kept"};
    Call begin{.function = Function::begin, .thing = kept, .now = now_};
    begin.lease_length = begin.retention = 1;
    begin.sql = sql_of(begin, scope(), nullptr, true);
    call(0, begin);
    const auto is_left = [&] {
        return std::ranges::any_of(model_.committed(), [&](const auto &entry) {
            return entry.first != kept &&
                   (entry.first.kind == Kind::key || entry.first.kind == Kind::message);
        });
    };
    for (int i = 0; i < sweeps_max && is_left(); ++i) {
        now_ += 400;
        sweep(0, 1000);
    }
    if (is_left())
        throw Disagreement("sweeps leave what has expired");
    Call release{.function = Function::release, .thing = kept, .now = now_};
    release.lease = model_.leases(kept).back();
    release.sql = sql_of(release, scope(), nullptr, false);
    call(0, release);
}

} // namespace stacksaga::property::keys
