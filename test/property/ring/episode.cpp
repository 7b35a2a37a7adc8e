// The generator of an episode: what happens next, the calls of nodes, and the end.
#include "episode.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::ring {

namespace {

constexpr int operations_min = 40, operations_max = 110;
// Each hour a sweep takes at least a quarter of what a dead owner left.
constexpr int recovery_hours = 40;

} // namespace

Episode::Episode(Sessions &sessions, uint64_t seed, int number)
    : sessions_(sessions), number_(number), random_(seed, {static_cast<uint64_t>(number)}),
      has_agents_(random_.chance(40)) {
    for (const auto &session : sessions.workers)
        workers_.push_back({.session = session.get()});
}

std::optional<std::string> Episode::run() {
    try {
        set_up();
        const int operations = random_.between(operations_min, operations_max);
        while (operation_ < operations)
            operate();
        drain();
        return std::nullopt;
    } catch (const std::exception &error) {
        return fmt::format("{}\n{}", error.what(), ring_.describe(now()));
    }
}

std::string Episode::name(const std::string &node) const {
    return fmt::format("e{}.{}", number_, node);
}

void Episode::note(const std::string &text) {
    trace_ += fmt::format("{:4} hour {:3}  {}\n", operation_, hour_, text);
}

/// Hour 0 is some minutes after the start of a day, when windows of all lengths begin.
void Episode::set_up() {
    const Reply clock = sessions_.observer.require(
        "SELECT base, extract(epoch FROM base + interval '20 min' - t)::bigint"
        "  FROM clock_timestamp() AS t,"
        "       LATERAL (SELECT date_bin('1 day', t, '2000-01-01Z') + interval '1 day') AS b(base)");
    base_ = *clock.at(0, 0);
    offset_ = std::stoll(*clock.at(0, 1));
    ring_.settings.pauses = random_.chance(25);
    ring_id_ =
        std::stoi(*sessions_.caller
                       .require(fmt::format(
                           "SELECT stacksaga.create_ring('property', 'e{}', '1 hour', slots => {},"
                           " on_missing_window => '{}')",
                           number_, slot_count, ring_.settings.pauses ? "pause" : "keep"))
                       .at(0, 0));
    // Longer ones first: the three must increase.
    for (const auto &[setting, value] : std::initializer_list<std::pair<const char *, int>>{
             {"dead_after", ring_.settings.dead_after},
             {"suspect_after", ring_.settings.suspect_after},
             {"checkpoint_interval", ring_.settings.checkpoint_interval}})
        sessions_.caller.require(
            fmt::format("SELECT stacksaga.alter_ring('property', 'e{}', '{}', '{} hours')", number_,
                        setting, value));
    for (int count = random_.between(1, 4); count > 0; --count)
        register_node();
    if (random_.chance(30) || any_node("worker") == nullptr)
        return; // a ring without owners
    publish(make_window(0, "", all_slots()));
    for (const Holder &holder : std::vector<Holder>(holders_))
        beat(holder);
}

void Episode::operate() {
    ++operation_;
    const int dice = random_.below(100);
    if (dice < 14) {
        hour_ += random_.one_of({1, 1, 1, 1, 2, 2, 5, 12});
        note("time");
    } else if (dice < 17)
        committed_ ? end_transaction(random_.chance(60)) : begin_transaction();
    else if (dice < 25)
        register_node();
    else if (dice < 47)
        beat(any_holder());
    else if (dice < 50)
        confirm(any_holder());
    else if (dice < 54)
        drain_node(any_holder());
    else if (dice < 58)
        leave(any_holder());
    else if (dice < 69)
        publish();
    else if (dice < 71 && !committed_)
        alter();
    else if (dice < 74 && !committed_)
        beat_together();
    else if (dice < 86)
        work();
    else if (dice < 93)
        end_work(workers_[random_.next() % workers_.size()], random_.below(100));
    else if (dice < 98)
        read_views();
    else if (const Node *node = any_node("worker"); node != nullptr && !committed_)
        claim(*node);
}

// Nodes.

const Node *Episode::any_node(const std::string &kind) {
    std::vector<const Node *> found;
    for (const auto &[name, node] : ring_.nodes)
        if (kind.empty() || node.kind == kind)
            found.push_back(&node);
    return found.empty() ? nullptr : found[random_.next() % found.size()];
}

/// Of a name that is registered mostly, and mostly the present one.
Episode::Holder Episode::any_holder() {
    if (const Node *node = any_node(""); node != nullptr && random_.chance(88))
        return {node->name, node->incarnation};
    if (random_.chance(10))
        return {name("nobody"), 1};
    return holders_[random_.next() % holders_.size()];
}

