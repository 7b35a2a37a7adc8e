#include "coordinator_actor.hpp"

#include "db/store_error.hpp"

#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/system_error.hpp>

namespace stacksaga::sim {
namespace {

coordinator::Log discarding_log() {
    return {coordinator::LogFormat::logfmt, coordinator::LogLevel::error, [](std::string_view) {}};
}

} // namespace

// ---------------------------------------------------------------------------- master

CoordinatorActor::CoordinatorActor(World &world, std::string name, coordinator::Strategy strategy,
                                   std::uint64_t seed)
    : world_(world), name_(std::move(name)), clock_(world, process),
      store_(world, process, clock_, strategy), log_(discarding_log()),
      master_(
          store_, clock_, log_,
          {.rings = {{"default", "default"}}, .publisher = name_, .once = false, .seed = seed}) {}

void CoordinatorActor::start() {
    asio::co_spawn(world_.io, master_.run(), [this](std::exception_ptr thrown) {
        if (!process.killed)
            world_.failure = std::move(thrown);
    });
    world_.wake();
}

// ---------------------------------------------------------------------------- agent

AgentActor::AgentActor(World &world, std::string name, double weight,
                       coordinator::Strategy strategy, std::uint64_t seed)
    : world_(world), name_(std::move(name)), clock_(world, process),
      store_(world, process, clock_, strategy), log_(discarding_log()),
      agent_(store_, clock_, log_,
             {.ring = {"default", "default"}, .name = name_, .weight = weight, .seed = seed}) {}

void AgentActor::start() {
    asio::co_spawn(world_.io, agent_.run(),
                   [this](std::exception_ptr thrown) { ended(std::move(thrown)); });
    world_.wake();
}

/// Handles each end of the agent: it was killed, it was stopped and now leaves (or was stopped
/// twice), it has left, another agent has its name, or it failed.
void AgentActor::ended(std::exception_ptr thrown) {
    if (process.killed)
        return;
    if (process.stopped && !leaves_) {
        leaves_ = true;
        process.stopped = false;
        asio::co_spawn(world_.io, agent_.leave(),
                       [this](std::exception_ptr wrong) { ended(std::move(wrong)); });
        return;
    }
    const bool has_left = leaves_ && (thrown == nullptr || process.stopped);
    process.killed = true;
    if (has_left)
        return;
    try {
        std::rethrow_exception(thrown);
    } catch (const coordinator::StoreError &error) {
        if (error.sqlstate != "SG412")
            world_.failure = std::move(thrown);
    } catch (...) {
        world_.failure = std::move(thrown);
    }
}

} // namespace stacksaga::sim
