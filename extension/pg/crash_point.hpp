// Crash points: named places in the source where a test ends the server as a crash would, at an
// exact step. Compiled in with -DSTACKSAGA_CRASH_POINTS alone; without it a point is nothing.
//
// The test arms a point by a file in the server's data directory, and no setting: a setting would
// still stand after the crash, and end the recovered server at the same point for ever. A process
// that passes the point takes the file by renaming it, so exactly one process ends, once.
#pragma once

#ifndef STACKSAGA_CRASH_POINTS
#define CRASH_POINT(name) static_cast<void>(0)
#else
#define CRASH_POINT(name)                                                                          \
    ::stacksaga::pg::pass_crash_point(::stacksaga::pg::known_crash_point(name))

#include <array>
#include <string_view>

#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga::pg {

/// Every crash point. A name that is not here does not compile; one that no scenario of
/// test/crash_points passes fails `make crash-points`.
inline constexpr std::string_view crash_points[]{
    "transaction: before its commit",
    "transaction: committed, its client not answered",
    "start: row written, work not yet",
    "start: work written",
    "schedule: saga started, next run not written",
    "schedule: next run written",
    "step: saga locked, work row not read",
    "step: before the function",
    "step: after the function",
    "step: before the marker",
    "step: marker written, work row still there",
    "step: work row removed",
    "step: work row written, nobody woken",
    "step: failure written, work row unchanged",
    "step: release written, work row unchanged",
    "saga: before the status",
    "saga: status written",
    "saga: event published, status not written",
    "signal: taken, status not written",
    "pause: step brought back",
    "claim: before the lease",
    "claim: lease written",
    "claim: step returned",
    "claim: limits not noted",
    "answer: saga locked",
    "answer: judged",
    "answer: completed",
    "answer: failed",
    "answer: released",
    "answer: lease extended",
    "signal: written, not taken",
    "child: notice written",
    "child: before its start",
    "child: started, its parent not committed",
    "notice: removed, saga unchanged",
    "message step: published, does not wait",
    "redact: the saga erased, not its rows",
    "retention: before the rows of sagas",
    "retention: only the sagas are left",
    "retention: sagas removed",
    "worker: before the slots",
    "worker: slots locked",
    "worker: step recorded",
    "worker: step done, record not erased",
    "worker: steps committed",
    "worker: before a failure is charged",
    "worker: crash charged, record not erased",
    "crash: before a step is charged",
    "crash: before a message is charged",
    "crash: batch copied out, position not moved",
    "handler: before it is entered",
    "handler: before deferred constraints",
    "handler: after deferred constraints",
    "log: row written, not in its index",
    "log: message appended",
    "tick: locked, not written",
    "tick: written",
    "delivery: slots locked",
    "delivery: recorded, before the handler",
    "delivery: after the handler",
    "delivery: record erased",
    "delivery: before the positions move",
    "delivery: positions moved",
    "delivery: committed",
    "position: written",
    "position: old versions removed",
    "retry: a message behind a failed one held",
    "retry: removed, its key not released",
    "retry: failure written, later ones not held",
    "retry: written",
    "dead: written, still a retry",
    "dead: redriven",
    "dead: discarded",
    "receive: leased, no batch",
    "receive: batch written",
    "ack: retries removed, position not moved",
    "ack: positions moved",
    "receive: lease extended",
    "release: retries given back, position not written",
    "generation: the next one begun",
    "generation: locked",
    "generation: old ticks removed",
    "key: begun",
    "key: begun, row written",
    "key: locked, not begun",
    "key: taken over",
    "key: checkpoint written",
    "key: locked, not completed",
    "key: completed",
    "key: forgotten",
    "key: released",
    "key: expired ones removed",
    "sequence: locked",
    "value: written",
    "accepted message: written",
    "generation: truncated",
};

/// Each line of it is a point's name, or NAME#3 for the third time that anybody passes it. The
/// first line is armed; when it has crashed the next one is.
inline constexpr char crash_file[] = "stacksaga.crash_at";
inline constexpr char crash_file_taken[] = "stacksaga.crash_taken";
/// If this is there, every process appends what it passes.
inline constexpr char crash_trace_file[] = "stacksaga.crash_trace";

consteval const char *known_crash_point(std::string_view name) {
    for (const std::string_view &point : crash_points)
        if (point == name)
            return point.data();
    __builtin_unreachable(); // not in the table: no constant expression, so it does not compile
}

inline void trace_crash_point(const char *name) {
    const int trace = open(crash_trace_file, O_WRONLY | O_APPEND);
    if (trace < 0)
        return;
    char line[128];
    const int length = snprintf(line, sizeof line, "%s\n", name);
    (void)!write(trace, line, static_cast<size_t>(length)); // at once, so lines do not mix
    close(trace);
}

/// Puts the next point's file back in one step: it appears whole.
[[gnu::noinline]] inline void arm_crash_points(const char *lines) {
    const int file = open(crash_file_taken, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file >= 0) {
        (void)!write(file, lines, strlen(lines));
        close(file);
    }
    (void)rename(crash_file_taken, crash_file);
}

/// Ends the process if the point is armed.
[[gnu::noinline]] inline void crash_if_armed(const char *name) {
    trace_crash_point(name);
    char lines[256] = "";
    const int file = open(crash_file, O_RDONLY);
    if (file < 0)
        return;
    (void)!read(file, lines, sizeof lines - 1);
    close(file);
    char *next = strchr(lines, '\n');
    if (next == nullptr)
        return;
    *next++ = '\0';
    int times = 1;
    if (char *sign = strchr(lines, '#')) {
        times = atoi(sign + 1);
        *sign = '\0';
    }
    if (strcmp(lines, name) != 0 || rename(crash_file, crash_file_taken) != 0)
        return;
    if (times > 1) {
        char again[512];
        snprintf(again, sizeof again, "%s#%d\n%s", name, times - 1, next);
        arm_crash_points(again);
        return;
    }
    if (*next != '\0')
        arm_crash_points(next);
    kill(getpid(), SIGKILL);
}

/// Whether this transaction has passed a point: the end of such a one is a point as well.
inline bool has_passed_crash_point = false;

inline constexpr TransactionUser crash_point_events{
    .before_commit =
        [] {
            if (has_passed_crash_point)
                crash_if_armed(known_crash_point("transaction: before its commit"));
        },
    .at_commit =
        [] {
            if (has_passed_crash_point)
                crash_if_armed(
                    known_crash_point("transaction: committed, its client not answered"));
        },
    .at_end = [] { has_passed_crash_point = false; },
};

inline void pass_crash_point(const char *name) {
    has_passed_crash_point = has_passed_crash_point || IsTransactionState();
    crash_if_armed(name);
}

} // namespace stacksaga::pg
#endif
