// The control tables of one ring in memory, with the rules of the SQL functions: who may publish,
// who may take over, who may work. Each public function is one transaction, or that part of one
// that happens at an instant; what lies between two calls of a session is the simulator's to fill.
//
// The rules are those of extension/src/ring/{node,window,ownership,hand_over,fence}.cpp, with the
// same pure core behind them (core/node_state, core/ring, core/window). Times are microseconds
// since 2000-01-01 of the database clock.
#pragma once

#include "core/node_state.hpp"
#include "core/ring.hpp"
#include "core/ring_settings.hpp"
#include "core/window.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stacksaga::sim {

using Time = std::int64_t;
using Incarnation = std::int64_t;
inline constexpr Incarnation nobody = 0;

/// Ways to break the rules, to see that the simulator notices.
enum class Mutant : std::uint8_t {
    none,
    no_fence,           ///< work is done without the shared lock
    row_before_lock,    ///< the owner is read some time before the lock is had
    owner_by_name,      ///< an older incarnation of a name passes for the newer one
    taker_never_locks,  ///< a slot is taken over while others work in it
    taker_never_looks,  ///< what was found is not compared again under the lock
    epoch_stays,        ///< a take-over does not raise the epoch
    last_wins,          ///< a window can be published again
    no_sweep,           ///< nobody takes the slots of the dead
    sweeps_living,      ///< the silent are taken for dead as soon as they miss a beat
    dead_look_alive,    ///< coordinators see every node as active
    postponed,          ///< a publication puts off what an earlier one proposes
    owners_forgotten,   ///< coordinators do not see who owns what
    frozen_ignored,     ///< coordinators do not see whose slots are frozen
    frozen_for_ever,    ///< the slots of a lost agent are never dealt anew
    deals_all,          ///< an agent deals slots that it was not dealt
    deals_nothing,      ///< what an agent deals on comes to nothing
    parts_undone,       ///< a window withdraws what agents dealt on within their own
    never_pauses,       ///< a ring that is to pause does not
    parts_open,         ///< for that, an agent's part is as good as the window
    agents_take_over,   ///< an agent takes over what it is to deal on
    leaves_behind,      ///< a node that leaves or drains gives nothing away
    leaver_never_locks, ///< it gives a slot away while others work in it
    count,
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Mutant::count)> mutant_names{
    "none",
    "no_fence",
    "row_before_lock",
    "owner_by_name",
    "taker_never_locks",
    "taker_never_looks",
    "epoch_stays",
    "last_wins",
    "no_sweep",
    "sweeps_living",
    "dead_look_alive",
    "postponed",
    "owners_forgotten",
    "frozen_ignored",
    "frozen_for_ever",
    "deals_all",
    "deals_nothing",
    "parts_undone",
    "never_pauses",
    "parts_open",
    "agents_take_over",
    "leaves_behind",
    "leaver_never_locks"};

/// An invariant that does not hold.
class Violation : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// What the database refuses, as an SQLSTATE.
class Refusal : public std::runtime_error {
public:
    explicit Refusal(std::string sqlstate) : std::runtime_error(std::move(sqlstate)) {}
};

struct NodeRow {
    std::string name;
    Incarnation incarnation = nobody;
    double weight = 1;
    bool draining = false;
    Time registered_at = 0;
    Time heartbeat_at = 0;
    bool is_agent = false;
    std::string agent; ///< of a worker; empty: none
};

struct SlotRow {
    Incarnation owner = nobody;
    std::int64_t epoch = 0;
    Incarnation next_owner = nobody;
    Time next_from = 0;
    std::multiset<std::uint64_t> sharers; ///< sessions that hold the shared lock
    int takers_waiting = 0;               ///< keep new sharers out
};

struct WindowRow {
    std::int64_t epoch = 0;
    std::string publisher;
    int publications = 0;
};

/// A slot to take over, and the epoch under which it was found.
struct Candidate {
    std::int32_t slot;
    std::int64_t epoch;
    bool swept;
    Time found_at;
};

/// A slot that a session works in.
struct Hold {
    std::int32_t slot;
    Incarnation node;
    std::int64_t epoch;
    bool locked;
};

struct Grant {
    std::string node;
    core::Range range;
};

class ControlTables {
public:
    ControlTables(const core::RingSettings &settings, std::int32_t slots, Mutant mutant)
        : settings_(settings), slots_(static_cast<std::size_t>(slots)), mutant_(mutant) {}

    /// The database clock, set by the simulator before each call.
    Time now = 0;

    // -------------------------------------------------------------------------- nodes
    Incarnation register_agent(const std::string &name, double weight);
    /// The worker is dealt to the agent `chosen` (Refusal SG404 when there is none of that name),
    /// or, where that is empty, to the one that it had, else to the active one with the fewest.
    Incarnation register_worker(const std::string &name, double weight, const std::string &chosen);
    /// Refusal SG412 or SG404 when the incarnation is out.
    void beat(const std::string &name, Incarnation incarnation);
    void drain(const std::string &name, Incarnation incarnation);
    /// Whoever holds the name.
    void drain(const std::string &name);
    void leave(const std::string &name, Incarnation incarnation);

    // -------------------------------------------------------------------------- ownership
    /// What the node may take over, found without a lock.
    [[nodiscard]] std::vector<Candidate> find_candidates(Incarnation node) const;
    /// Takes what nobody works in; the rest is left in `candidates`.
    int take_over(Incarnation node, std::vector<Candidate> &candidates);
    /// Stands in the queue of a slot's lock, or leaves it.
    void queue_for(std::int32_t slot, bool waits) {
        slots_[static_cast<std::size_t>(slot)].takers_waiting += waits ? 1 : -1;
    }

