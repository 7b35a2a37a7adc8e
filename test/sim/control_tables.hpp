// The control tables of one ring in memory: the rows, locks and transactions of the SQL functions
// for publishing, taking over and working. Each public function is one transaction, or the part of
// one that happens at an instant; the simulator decides what happens between two calls of a
// session.
//
// The rules are functions of extension/core (slot_owner, sweep, hand_over, members, node_state,
// ring, window). Times are microseconds since 2000-01-01 of the database clock.
#pragma once

#include "core/ring/members.hpp"
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"
#include "core/ring/slots.hpp"
#include "core/ring/window.hpp"

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
using core::Incarnation;
inline constexpr Incarnation nobody = core::no_owner;

/// Broken rules, each of which the simulator must notice.
enum class Mutant : std::uint8_t {
    none,
    no_fence,           ///< work is done without the shared lock
    row_before_lock,    ///< the owner is read some time before the lock is had
    owner_by_name,      ///< an older incarnation of a name passes for the newer one
    taker_never_locks,  ///< a slot is taken over while others work in it
    taker_never_checks, ///< the taker does not check its candidate again under the lock
    epoch_stays,        ///< a take-over does not raise the epoch
    last_wins,          ///< a window can be published again
    no_sweep,           ///< nobody takes the slots of the dead
    sweeps_living,      ///< a node counts as dead as soon as it misses a beat
    dead_look_alive,    ///< coordinators see every node as active
    postponed,          ///< a publication delays what an earlier one proposes
    owners_forgotten,   ///< coordinators do not see who owns what
    frozen_ignored,     ///< coordinators do not see whose slots are frozen
    frozen_for_ever,    ///< the slots of a lost agent are never reassigned
    assigns_all,        ///< an agent assigns slots that it does not have
    assigns_nothing,    ///< an agent's part has no effect
    parts_undone,       ///< a window withdraws what agents assigned to their workers
    never_pauses,       ///< a ring that is to pause does not
    parts_open,         ///< an agent's part keeps a ring from pausing
    agents_take_over,   ///< an agent takes over slots instead of assigning them
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
    "taker_never_checks",
    "epoch_stays",
    "last_wins",
    "no_sweep",
    "sweeps_living",
    "dead_look_alive",
    "postponed",
    "owners_forgotten",
    "frozen_ignored",
    "frozen_for_ever",
    "assigns_all",
    "assigns_nothing",
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

struct SlotRow : core::SlotOwner {
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
    /// The worker belongs to the agent `chosen` (Refusal SG404 when there is none of that name),
    /// or, if that is empty, to its former agent, else to the active one with the fewest workers.
    Incarnation register_worker(const std::string &name, double weight, const std::string &chosen);
    /// Refusal SG412 or SG404 when the incarnation was superseded or removed.
    void beat(const std::string &name, Incarnation incarnation);
    void drain(const std::string &name, Incarnation incarnation);
    /// Drains the present holder of the name.
    void drain(const std::string &name);
    void leave(const std::string &name, Incarnation incarnation);

    // -------------------------------------------------------------------------- ownership
    /// The slots that the node may take over, found without a lock.
    [[nodiscard]] std::vector<Candidate> find_candidates(Incarnation node) const;
    /// Takes the candidates that no session works in; the rest stays in `candidates`.
    int take_over(Incarnation node, std::vector<Candidate> &candidates);
    /// Enters the queue of a slot's lock, or leaves it.
    void queue_for(std::int32_t slot, bool waits) {
        slots_[static_cast<std::size_t>(slot)].takers_waiting += waits ? 1 : -1;
    }

    // -------------------------------------------------------------------------- work
    [[nodiscard]] std::vector<std::int32_t> slots_of(Incarnation node) const;
    /// Reads the row of a slot without a lock; only a hint for a worker.
    [[nodiscard]] std::int64_t epoch_of(std::int32_t slot) const {
        return slots_[static_cast<std::size_t>(slot)].epoch;
    }
    /// The fence: the shared lock, then the row. Nothing when the lock is refused.
    std::optional<Hold> begin_work(std::uint64_t session, Incarnation node, std::int32_t slot,
                                   std::optional<std::int64_t> read_before);
    /// Commits an effect: Violation unless the committer owns the slot as it did at the start.
    void commit_work(std::uint64_t session, const Hold &hold);
    void end_work(std::uint64_t session, const Hold &hold);

    // -------------------------------------------------------------------------- windows
    /// The epoch, or nothing when it was already published. With an agent: its part; Refusal SG416
    /// when the agent no longer has exactly these slots.
    std::optional<std::int64_t> publish(Time window_start, std::span<const Grant> grants,
                                        const std::string &publisher, const std::string &agent);
    /// Whether an agent may assign the slot to a worker in a window.
    [[nodiscard]] bool is_assigned(const SlotRow &slot, const NodeRow &agent,
                                   Time window_start) const;
    /// The worker of the agent that owns the slot or will own it; nullptr: none.
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
        std::uint64_t parts = 0;      ///< of windows, published by agents
        std::uint64_t lost_races = 0; ///< windows that another had published
        std::uint64_t fenced = 0;     ///< refusals of superseded workers and nodes
    } counts;
    std::uint64_t proposed_moves = 0; ///< changes of owner that all windows together allow

private:
    [[nodiscard]] core::NodeTiming timing() const {
        return {settings_.suspect_after, settings_.dead_after};
    }
    [[nodiscard]] NodeRow &current(const std::string &name, Incarnation incarnation);
    [[nodiscard]] bool keeps_slots(const NodeRow &node) const;
    [[nodiscard]] bool is_uncoordinated(const NodeRow &self) const;
    [[nodiscard]] std::vector<Candidate> slots_to_sweep(const NodeRow &self) const;
    [[nodiscard]] bool is_open(const SlotRow &slot) const;
    [[nodiscard]] bool owns(Incarnation node, const SlotRow &slot) const;
    void check_window(Time window_start) const;
    Incarnation register_node(NodeRow node);
    [[nodiscard]] std::string agent_for(const std::string &older) const;
    [[nodiscard]] core::Relation relation(Incarnation holder, const NodeRow &node) const;
    [[nodiscard]] bool was_assigned(const SlotRow &slot, const NodeRow &agent,
                                    Time window_start) const;
    [[nodiscard]] std::vector<const NodeRow *> grantees(std::span<const Grant> grants,
                                                        const std::string &agent) const;
    [[nodiscard]] std::vector<std::int32_t> cut(std::span<const Grant> grants,
                                                const NodeRow *assigner, Time window_start) const;
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
