// Counters for metrics(): what happened in this database, counted where it happens.
//
// They live in a small file that every process of the server maps (counter_file.hpp), so that
// counting is an addition in memory: no row that all would write, no WAL, and nothing to count when
// metrics() is called. What a transaction counts is added when it commits, and forgotten with the
// subtransaction or transaction that rolls it back. On another server the counters begin at 0,
// which Prometheus treats as a reset.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser counter_events;

/// New ones go to the end: the number of a counter is its place in the file.
enum class Counter : uint8_t {
    sagas_started,
    sagas_completed,
    sagas_failed,
    sagas_parked,
    sagas_compensated, ///< began to compensate
    acts_completed,
    acts_failed_retryable,
    acts_failed_non_retryable,
    acts_failed_unknown,
    compensations_completed,
    compensations_failed_retryable,
    compensations_failed_non_retryable,
    compensations_failed_unknown,
    retries,
    schedule_runs_started,
    schedule_runs_skipped,
    schedule_runs_failed,
    contradictions,
    releases,
};

/// How a counter is shown; `labels` is the text of a jsonb object.
struct CounterName {
    Counter counter;
    std::string_view name;
    std::string_view labels;
};
inline constexpr std::array counter_names{
    CounterName{Counter::sagas_started, "stacksaga_sagas_started_total", "{}"},
    CounterName{Counter::sagas_completed, "stacksaga_sagas_finished_total",
                R"({"status": "completed"})"},
    CounterName{Counter::sagas_failed, "stacksaga_sagas_finished_total", R"({"status": "failed"})"},
    CounterName{Counter::sagas_parked, "stacksaga_sagas_parked_total", "{}"},
    CounterName{Counter::sagas_compensated, "stacksaga_sagas_compensated_total", "{}"},
    CounterName{Counter::acts_completed, "stacksaga_steps_completed_total",
                R"({"direction": "act"})"},
    CounterName{Counter::acts_failed_retryable, "stacksaga_attempts_failed_total",
                R"({"direction": "act", "class": "retryable"})"},
    CounterName{Counter::acts_failed_non_retryable, "stacksaga_attempts_failed_total",
                R"({"direction": "act", "class": "non_retryable"})"},
    CounterName{Counter::acts_failed_unknown, "stacksaga_attempts_failed_total",
                R"({"direction": "act", "class": "unknown"})"},
    CounterName{Counter::compensations_completed, "stacksaga_steps_completed_total",
                R"({"direction": "compensate"})"},
    CounterName{Counter::compensations_failed_retryable, "stacksaga_attempts_failed_total",
                R"({"direction": "compensate", "class": "retryable"})"},
    CounterName{Counter::compensations_failed_non_retryable, "stacksaga_attempts_failed_total",
                R"({"direction": "compensate", "class": "non_retryable"})"},
    CounterName{Counter::compensations_failed_unknown, "stacksaga_attempts_failed_total",
                R"({"direction": "compensate", "class": "unknown"})"},
    CounterName{Counter::retries, "stacksaga_retries_total", "{}"},
    CounterName{Counter::schedule_runs_started, "stacksaga_schedule_runs_total",
                R"({"outcome": "started"})"},
    CounterName{Counter::schedule_runs_skipped, "stacksaga_schedule_runs_total",
                R"({"outcome": "skipped"})"},
    CounterName{Counter::schedule_runs_failed, "stacksaga_schedule_runs_total",
                R"({"outcome": "failed"})"},
    CounterName{Counter::contradictions, "stacksaga_contradictions_total", "{}"},
    CounterName{Counter::releases, "stacksaga_releases_total", "{}"},
};
inline constexpr size_t counter_count = counter_names.size();

/// Counts once the transaction commits. Never raises but for want of memory; where the file cannot
/// be had, a line in the server's log says so and nothing is counted.
void count_event(Counter counter, int64 amount = 1);

/// Counts now, whatever becomes of the transaction.
void count_at_once(Counter counter);

/// One saga more (1) or less (-1) of a status, once the transaction commits; see saga_tally.hpp.
void count_saga(core::Status status, int64 change);

/// Counters of steps, by direction and class.
void count_completed(core::Direction direction);
void count_failed(core::Direction direction, core::FailureClass failure_class);

} // namespace stacksaga
