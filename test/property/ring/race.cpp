// Nodes that take slots at the same time.
#include "episode.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace stacksaga::property::ring {

/// Heartbeats at the same time, in sessions of their own.
void Episode::beat_together() {
    end_all_work();
    std::vector<Node> beating;
    std::string list;
    for (const auto &[name, node] : ring_.nodes)
        if (node.is_worker() && !node.draining && beating.size() < workers_.size()) {
            beating.push_back(node);
            list += " " + name;
        }
    note("heartbeats at the same time:" + list);
    for (const Worker &worker : workers_)
        set_clock(*worker.session);
    for (size_t i = 0; i < beating.size(); ++i)
        workers_[i].session->send(
            fmt::format("SELECT state FROM stacksaga.heartbeat_node('{}', {})", beating[i].name,
                        beating[i].incarnation));
    for (size_t i = 0; i < beating.size(); ++i) {
        const std::optional<Reply> reply = workers_[i].session->take(60'000);
        if (!reply || !reply->is_accepted())
            throw Disagreement(fmt::format("the heartbeat of {} is answered {}", beating[i].name,
                                           reply ? reply->text() : "nothing"));
    }
    Ring expected = ring_;
    for (Node &node : beating) {
        expected.nodes.at(node.name).heartbeat_at = now();
        node.heartbeat_at = now();
    }
    const Ring after = read(sessions_.caller);
    check_nodes(expected, after);
    const SlotSet none;
    const Change change{ring_, after, now(), none, false};
    check_epochs(change);
    check_together(change, beating);
    ring_ = after;
}

Episode::Holder Episode::present(const std::string &node) const {
    const Node &found = ring_.nodes.at(name(node));
    return {found.name, found.incarnation};
}

/// Two nodes sweep the same slots of a dead one: z4 waits for a slot that z3 takes over and
/// commits, and must see that it came too late. z1 owns everything before.
void Episode::race_for_slots() {
    register_as(name("z2"), "worker");
    const int length = ring_.settings.window_length;
    int start = (hour_ / length + 1) * length;
    while (ring_.is_published(start * hours, ""))
        start += length;
    Publication window = make_window(start * hours, "", all_slots());
    window.assignment.clear();
    for (size_t i = 0; i < window.nodes.size(); ++i)
        window.nodes[i] = name(i == 0 ? "z2" : "z1");
    for (int slot = 0; slot < slot_count; ++slot)
        window.assignment[slot] =
            slot_start(slot) <= window.ends[0] ? window.nodes.front() : window.nodes.back();
    publish(window);
    hour_ = start;
    beat(present("z1"));
    beat(present("z2"));
    hour_ += length + 2 * length + ring_.settings.dead_after + ring_.settings.rebalance_delay;
    register_as(name("z3"), "worker");
    register_as(name("z4"), "worker");
    hour_ += 2 * length;
    register_as(name("z1"), "worker"); // lives, and is too new to sweep
    begin_transaction();
    beat(present("z3"));
    Connection &late = *workers_.front().session;
    set_clock(late);
    const Holder z4 = present("z4");
    note("z4 beats at the same time");
    late.send(fmt::format("SELECT state FROM stacksaga.heartbeat_node('{}', {})", z4.node,
                          z4.incarnation));
    // It has its answer, or waits for a slot, for at most 100 ms.
    const std::string waits = fmt::format("SELECT cardinality(pg_blocking_pids({}))", late.pid());
    while (!late.poll() && sessions_.observer.require(waits).at(0, 0) == "0") {
    }
    note("COMMIT");
    sessions_.caller.require("COMMIT");
    committed_.reset();
    taken_in_transaction_.clear();
    const std::optional<Reply> reply = late.take(60'000);
    if (!reply || !reply->is_accepted())
        throw Disagreement("its heartbeat is answered " + (reply ? reply->text() : "nothing"));
    Ring expected = ring_;
    expected.nodes.at(z4.node).heartbeat_at = now();
    const Ring after = read(sessions_.caller);
    check_nodes(expected, after);
    const SlotSet none;
    const Change change{expected, after, now(), none, false};
    check_epochs(change);
    check_together(change, {expected.nodes.at(z4.node)});
    ring_ = after;
}

} // namespace stacksaga::property::ring
