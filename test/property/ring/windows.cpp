// Windows, right and wrong, and settings that change.
#include "episode.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stacksaga::property::ring {

namespace {

constexpr int windows_ahead_max = 3;

/// The first token of a slot, and of the one behind the last.
__extension__ typedef __int128 Token;
Token first_token(int slot) {
    return (Token{1} << 64) / slot_count * slot - (Token{1} << 63);
}

} // namespace

long long slot_start(int slot) {
    return static_cast<long long>(first_token(slot));
}

void Episode::publish() {
    const int length = ring_.settings.window_length;
    const int open = hour_ / length * length;
    const int start = open + length * random_.between(0, windows_ahead_max);
    const Node *agent = random_.chance(50) ? any_node("agent") : nullptr;
    const SlotSet slots =
        agent != nullptr ? ring_.slots_of_agent(agent->name, start * hours) : all_slots();
    if (slots.empty())
        return;
    Publication window = make_window(start * hours, agent != nullptr ? agent->name : "", slots);
    if (window.nodes.empty())
        return;
    if (random_.chance(20) && !committed_ && !ring_.is_published(window.start, window.agent))
        spoil(window);
    publish(window);
}

/// Runs of the slots go to nodes that the publisher may give them to.
Episode::Publication Episode::make_window(int start, const std::string &agent,
                                          const SlotSet &slots) {
    std::vector<const Node *> candidates;
    for (const auto &[name, node] : ring_.nodes)
        if (agent.empty() ? node.kind != "standard" : node.agent == agent && node.is_worker())
            candidates.push_back(&node);
    Publication window{.start = start,
                       .agent = agent,
                       .assignment = {},
                       .nodes = {},
                       .starts = {},
                       .ends = {},
                       .sqlstate = {}};
    if (candidates.empty())
        return window;
    int before = -2;
    for (int slot : slots) {
        if (slot != before + 1 || random_.chance(12)) {
            window.nodes.push_back(candidates[random_.next() % candidates.size()]->name);
            window.starts.push_back(slot_start(slot));
            window.ends.emplace_back();
        }
        window.ends.back() = static_cast<long long>(first_token(slot + 1) - 1);
        window.assignment[slot] = window.nodes.back();
        before = slot;
    }
    return window;
}

/// One thing about it is wrong.
void Episode::spoil(Publication &window) {
    const size_t i = random_.next() % window.nodes.size();
    const int kind = random_.below(8);
    window.sqlstate = kind < 4 ? "SG416" : "SG400";
    if (kind == 0)
        window.starts[i] += 1; // not at the border of a slot
    else if (kind == 1)
        window.ends[i] -= static_cast<long long>(first_token(1) - first_token(0)) / 2;
    else if (kind == 2 && window.nodes.size() > 1) { // not covered
        window.nodes.erase(window.nodes.begin() + static_cast<std::ptrdiff_t>(i));
        window.starts.erase(window.starts.begin() + static_cast<std::ptrdiff_t>(i));
        window.ends.erase(window.ends.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (kind <= 3) { // twice
        window.nodes.push_back(window.nodes[i]);
        window.starts.push_back(window.starts[i]);
        window.ends.push_back(window.ends[i]);
    } else if (kind == 4)
        window.start =
            (hour_ / ring_.settings.window_length - 1) * ring_.settings.window_length * hours;
    else if (kind == 5)
        window.start += 1; // half an hour later
    else if (kind == 6)
        window.start += 24 * 367 * hours;
    else {
        window.nodes[i] = name("nobody");
        window.sqlstate = "SG404";
    }
}

void Episode::publish(const Publication &window) {
    const bool is_published = ring_.is_published(window.start, window.agent);
    const std::string sql = fmt::format(
        "SELECT stacksaga.publish_window('property', 'e{}', {}, '{{{}}}', '{{{}}}', '{{{}}}', 'test'{})",
        number_, instant(window.start), fmt::join(window.nodes, ","), fmt::join(window.starts, ","),
        fmt::join(window.ends, ","),
        window.agent.empty() ? "" : fmt::format(", '{}'", window.agent));
    Ring expected = ring_;
    if (window.sqlstate.empty() && !is_published)
        expected.windows.insert(
            {window.start, window.start + ring_.settings.window_length * hours, window.agent});
    const Reply reply = perform(sql, window.sqlstate, expected, [&](const Change &c) {
        Ring proposed = c.before;
        if (!is_published)
            proposed.propose(window.start, window.assignment);
        check_slots(c, proposed.slots);
        if (!is_published && c.after.epoch <= c.before.epoch)
            throw Disagreement("a window has the epoch of something before");
    });
    if (window.sqlstate.empty() &&
        reply.at(0, 0) !=
            (is_published ? std::nullopt : std::optional(fmt::format("{}", ring_.epoch))))
        throw Disagreement(
            "it should be answered with the epoch of the window, or NULL when it is there");
}

void Episode::alter() {
    Ring expected = ring_;
    Settings &s = expected.settings;
    std::string setting, value;
    const auto in_hours = [&](const char *which, int Settings::*field, int count) {
        setting = which;
        s.*field = count;
        value = fmt::format("{} hours", count);
    };
    std::string refusal;
    switch (random_.below(7)) {
    case 0:
        setting = "on_missing_window";
        s.pauses = !s.pauses;
        value = s.pauses ? "pause" : "keep";
        break;
    case 1:
        in_hours("window_length", &Settings::window_length, random_.one_of({1, 2, 3}));
        break;
    case 2:
        in_hours("suspect_after", &Settings::suspect_after, random_.between(1, s.dead_after - 1));
        break;
    case 3:
        in_hours("dead_after", &Settings::dead_after, random_.between(s.suspect_after + 1, 6));
        break;
    case 4:
        in_hours("rebalance_delay", &Settings::rebalance_delay, random_.one_of({0, 0, 2, 5}));
        break;
    case 5:
        in_hours("checkpoint_interval", &Settings::checkpoint_interval, random_.between(1, 3));
        break;
    default:
        expected = ring_;
        refusal = "SG400";
        setting = random_.one_of({"dead_after", "window_length", "strategy", "slots"});
        value = "0";
        break;
    }
    perform(fmt::format("SELECT stacksaga.alter_ring('property', 'e{}', '{}', '{}')", number_,
                        setting, value),
            refusal, expected, [](const Change &c) { check_slots(c, c.before.slots); });
}

} // namespace stacksaga::property::ring
