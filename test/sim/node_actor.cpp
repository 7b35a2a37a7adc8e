#include "node_actor.hpp"

namespace stacksaga::sim {
namespace {

constexpr Time lock_timeout = 100 * millisecond;

/// How long a statement takes on the server between finding and locking: once in a while its
/// backend is paused.
Time server_time(World &world) {
    return world.between(50, 2 * millisecond) +
           (world.happens(world.is_calm ? 0 : 5)
                ? world.between(0, world.tables.settings().window_length)
                : 0);
}

} // namespace

void NodeActor::later(Time duration, std::function<void()> step) {
    world_.at(world_.now() + duration, [this, step = std::move(step)] {
        if (!is_running())
            return;
        if (process.is_paused(world_.now()))
            later(process.paused_until - world_.now(), step);
        else
            step();
    });
}

void NodeActor::start() {
    for (std::size_t i = 0; i < sessions; ++i) {
        sessions_[i].number = number_ * sessions + i;
        later(world_.between(0, second), [this, i] { work(i); });
    }
    later(world_.between(0, second), [this] { beat(); });
}

void NodeActor::kill(Time noticed) {
    process.killed = true;
    world_.at(world_.now() + noticed, [this] {
        for (Session &session : sessions_) {
            if (session.hold)
                world_.database().end_work(session.number, *session.hold);
            session.hold.reset();
        }
    });
}

void NodeActor::drain() {
    try {
        world_.database().drain(name_, incarnation_);
        draining_ = true;
    } catch (const Refusal &) {
        ++world_.tables.counts.fenced;
    }
}

void NodeActor::leave() {
    try {
        world_.database().leave(name_, incarnation_);
    } catch (const Refusal &) {
        ++world_.tables.counts.fenced;
    }
    kill(0);
}

// ---------------------------------------------------------------------------- beats

void NodeActor::next_beat() {
    const Time interval = world_.tables.settings().heartbeat_interval;
    later(process.truly(interval + world_.between(-interval / 20, interval / 20)),
          [this] { beat(); });
}

/// The statement runs at the server whether or not the process still waits for its answer.
bool NodeActor::is_superseded() const {
    const NodeRow *known = world_.tables.find(name_);
    return superseded_ ||
           (known != nullptr && incarnation_ != nobody && known->incarnation > incarnation_);
}

void NodeActor::beat() {
    ++world_.statements.beats;
    const Passage passage = passage_of(world_, process);
    if (passage.lost_before) {
        next_beat();
        return;
    }
    world_.at(world_.now() + passage.there, [this, passage] {
        // A beat that was sent arrives, though its sender may be dead by then.
        if (!superseded_ && (!process.killed || incarnation_ != nobody))
            beat_at_database(passage);
    });
}

void NodeActor::beat_at_database(const Passage &passage) {
    ControlTables &tables = world_.database();
    if (incarnation_ == nobody) {
        enroll(passage);
        next_beat();
        return;
    }
    try {
        tables.beat(name_, incarnation_);
    } catch (const Refusal &refusal) {
        ++tables.counts.fenced;
        if (refusal.what() == std::string_view("SG412")) {
            superseded_ = true; // no more beats; its sessions finish the work that they began
        } else {
            incarnation_ = nobody; // removed as dead: it comes back as a new one
            draining_ = false;
            next_beat();
        }
        return;
    }
    auto candidates = tables.find_candidates(incarnation_);
    world_.at(world_.now() + server_time(world_),
              [this, incarnation = incarnation_, candidates = std::move(candidates)] {
                  take_over(incarnation, candidates);
              });
    next_beat();
}

void NodeActor::enroll(const Passage &passage) {
    try {
        const Incarnation given = world_.database().register_worker(name_, weight_, agent_);
        if (!passage.lost_after)
            incarnation_ = given; // otherwise it registers once more
    } catch (const Refusal &) {
        agent_.clear();
    }
}

void NodeActor::take_over(Incarnation incarnation, std::vector<Candidate> candidates) {
    ControlTables &tables = world_.database();
    if (candidates.empty() || tables.take_over(incarnation, candidates) > 0 || candidates.empty())
        return;
    const Candidate chosen = world_.one_of(candidates);
    tables.queue_for(chosen.slot, true);
    world_.at(world_.now() + lock_timeout,
              [this, incarnation, chosen] { take_contended(incarnation, chosen); });
}

void NodeActor::take_contended(Incarnation incarnation, Candidate candidate) {
    ControlTables &tables = world_.database();
    std::vector<Candidate> candidates{candidate};
    tables.take_over(incarnation, candidates);
    tables.queue_for(candidate.slot, false);
}

// ---------------------------------------------------------------------------- work

void NodeActor::work(std::size_t session) {
    const auto again = [this, session] {
        later(world_.between(100 * millisecond, 3 * second), [this, session] { work(session); });
    };
    const auto slots = world_.database().slots_of(incarnation_);
    if (incarnation_ == nobody || slots.empty()) {
        again();
        return;
    }
    const std::int32_t slot = world_.one_of(slots);
    const std::int64_t epoch = world_.tables.epoch_of(slot);
    later(server_time(world_), [this, session, slot, epoch] { begin(session, slot, epoch); });
}

void NodeActor::begin(std::size_t session, std::int32_t slot, std::int64_t read_before) {
    Session &mine = sessions_[session];
    mine.hold = world_.database().begin_work(mine.number, incarnation_, slot, read_before);
    if (!mine.hold) {
        if (superseded_)
            kill(0); // it has noticed that it was superseded
        later(world_.between(0, second), [this, session] { work(session); });
        return;
    }
    const bool is_long = world_.happens(world_.is_calm ? 0 : 10);
    later(is_long ? world_.between(0, 5 * second) : world_.between(0, 200 * millisecond),
          [this, session] { end(session); });
}

void NodeActor::end(std::size_t session) {
    Session &mine = sessions_[session];
    const Hold hold = *mine.hold;
    mine.hold.reset();
    if (world_.happens(950))
        world_.database().commit_work(mine.number, hold);
    else
        world_.database().end_work(mine.number, hold);
    later(world_.between(0, 2 * second), [this, session] { work(session); });
}

} // namespace stacksaga::sim
