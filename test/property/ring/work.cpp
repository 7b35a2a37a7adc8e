// What an episode does with the sessions: calls and what they leave, transactions that work in
// slots, and what readers are told.
#include "episode.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stacksaga::property::ring {

namespace {

const std::string options = "-c statement_timeout=2min -c stacksaga.region=property";

long long number(const Reply &reply, size_t row, size_t column) {
    return std::stoll(reply.at(row, column).value_or("0"));
}

/// The elements of an array of booleans.
std::vector<bool> booleans(const std::string &text) {
    std::vector<bool> values;
    for (char c : text)
        if (c == 't' || c == 'f')
            values.push_back(c == 't');
    return values;
}

} // namespace

Sessions::Sessions(const std::string &conninfo)
    : caller(conninfo, options), observer(conninfo, options) {
    for (int i = 0; i < workers_max; ++i)
        workers.push_back(std::make_unique<Connection>(conninfo, options));
}

std::string Episode::instant(int at) const {
    return fmt::format("'{}'::timestamptz + interval '{} min'", base_, at * 30);
}

void Episode::set_clock(Connection &session) {
    session.require(fmt::format("SELECT set_config('stacksaga.clock_offset', '{} s', false),"
                                "       set_config('stacksaga.cluster', 'e{}', false)",
                                offset_ + hour_ * 3600LL, number_));
}

SlotSet Episode::busy() const {
    SlotSet slots;
    for (const Worker &worker : workers_)
        slots.insert(worker.locked.begin(), worker.locked.end());
    return slots;
}

Ring Episode::read(Connection &session) {
    const auto half_hours = [&](const char *column) {
        return fmt::format("round(extract(epoch FROM {} - '{}') / 1800)", column, base_);
    };
    Ring ring;
    ring.settings = ring_.settings;
    const Reply slots = session.require(fmt::format(
        "SELECT owner, epoch, next_owner, {} FROM stacksaga.slot WHERE ring_id = {} ORDER BY slot",
        half_hours("next_from"), ring_id_));
    if (slots.rows.size() != slot_count)
        throw Disagreement(fmt::format("the ring has {} slots", slots.rows.size()));
    for (size_t i = 0; i < slot_count; ++i)
        ring.slots[i] = {.owner = number(slots, i, 0),
                         .epoch = number(slots, i, 1),
                         .next = number(slots, i, 2),
                         .next_from = static_cast<int>(number(slots, i, 3))};
    const Reply nodes = session.require(fmt::format(
        "SELECT node, kind, agent, incarnation, draining, {}, {}, {}, progress IS NOT NULL"
        "  FROM stacksaga.node WHERE ring_id = {}",
        half_hours("registered_at"), half_hours("heartbeat_at"), half_hours("checkpoint_at"),
        ring_id_));
    for (size_t i = 0; i < nodes.rows.size(); ++i)
        ring.nodes.emplace(*nodes.at(i, 0),
                           Node{.name = *nodes.at(i, 0),
                                .kind = *nodes.at(i, 1),
                                .agent = nodes.at(i, 2).value_or(""),
                                .incarnation = number(nodes, i, 3),
                                .draining = nodes.at(i, 4) == "t",
                                .registered_at = static_cast<int>(number(nodes, i, 5)),
                                .heartbeat_at = static_cast<int>(number(nodes, i, 6)),
                                .checkpoint_at = static_cast<int>(number(nodes, i, 7)),
                                .has_confirmed = nodes.at(i, 8) == "t"});
    const Reply windows = session.require(
        fmt::format("SELECT {}, {}, agent FROM stacksaga.token_window WHERE ring_id = {}",
                    half_hours("window_start"), half_hours("window_end"), ring_id_));
    for (size_t i = 0; i < windows.rows.size(); ++i)
        ring.windows.insert({static_cast<int>(number(windows, i, 0)),
                             static_cast<int>(number(windows, i, 1)), *windows.at(i, 2)});
    const Reply epoch = session.require(
        fmt::format("SELECT max(epoch) FROM stacksaga.ring_epoch WHERE ring_id = {}", ring_id_));
    ring.epoch = number(epoch, 0, 0);
    return ring;
}