std::string Episode::refusal_of(const Holder &holder) const {
    const auto found = ring_.nodes.find(holder.node);
    if (found == ring_.nodes.end())
        return "SG404";
    return found->second.incarnation == holder.incarnation ? "" : "SG412";
}

void Episode::register_node() {
    if (operation_ > 0 && random_.chance(12))
        return refuse_registration();
    if (random_.chance(8))
        return register_as(name("s1"), "standard");
    if (has_agents_ && random_.chance(30))
        return register_as(name(random_.one_of({"a1", "a2"})), "agent");
    register_as(name(fmt::format("n{}", random_.between(1, 5))), "worker");
}

void Episode::register_as(const std::string &node, const std::string &kind) {
    const Node *agent = kind == "worker" && random_.chance(25) ? any_node("agent") : nullptr;
    const bool is_named = agent != nullptr && !ring_.may_be_removed(*agent, now());
    const std::string named = is_named ? agent->name : "";
    const std::string sql =
        fmt::format("SELECT stacksaga.register_node('{}', 'property', 'e{}', '{}'{})", node,
                    number_, kind, named.empty() ? "" : fmt::format(", agent => '{}'", named));
    Ring expected = ring_;
    // A node that has been dead for long is removed first.
    std::erase_if(expected.nodes,
                  [&](const auto &entry) { return ring_.may_be_removed(entry.second, now()); });
    const auto older = expected.nodes.find(node);
    const long long older_incarnation =
        older != expected.nodes.end() ? older->second.incarnation : 0;
    Node made{.name = node,
              .kind = kind,
              .agent = named,
              .registered_at = now(),
              .heartbeat_at = now(),
              .checkpoint_at = now()};
    if (kind == "worker" && named.empty())
        made.agent = expected.agent_for(node, now());
    const Reply reply = perform(sql, "", expected, [&](const Change &c) {
        const auto found = c.after.nodes.find(node);
        if (found == c.after.nodes.end())
            throw Disagreement("node " + node + " is not there");
        made.incarnation = found->second.incarnation;
        if (made.incarnation <= newest_incarnation_)
            throw Disagreement("its incarnation is not a new one");
        if (!(found->second == made))
            throw Disagreement(
                fmt::format("it should be {}\nand is {}", text_of(made), text_of(found->second)));
        Ring before = c.before;
        before.nodes = c.after.nodes;
        if (older_incarnation != 0)
            before.inherit(older_incarnation, made.incarnation, now());
        const Change inherited{before, c.after, c.now, c.busy};
        made.is_worker() ? check_take_over(inherited, made) : check_slots(inherited, before.slots);
    });
    if (std::stoll(*reply.at(0, 0)) != made.incarnation)
        throw Disagreement("another incarnation is registered");
    newest_incarnation_ = made.incarnation;
    holders_.push_back({node, made.incarnation});
}

void Episode::refuse_registration() {
    struct Case {
        std::string arguments;
        const char *sqlstate;
    };
    const std::string here = fmt::format("'property', 'e{}'", number_);
    const Case cases[] = {{fmt::format("'worker-1', {}", here), "SG400"},
                          {fmt::format("'', {}", here), "SG400"},
                          {fmt::format("'{}', {}, 'boss'", name("n1"), here), "SG400"},
                          {fmt::format("'{}', {}, weight => 0", name("n1"), here), "SG400"},
                          {fmt::format("'{}', {}, agent => 'nobody'", name("n1"), here), "SG404"},
                          {fmt::format("'{}', 'property', 'nowhere'", name("n1")), "SG404"}};
    const Case &chosen = cases[random_.below(6)];
    if (const Node *node = any_node(""); node != nullptr && random_.chance(25)) {
        perform(fmt::format("SELECT stacksaga.register_node('{}')", node->name), "SG409", ring_,
                {});
        return;
    }
    perform(fmt::format("SELECT stacksaga.register_node({})", chosen.arguments), chosen.sqlstate,
            ring_, {});
}

