// Role master: publishes the windows of the rings of one database.
#pragma once

#include "backoff.hpp"
#include "clock.hpp"
#include "control_store.hpp"
#include "errors.hpp"
#include "log.hpp"
#include "window_plan.hpp"

#include <asio/awaitable.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

struct MasterSettings {
    std::vector<RingName> rings; ///< at least one
    std::string publisher;       ///< who published a window, for people
    bool once = false;      ///< publish each ring's next window now, whatever its lead, and return
    std::uint64_t seed = 0; ///< of the jitter

    /// Told when the connection comes and goes, one line; may be empty.
    std::function<void(const std::string &)> on_status = {};

    /// With `once`: told the window that would be published, which then is not. Empty: it is.
    std::function<void(const RingName &, const std::vector<Slot> &, const Proposal &)> dry_run = {};
};

/// Lifecycle: made with what it works on, then run() once. One per database; several may share an
/// io_context, and any number, in any processes, may serve the same ring: the first publication of
/// a window wins, and the others' answers say so. Nothing is remembered that the control tables do
/// not hold, except which windows it has seen settled, which only saves questions.
///
/// Invariants: a window is dealt from members and owners read in the same turn; the time is the
/// database's, and settings are read anew each turn. A ring that is refused or missing never holds
/// up the others. Thread: that of the io_context.
class Master {
public:
    Master(ControlStore &store, Clock &clock, Log &log, MasterSettings settings);

    /// Serves the rings until the daemon is stopped (asio::system_error(operation_aborted)), until
    /// each ring had its turn with `once`, or until an error that waiting cannot mend (StoreError).
    asio::awaitable<void> run();

    /// Logs the connection and what each ring waits for.
    void log_state() const;

private:
    /// What one ring waits for.
    struct Ring {
        RingName name;
        SteadyTime next_turn;
        Backoff backoff;
        DatabaseClock database_clock;
        std::optional<Instant> settled;
        bool deserted = false; ///< told that no node takes slots
    };

    asio::awaitable<void> connect();
    asio::awaitable<void> introduce(const ServerInfo &server);
    asio::awaitable<void> serve_due_rings();
    asio::awaitable<void> serve(Ring &ring);
    asio::awaitable<RingState> look(Ring &ring);
    asio::awaitable<void> publish(Ring &ring, const RingState &state, Instant window_start);
    void tell(const std::string &status) const;
    void put_off(Ring &ring, const StoreError &error);
    [[nodiscard]] Duration lost_connection(const StoreError &error);
    [[nodiscard]] SteadyTime next_turn() const;

    ControlStore &store_;
    Clock &clock_;
    Log &log_;
    MasterSettings settings_;
    std::vector<Ring> rings_;
    Backoff reconnect_;
    bool connected_ = false;
};

} // namespace stacksaga::coordinator