/// Nodes that are dead for long may have been removed by any call.
void Episode::check_nodes(Ring &expected, const Ring &after) const {
    for (const auto &[name, node] : ring_.nodes)
        if (ring_.may_be_removed(node, now()) && !after.nodes.contains(name))
            expected.nodes.erase(name);
    for (const auto &[name, node] : expected.nodes)
        if (const auto found = after.nodes.find(name); found == after.nodes.end())
            throw Disagreement(fmt::format("node {} is not there", name));
        else if (!(found->second == node))
            throw Disagreement(
                fmt::format("node should be {}\nand is {}", text_of(node), text_of(found->second)));
    for (const auto &[name, node] : after.nodes)
        if (!expected.nodes.contains(name))
            throw Disagreement(fmt::format("node {} is there", name));
    if (expected.windows != after.windows)
        throw Disagreement("the windows are not those that were published");
}

Reply Episode::perform(const std::string &sql, const std::string &sqlstate, Ring expected,
                       const Check &check) {
    set_clock(sessions_.caller);
    Reply reply = sessions_.caller.run(sql);
    note(fmt::format("{}: {}", sql.size() < 300 ? sql : sql.substr(0, 300) + "...", reply.text()));
    if (reply.sqlstate != sqlstate)
        throw Disagreement("it should be " + (sqlstate.empty() ? "accepted" : sqlstate));
    if (!sqlstate.empty() && committed_) {
        end_transaction(false); // it has failed
        return reply;
    }
    const Ring after = read(sessions_.caller);
    // A registration says itself what is right of its node.
    if (sql.find("register_node") != std::string::npos && sqlstate.empty())
        for (const auto &[name, node] : after.nodes)
            if (node.incarnation > newest_incarnation_)
                expected.nodes.insert_or_assign(name, node);
    check_nodes(expected, after);
    const SlotSet in_use = busy();
    Ring before = ring_;
    before.settings = expected.settings;
    const Change change{before, after, now(), in_use};
    check_epochs(change);
    sqlstate.empty() ? check(change) : check_slots(change, ring_.slots);
    if (committed_)
        for (int i = 0; i < slot_count; ++i)
            if (after.slots[static_cast<size_t>(i)].owner !=
                ring_.slots[static_cast<size_t>(i)].owner)
                taken_in_transaction_.insert(i);
    ring_ = after;
    ring_.settings = expected.settings;
    return reply;
}

// The caller's transactions: what it takes over in one is locked until its end.

void Episode::begin_transaction() {
    note("BEGIN");
    sessions_.caller.require("BEGIN");
    committed_ = ring_;
}

void Episode::end_transaction(bool commits) {
    note(commits ? "COMMIT" : "ROLLBACK");
    sessions_.caller.require(commits ? "COMMIT" : "ROLLBACK");
    if (!commits) {
        const Settings settings = ring_.settings;
        ring_ = *committed_;
        ring_.settings = settings;
    }
    committed_.reset();
    taken_in_transaction_.clear();
    const Ring after = read(sessions_.observer);
    check_slots({ring_, after, now(), {}}, ring_.slots);
    Ring expected = ring_;
    check_nodes(expected, after);
    ring_ = after;
}

// Work in slots.

