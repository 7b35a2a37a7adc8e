// Role master: publishes the windows of the rings of one database.
#pragma once

#include "base/log.hpp"
#include "base/time.hpp"
#include "db/store_error.hpp"
#include "roles/control_store.hpp"
#include "roles/window_plan.hpp"

#include <asio/awaitable.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

struct MasterSettings {
    std::vector<RingName> rings; ///< at least one
    std::string publisher;       ///< the name in its windows, for display
    bool once = false; ///< publish each ring's next window now, before its lead too, and return
    std::uint64_t seed = 0; ///< of the jitter

    /// Receives one line when the connection opens or breaks; may be empty.
    std::function<void(const std::string &)> on_status = {};

    /// With `once`: receives each window instead of the database. Empty: the window is published.
    std::function<void(const RingName &, const std::vector<Slot> &, const Proposal &)> dry_run = {};
};

/// Lifecycle: constructed, then run() once. One per database; several may share an io_context, and
/// any number in any processes may serve the same ring: the first publication of a window wins, and
/// the others get no epoch. A master keeps no state that the control tables
/// lack, except the latest settled window of each ring, which only saves queries.
///
/// Invariants: a window is computed from the nodes and owners that the same turn has read; the time
/// is the database's, and each turn reads the settings again. A refused or missing ring never
/// delays the others. Thread: that of the io_context.
class Master {
public:
    Master(ControlStore &store, Clock &clock, Log &log, MasterSettings settings);

    /// Serves the rings until the daemon is stopped (asio::system_error(operation_aborted)), until
    /// each ring had its turn with `once`, or until an error that a retry cannot fix (StoreError).
    asio::awaitable<void> run();

    /// Logs the connection and the next turn of each ring.
    void log_state() const;

private:
    /// The state of one ring between two turns.
    struct ServedRing {
        RingName name;
        SteadyTime next_turn;
        Backoff backoff;
        DatabaseClock database_clock;
        std::optional<Instant> settled;
        bool deserted = false; ///< the log already says that no node can be assigned slots
    };

    asio::awaitable<void> connect();
    asio::awaitable<void> introduce(const ServerInfo &server);
    asio::awaitable<void> serve_due_rings();
    asio::awaitable<void> serve(ServedRing &ring);
    asio::awaitable<RingState> read_state(ServedRing &ring);
    asio::awaitable<void> publish(ServedRing &ring, const RingState &state, Instant window_start);
    void notify_status(const std::string &status) const;
    void put_off(ServedRing &ring, const StoreError &error);
    [[nodiscard]] Duration lost_connection(const StoreError &error);
    [[nodiscard]] SteadyTime next_turn() const;

    ControlStore &store_;
    Clock &clock_;
    Log &log_;
    MasterSettings settings_;
    std::vector<ServedRing> rings_;
    Backoff reconnect_;
    bool connected_ = false;
};

} // namespace stacksaga::coordinator
