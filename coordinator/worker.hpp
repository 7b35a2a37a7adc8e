// Role worker: does the due work of one ring from outside, for servers that run no background
// worker.
#pragma once

#include "backoff.hpp"
#include "connection.hpp"
#include "errors.hpp"
#include "log.hpp"
#include "types.hpp"

#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>

#include <functional>
#include <optional>
#include <string>

namespace stacksaga::coordinator {

struct WorkerSettings {
    RingName ring;
    std::string node;       ///< the name that it registers under
    int batch = 100;        ///< items of one transaction, at most
    Duration poll;          ///< the longest wait between two looks
    std::uint64_t seed = 0; ///< of the jitter

    /// Told when the connection comes and goes, one line; may be empty.
    std::function<void(const std::string &)> on_status = {};
};

/// Lifecycle: made, run() once, drain() at any time after that. Thread: the executor's.
///
/// Two connections: one does the work, a transaction each stacksaga.run_pending(), the other beats
/// meanwhile, so that a long step does not make the node look dead. Any number of workers, inside
/// the server and outside, may serve the same ring: the database keeps them apart. It polls: at
/// once after a full batch, then ever more slowly up to `poll`, and needs no LISTEN.
class Worker {
public:
    Worker(const asio::any_io_executor &executor, std::string conninfo, Log &log,
           WorkerSettings settings);

    /// Works until it is drained, the daemon is stopped (asio::system_error(operation_aborted)), or
    /// an error comes that waiting cannot mend (StoreError), such as another of the same name.
    asio::awaitable<void> run();

    /// Ends run(): what runs is finished, no more is begun, the node leaves the ring.
    void drain() noexcept;

    void log_state() const;

private:
    asio::awaitable<void> work();
    asio::awaitable<std::int64_t> do_batch();
    asio::awaitable<void> leave();
    asio::awaitable<void> keep_beating();
    asio::awaitable<void> open_control();
    asio::awaitable<void> beat();
    asio::awaitable<void> enlist();
    asio::awaitable<Rows> ask(Connection &connection, const char *sql, const Parameters &parameters,
                              Duration deadline);
    asio::awaitable<void> pause(asio::steady_timer &timer, Duration wait);
    [[nodiscard]] Duration trouble(const StoreError &error, Connection &connection,
                                   Backoff &backoff);

    std::string conninfo_;
    Log &log_;
    WorkerSettings settings_;
    Connection work_;
    Connection control_;
    asio::steady_timer work_timer_;
    asio::steady_timer beat_timer_;
    Backoff idle_;
    Backoff work_trouble_;
    Backoff control_trouble_;
    Duration beat_interval_;
    std::optional<std::int64_t> incarnation_;
    std::optional<StoreError> failure_; ///< what ends it; the other coroutine is then cancelled
    bool draining_ = false;
    bool drain_told_ = false;
    bool finished_ = false;
    std::int64_t turns_ = 0;
    std::int64_t items_ = 0;
};

} // namespace stacksaga::coordinator