void Episode::work() {
    Worker &worker = workers_[random_.next() % workers_.size()];
    const Holder holder = random_.chance(85) && any_node("worker") != nullptr
                              ? Holder{any_node("worker")->name, any_node("worker")->incarnation}
                              : any_holder();
    const Ring &ring = committed();
    SlotSet wanted;
    for (int i = 0; i < slot_count; ++i)
        if (random_.chance(ring.slots[static_cast<size_t>(i)].owner == holder.incarnation ? 6 : 2))
            wanted.insert(i);
    if (wanted.empty())
        wanted.insert(random_.below(slot_count));
    // With the epochs that it read before, or some that are older.
    const bool names_epochs = random_.chance(40);
    std::vector<long long> epochs;
    for (int i : wanted)
        epochs.push_back(ring.slots[static_cast<size_t>(i)].epoch - (random_.chance(85) ? 0 : 1));
    if (!worker.is_open && random_.chance(35)) {
        worker.session->require(random_.chance(70) ? "BEGIN"
                                                   : "BEGIN ISOLATION LEVEL REPEATABLE READ");
        worker.is_open = true;
    }
    set_clock(*worker.session);
    const std::string sql =
        fmt::format("SELECT property.lock_slots({}, {}, '{{{}}}', {})", ring_id_,
                    holder.incarnation, fmt::join(wanted, ","),
                    names_epochs ? fmt::format("'{{{}}}'", fmt::join(epochs, ",")) : "NULL");
    const Reply reply = worker.session->require(sql);
    note(fmt::format("{}{} for {}: {}", worker.is_open ? "in a transaction: " : "", sql,
                     holder.node, reply.text()));
    const std::vector<bool> owned = booleans(*reply.at(0, 0));
    size_t place = 0;
    for (int i : wanted) {
        const bool is_locked = taken_in_transaction_.contains(i);
        const bool is_right =
            !is_locked && ring.may_work(holder.incarnation, i, now()) &&
            (!names_epochs || epochs[place] == ring.slots[static_cast<size_t>(i)].epoch);
        if (owned.at(place) != is_right)
            throw Disagreement(
                fmt::format("{} {} work in slot {}", holder.node, is_right ? "may" : "may not", i));
        if (is_right)
            for (const Worker &other : workers_)
                if (const auto found = other.works.find(i);
                    found != other.works.end() && found->second != holder.incarnation)
                    throw Disagreement(fmt::format("two nodes work in slot {}", i));
        if (worker.is_open && !is_locked)
            worker.locked.insert(i);
        if (worker.is_open && is_right)
            worker.works[i] = holder.incarnation;
        ++place;
    }
}

void Episode::end_work(Worker &worker, int dice) {
    if (!worker.is_open)
        return;
    note(dice < 50 ? "COMMIT of a worker" : dice < 90 ? "ROLLBACK of a worker" : "a worker is cut");
    if (dice < 90)
        worker.session->require(dice < 50 ? "COMMIT" : "ROLLBACK");
    else {
        const int pid = worker.session->pid();
        worker.session->cut();
        await_end_of(sessions_.observer, pid);
        worker.session->open();
    }
    worker = {.session = worker.session};
}

void Episode::end_all_work() {
    for (Worker &worker : workers_)
        end_work(worker, random_.below(90));
}

/// A node claims retries in the slots in which it may work, and nowhere else. It has no lock on
/// them.
void Episode::claim(const Node &node) {
    Connection &session = sessions_.observer;
    set_clock(session);
    if (!has_retries_)
        session.require(fmt::format("CALL property.make_retries('e{}')", number_));
    has_retries_ = true;
    session.require("BEGIN");
    const Reply claimed = session.require(
        fmt::format("SELECT DISTINCT stacksaga.slot(stacksaga.token_uuid(saga_id), {})"
                    "  FROM stacksaga.claim_steps('work', '{}', 1000) ORDER BY 1",
                    slot_count, node.name));
    session.require("ROLLBACK");
    const Reply all =
        session.require(fmt::format("SELECT DISTINCT stacksaga.slot(token, {}) FROM stacksaga.sagas"
                                    " WHERE region = 'property' AND cluster = 'e{}' ORDER BY 1",
                                    slot_count, number_));
    std::vector<long long> expected, found;
    for (size_t i = 0; i < all.rows.size(); ++i)
        if (ring_.may_work(node.incarnation, static_cast<int>(number(all, i, 0)), now()))
            expected.push_back(number(all, i, 0));
    for (size_t i = 0; i < claimed.rows.size(); ++i)
        found.push_back(number(claimed, i, 0));
    note(fmt::format("{} claims in slots {}", node.name, fmt::join(found, ",")));
    if (found != expected)
        throw Disagreement(fmt::format("it should claim in slots {}", fmt::join(expected, ",")));
}

