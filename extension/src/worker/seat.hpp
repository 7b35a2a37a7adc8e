// A worker's seats: one for each ring that it serves, with its node in that ring.
//
// The loop (worker.cpp) gives each seat its turn. A seat's due actions are registering, a heartbeat
// with the slots that it grants, schedules, a turn of due work, and maintenance.
#pragma once
#include "src/common/loop_guard.hpp"
#include "src/ring/node.hpp"
#include "src/worker/worker_process.hpp"

namespace stacksaga {

/// Counted for the view worker_stats.
struct WorkerStats {
    int64 turns = 0;
    int64 items = 0;
    int64 failures = 0;
    int64 deferred = 0;
    int64 last_turn_us = 0;
    bool has_news = false;
};

/// The state of this process in one ring that it serves.
struct Seat {
    int32 ring_id;
    NameData region;
    NameData cluster;

    bool is_registered;
    NodeIdentity node;

    int64 turn_at;
    int64 beat_at;
    int64 last_beat_at;
    int64 maintain_at;
    int64 busy_us; ///< since the last beat
};
static_assert(std::is_trivially_destructible_v<Seat>);

/// The state of this process. Instants are of the steady clock.
struct Worker {
    WorkerOrder order{};
    MemoryContext memory = nullptr;
    const char *database = nullptr;
    Oid extension = InvalidOid; ///< the one that this process began with

    bool is_absent = false;
    int64 absent_since = 0;

    Seat *seats = nullptr;
    size_t seat_count = 0;
    size_t first_seat = 0;   ///< of the next round: after an error in one the next seat begins
    Seat *current = nullptr; ///< the one that this process works in
    bool lacks_own_ring = false;

    int64 check_at = 0;
    int64 rings_at = 0;    ///< when to read which rings there are
    int64 quiet_until = 0; ///< a wake before this instant waits until then
    int64 report_at = 0;
    WorkerStats stats;

    LoopGuard loop_guard{};
    LoopGuard schedule_guard{}; ///< an error of schedules does not keep turns from being taken

    std::span<Seat> all_seats() const { return {seats, seat_count}; }
};

/// Takes a seat in each ring that is to be served, and gives up the others.
void read_rings(Worker &worker);
/// Gives up the node of each seat, so that its slots are assigned again at once.
void give_up_nodes(Worker &worker);
/// Charges the crash of the last process of the worker's number, if it left a record.
void charge_predecessor(const Worker &worker);
/// Runs the due actions of one ring: registers, sends a heartbeat, fires schedules, takes a turn,
/// which ends by releasing every lock of the session.
void work_in(Worker &worker, Seat &seat);
/// Runs retention and other maintenance when it is due.
void maintain_if_due(Seat &seat);
/// The instant of the next due action, on the steady clock.
int64 due_at(const Worker &worker, const Seat &seat, int64 now);

} // namespace stacksaga