void Episode::beat(const Holder &holder) {
    Ring expected = ring_;
    const std::string refusal = refusal_of(holder);
    if (refusal.empty())
        expected.nodes.at(holder.node).heartbeat_at = now();
    const Reply reply = perform(
        fmt::format(
            "SELECT state, epoch, checkpoint_requested FROM stacksaga.heartbeat_node('{}', {})",
            holder.node, holder.incarnation),
        refusal, expected, [&](const Change &c) {
            const Node &node = expected.nodes.at(holder.node);
            Ring before = c.before;
            before.nodes = expected.nodes;
            const Change beaten{before, c.after, c.now, c.busy};
            if (!node.is_worker())
                check_slots(beaten, before.slots);
            else if (node.draining)
                check_hand_over(beaten, node, false);
            else
                check_take_over(beaten, node);
        });
    if (!refusal.empty())
        return;
    const Node &node = ring_.nodes.at(holder.node);
    const bool is_asked = now() - node.checkpoint_at >= ring_.settings.checkpoint_interval * hours;
    const Reply right{.rows = {{name_of(ring_.state_of(node, now())),
                                fmt::format("{}", ring_.epoch), is_asked ? "t" : "f"}},
                      .sqlstate = {},
                      .message = {},
                      .detail = {}};
    if (reply.rows != right.rows)
        throw Disagreement("the answer should be " + right.text());
}

void Episode::confirm(const Holder &holder) {
    Ring expected = ring_;
    const std::string refusal = refusal_of(holder);
    if (refusal.empty()) {
        expected.nodes.at(holder.node).checkpoint_at = now();
        expected.nodes.at(holder.node).has_confirmed = true;
    }
    perform(fmt::format("SELECT stacksaga.acknowledge_checkpoint('{}', {}, '{{\"done\": 1}}')",
                        holder.node, holder.incarnation),
            refusal, expected, [](const Change &c) { check_slots(c, c.before.slots); });
}

void Episode::confirm_and_beat(const std::string &node) {
    const Holder holder{node, ring_.nodes.at(node).incarnation};
    confirm(holder);
    beat(holder);
}

void Episode::drain_node(const Holder &holder) {
    Ring expected = ring_;
    const std::string refusal = refusal_of(holder);
    if (refusal.empty())
        expected.nodes.at(holder.node).draining = true;
    perform(fmt::format("SELECT stacksaga.drain_node('{}', {})", holder.node, holder.incarnation),
            refusal, expected,
            [&](const Change &c) { check_hand_over(c, c.before.nodes.at(holder.node), false); });
}

void Episode::leave(const Holder &holder) {
    // A leaver tries for a second to get the slots that are in use.
    if (random_.chance(80))
        end_all_work();
    Ring expected = ring_;
    const std::string refusal = refusal_of(holder);
    if (refusal.empty())
        expected.nodes.erase(holder.node);
    perform(fmt::format("SELECT stacksaga.leave_ring('{}', {})", holder.node, holder.incarnation),
            refusal, expected,
            [&](const Change &c) { check_hand_over(c, c.before.nodes.at(holder.node), true); });
}

// The end.

void Episode::drain() {
    if (committed_)
        end_transaction(true);
    end_all_work();
    read_views();
    let_all_recover();
    if (random_.chance(30))
        race_for_slots();
}

/// Nobody publishes, and the nodes that beat take over everything; then a window is followed.
void Episode::let_all_recover() {
    for (const Holder &holder : std::vector<Holder>(holders_))
        if (refusal_of(holder).empty() && ring_.nodes.at(holder.node).draining)
            leave(holder);
    if (any_node("worker") == nullptr)
        register_as(name("n1"), "worker");
    const std::string survivor = any_node("worker")->name;
    const auto owns_all = [&] {
        return std::ranges::all_of(ring_.slots, [&](const Slot &s) {
            return s.owner == ring_.nodes.at(survivor).incarnation;
        });
    };
    for (int i = 0; i < recovery_hours && !owns_all(); ++i) {
        ++operation_;
        ++hour_;
        confirm_and_beat(survivor);
    }
    if (!owns_all())
        throw Disagreement(fmt::format("node {} alone should own all slots after {} hours",
                                       survivor, recovery_hours));
    register_as(name("z1"), "worker");
    const int length = ring_.settings.window_length;
    int start = (hour_ / length + 1) * length;
    while (ring_.is_published(start * hours, ""))
        start += length;
    Publication window = make_window(start * hours, "", all_slots());
    for (auto &[slot, node] : window.assignment)
        node = name("z1");
    window.nodes.assign(window.nodes.size(), name("z1"));
    publish(window);
    hour_ = start;
    beat(present("z1"));
    for (int i = 0; i < slot_count; ++i)
        if (!ring_.may_work(ring_.nodes.at(name("z1")).incarnation, i, now()))
            throw Disagreement(fmt::format("node z1 should work in slot {}", i));
    if (has_agents_ || random_.chance(20))
        claim(ring_.nodes.at(name("z1")));
}

} // namespace stacksaga::property::ring