// Readers.

void Episode::read_views() {
    Connection &session = sessions_.caller;
    set_clock(session);
    const Reply states = session.require(fmt::format(
        "SELECT node, state FROM stacksaga.nodes WHERE region = 'property' AND cluster = 'e{}'",
        number_));
    size_t listed = 0;
    for (const auto &[name, node] : ring_.nodes)
        listed += ring_.may_be_removed(node, now()) ? 0 : 1;
    if (states.rows.size() != listed)
        throw Disagreement("the view nodes should have each node that is not removed");
    for (size_t i = 0; i < states.rows.size(); ++i)
        if (const State state = ring_.state_of(ring_.nodes.at(*states.at(i, 0)), now());
            states.at(i, 1) != name_of(state))
            throw Disagreement(fmt::format("{} is {}, and should be {}", *states.at(i, 0),
                                           *states.at(i, 1), name_of(state)));
    const Reply owners = session.require(fmt::format(
        "SELECT node, epoch FROM stacksaga.ring_slots('property', 'e{}') ORDER BY slot", number_));
    for (size_t i = 0; i < owners.rows.size(); ++i) {
        const Node *owner = ring_.find(ring_.slots[i].owner);
        if (owners.at(i, 0).value_or("") != (owner != nullptr ? owner->name : "") ||
            number(owners, i, 1) != ring_.slots[i].epoch)
            throw Disagreement(
                fmt::format("ring_slots() has another owner of slot {}: {}", i, owners.text()));
    }
    for (const auto &[name, node] : ring_.nodes)
        if (node.is_worker())
            read_ranges(node);
    if (const Node *agent = any_node("agent")) {
        const int start =
            hour_ / ring_.settings.window_length * ring_.settings.window_length * hours;
        const Reply slots = session.require(fmt::format(
            "SELECT slot FROM stacksaga.agent_slots('{}', {})", agent->name, instant(start)));
        SlotSet found;
        for (size_t i = 0; i < slots.rows.size(); ++i)
            found.insert(static_cast<int>(number(slots, i, 0)));
        if (found != ring_.slots_of_agent(agent->name, start))
            throw Disagreement(
                fmt::format("agent_slots() of {} are {}", agent->name, fmt::join(found, ",")));
    }
    note("readers are told what is right");
}

/// The ranges of a node are the slots in which it may work.
void Episode::read_ranges(const Node &node) {
    const Reply ranges = sessions_.caller.require(fmt::format(
        "SELECT stacksaga.slot(range_start, {0}), stacksaga.slot(range_end, {0}), epoch,"
        "       round(extract(epoch FROM valid_from - '{1}') / 1800),"
        "       round(extract(epoch FROM valid_until - '{1}') / 1800)"
        "  FROM stacksaga.node_ranges('{2}')",
        slot_count, base_, node.name));
    SlotSet found, expected;
    const int start = hour_ / ring_.settings.window_length * ring_.settings.window_length;
    for (size_t i = 0; i < ranges.rows.size(); ++i) {
        long long epoch = 0;
        for (auto slot = number(ranges, i, 0); slot <= number(ranges, i, 1); ++slot) {
            found.insert(static_cast<int>(slot));
            epoch = std::max(epoch, ring_.slots[static_cast<size_t>(slot)].epoch);
        }
        if (epoch != number(ranges, i, 2) || number(ranges, i, 3) != start * hours ||
            number(ranges, i, 4) != (start + ring_.settings.window_length) * hours)
            throw Disagreement(fmt::format("a range of {} has another epoch or window: {}",
                                           node.name, ranges.text()));
    }
    for (int i = 0; i < slot_count; ++i)
        if (ring_.may_work(node.incarnation, i, now()))
            expected.insert(i);
    if (found != expected)
        throw Disagreement(fmt::format("{} has the slots {}, and should have {}", node.name,
                                       fmt::join(found, ","), fmt::join(expected, ",")));
}

} // namespace stacksaga::property::ring