    // -------------------------------------------------------------------------- work
    [[nodiscard]] std::vector<std::int32_t> slots_of(Incarnation node) const;
    /// Reads the row of a slot without a lock: what a worker finds, a hint.
    [[nodiscard]] std::int64_t epoch_of(std::int32_t slot) const {
        return slots_[static_cast<std::size_t>(slot)].epoch;
    }
    /// The fence: the shared lock, then the row. Nothing when it is not had.
    std::optional<Hold> begin_work(std::uint64_t session, Incarnation node, std::int32_t slot,
                                   std::optional<std::int64_t> read_before);
    /// Commits an effect: Violation unless the committer owns the slot as it did at the start.
    void commit_work(std::uint64_t session, const Hold &hold);
    void end_work(std::uint64_t session, const Hold &hold);

    // -------------------------------------------------------------------------- windows
    /// The epoch, or nothing when it was published already. With an agent: its part; Refusal SG416
    /// when that is not what it was dealt by then.
    std::optional<std::int64_t> publish(Time window_start, std::span<const Grant> grants,
                                        const std::string &publisher, const std::string &agent);
    /// Whether an agent may deal the slot on in a window.
    [[nodiscard]] bool is_dealt(const SlotRow &slot, const NodeRow &agent, Time window_start) const;
    /// The worker of its own that owns a slot that it was dealt, or is to; nullptr: none.
    [[nodiscard]] const NodeRow *worker_of(const SlotRow &slot, const NodeRow &agent) const;
    /// Whether the slots of a lost agent still wait for it.
    [[nodiscard]] bool is_frozen(const NodeRow &node) const;
    [[nodiscard]] std::optional<Time> last_window() const;
    /// Whether the window was published in which the database clock is.
    [[nodiscard]] bool is_window_open() const;

    // -------------------------------------------------------------------------- for checks
    [[nodiscard]] core::NodeState state_of(const NodeRow &node) const;
    /// As state_of(), but as coordinators see it.
    [[nodiscard]] core::NodeState shown_state(const NodeRow &node) const;
    [[nodiscard]] const NodeRow *find(Incarnation incarnation) const;
    [[nodiscard]] const NodeRow *find(const std::string &name) const;
    [[nodiscard]] const std::map<std::string, NodeRow> &nodes() const { return nodes_; }
    [[nodiscard]] const std::vector<SlotRow> &slots() const { return slots_; }
    [[nodiscard]] const core::RingSettings &settings() const { return settings_; }
    [[nodiscard]] std::int64_t epoch() const { return epoch_; }
    [[nodiscard]] Mutant mutant() const { return mutant_; }

    struct Counts {
        std::uint64_t commits = 0;
        std::uint64_t take_overs = 0;
        std::uint64_t sweeps = 0;
        std::uint64_t windows = 0;
        std::uint64_t parts = 0;      ///< of windows, that agents dealt on
        std::uint64_t lost_races = 0; ///< windows that another had published
        std::uint64_t fenced = 0;     ///< workers and nodes that were told that they are out
    } counts;
    std::uint64_t proposed_moves = 0; ///< changes of owner that all windows together allow

private:
    [[nodiscard]] core::NodeTiming timing() const {
        return {settings_.suspect_after, settings_.dead_after};
    }
    [[nodiscard]] NodeRow &current(const std::string &name, Incarnation incarnation);
    [[nodiscard]] bool is_live(const NodeRow &node) const;
    [[nodiscard]] bool is_uncoordinated(const NodeRow &self) const;
    [[nodiscard]] std::vector<Candidate> slots_to_sweep(const NodeRow &self) const;
    [[nodiscard]] bool is_open(const SlotRow &slot) const;
    [[nodiscard]] bool owns(Incarnation node, const SlotRow &slot) const;
    void check_window(Time window_start) const;
    Incarnation register_node(NodeRow node);
    [[nodiscard]] std::string agent_for(const std::string &older) const;
    [[nodiscard]] bool is_at(Incarnation holder, const NodeRow &node) const;
    [[nodiscard]] bool was_dealt(const SlotRow &slot, const NodeRow &agent,
                                 Time window_start) const;
    [[nodiscard]] std::vector<const NodeRow *> grantees(std::span<const Grant> grants,
                                                        const std::string &agent) const;
    [[nodiscard]] std::vector<std::int32_t> cut(std::span<const Grant> grants,
                                                const NodeRow *dealer, Time window_start) const;
    [[nodiscard]] bool is_dealt_on(const SlotRow &slot, const NodeRow &agent) const;
    void propose(SlotRow &slot, const NodeRow &node, Time window_start);
    void take(Incarnation node, const Candidate &candidate);
    void hand_over(const NodeRow &leaver);
    void give(Incarnation leaver, std::int32_t number, Incarnation successor, bool is_kept);
    void check_given_away(const NodeRow &leaver) const;
    void drain(NodeRow &node);
    void remove_dead();

    core::RingSettings settings_;
    std::vector<SlotRow> slots_;
    std::map<std::string, NodeRow> nodes_;
    std::map<Incarnation, std::string> names_; ///< of every incarnation that ever was
    std::map<Time, WindowRow> windows_;
    std::map<std::pair<Time, std::string>, WindowRow> parts_; ///< by agent
    std::int64_t epoch_ = 0;
    Incarnation last_incarnation_ = nobody;
    Mutant mutant_;
};

} // namespace stacksaga::sim
