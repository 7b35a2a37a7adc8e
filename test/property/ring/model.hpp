// The reference: a ring with its nodes, slots and windows, and what each call may do to them.
// Written from the documentation; nothing of the extension is included.
//
// Where the documentation decides what a call does to a slot, the model predicts the slot. Where it
// leaves the choice to the ring's strategy, to which node the slots of a leaver go for instance,
// the model knows which choices are right.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace stacksaga::property::ring {

class Disagreement : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

constexpr int slot_count = 64;

/// Instants are half hours since the beginning of the episode, durations hours. Windows start at
/// even instants, calls happen at odd ones.
constexpr int hours = 2;

struct Settings {
    int window_length = 1;
    int suspect_after = 2;
    int dead_after = 4;
    int rebalance_delay = 0;
    int checkpoint_interval = 1;
    bool pauses = false;
};

enum class State : uint8_t { active, suspected, dead, draining };
const char *name_of(State state);

struct Node {
    std::string name, kind, agent; ///< no agent: empty
    long long incarnation = 0;
    bool draining = false;
    int registered_at = 0, heartbeat_at = 0, checkpoint_at = 0;
    bool has_confirmed = false;

    bool operator==(const Node &) const = default;
    [[nodiscard]] bool is_worker() const { return kind == "worker"; }
};
std::string text_of(const Node &node);

struct Slot {
    long long owner = 0; ///< an incarnation, also one that is gone; 0: none
    long long epoch = 0;
    long long next = 0; ///< who is proposed; 0: nobody
    int next_from = 0;
    bool operator==(const Slot &) const = default;
};
std::string text_of(const Slot &slot);
using Slots = std::array<Slot, slot_count>;
using SlotSet = std::set<int>;
SlotSet all_slots();

struct Window {
    int start, end;
    std::string agent; ///< whose part of the window it is; empty: the whole window
    auto operator<=>(const Window &) const = default;
};

struct Ring {
    Settings settings;
    std::map<std::string, Node> nodes;
    Slots slots;
    std::set<Window> windows;
    long long epoch = 0;

    [[nodiscard]] const Node *find(long long incarnation) const;
    [[nodiscard]] State state_of(const Node &node, int now) const;
    /// Whether it may be given slots: an active worker.
    [[nodiscard]] bool is_taker(const Node &node, int now) const;
    /// Whether the slots of an agent wait for it.
    [[nodiscard]] bool is_frozen(const std::string &agent, int now) const;
    /// Whether the node is so long dead that it may have been removed.
    [[nodiscard]] bool may_be_removed(const Node &node, int now) const;
    [[nodiscard]] bool is_published(int start, const std::string &agent) const;

    /// The fence: whether this incarnation may begin work in the slot.
    [[nodiscard]] bool may_work(long long incarnation, int slot, int now) const;
    /// The slots that an agent assigns in a window.
    [[nodiscard]] SlotSet slots_of_agent(const std::string &agent, int start) const;
    /// The agent that a worker gets that names none.
    [[nodiscard]] std::string agent_for(const std::string &node, int now) const;
    /// Whether no window was published for so long that nodes sweep.
    [[nodiscard]] bool is_uncoordinated(const Node &node, int now) const;
    /// Whether live nodes may take the slot over, since its owner is dead or there is none.
    [[nodiscard]] bool is_abandoned(const Slot &slot, int now) const;
    /// How many slots a node may sweep at one heartbeat.
    [[nodiscard]] int room_to_sweep(const Node &node, int now) const;
    /// To whom slots of a leaver may go; and whether somebody must take them.
    [[nodiscard]] std::set<long long> successors(const Node &leaver, int now) const;
    [[nodiscard]] bool has_successor(const Node &leaver, int now) const;

    /// A window gives these slots to nodes.
    void propose(int start, const std::map<int, std::string> &assignment);
    /// A name is registered again: what the older incarnation has passes to the newer one.
    void inherit(long long older, long long newer, int now);
    /// The slots that are proposed to a node and that it may take over now.
    [[nodiscard]] SlotSet due_for(long long incarnation, int now) const;
    [[nodiscard]] std::string describe(int now) const;

private:
    /// Whether an incarnation is this node, or a worker of it where it is an agent.
    [[nodiscard]] bool stands_for(const Node &node, long long incarnation) const;
};

} // namespace stacksaga::property::ring
