// A node: registers, beats and takes over in one session, works in others.
#pragma once

#include "world.hpp"

#include <string>

namespace stacksaga::sim {

/// Lifecycle: start() once; killed, at the latest when it notices that it was superseded; never
/// destroyed before the world's end.
class NodeActor {
public:
    /// Registers with the agent `agent`; with any where that is empty, or no longer there.
    NodeActor(World &world, std::string name, double weight, std::uint64_t number,
              std::string agent)
        : world_(world), name_(std::move(name)), weight_(weight), number_(number),
          agent_(std::move(agent)) {}

    void start();
    /// Drains or leaves, as an operator or the node itself asks.
    void drain();
    void leave();
    /// Dies; what its sessions hold is released when the server notices, after `noticed`.
    void kill(Time noticed);

    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] bool is_running() const { return !process.killed; }
    [[nodiscard]] bool is_draining() const { return draining_; }
    /// Whether the tables have a newer incarnation of its name; the node notices with its next
    /// beat.
    [[nodiscard]] bool is_superseded() const;

    Process process;

private:
    struct Session {
        std::uint64_t number;
        std::optional<Hold> hold;
    };
    static constexpr std::size_t sessions = 2;

    /// Runs `step` when the process is neither paused nor dead.
    void later(Time duration, std::function<void()> step);
    void beat();
    void beat_at_database(const Passage &passage);
    void enroll(const Passage &passage);
    void take_over(Incarnation incarnation, std::vector<Candidate> candidates);
    void take_contended(Incarnation incarnation, Candidate candidate);
    void next_beat();
    void work(std::size_t session);
    void begin(std::size_t session, std::int32_t slot, std::int64_t read_before);
    void end(std::size_t session);

    World &world_;
    std::string name_;
    double weight_;
    std::uint64_t number_;
    std::string agent_;
    Incarnation incarnation_ = nobody;
    bool superseded_ = false;
    bool draining_ = false;
    std::array<Session, sessions> sessions_{};
};

} // namespace stacksaga::sim
