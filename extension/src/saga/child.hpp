// Child sagas: a step that is a saga of its own.
//
// Parent and child never wait for each other's locks. Each notifies the other by a row that it adds
// to the other's work: the child that it has settled (purpose child_settled), the parent that the
// child is to compensate (compensation_request). The worker that runs such a row reads what is
// committed.
#pragma once
#include "core/saga/saga.hpp"

#include "pg/pg.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

/// Why a child compensates.
inline constexpr std::string_view compensation_of_parent =
    "the parent saga requested its compensation";

/// How often the engine looks at the work of a child while a saga above it is suspended.
inline constexpr int64 ancestors_pause_us = USECS_PER_SEC;

/// All inside with_spi.

/// The id of a run of the step's child. It follows from the parent's, so on Citus the child is on
/// one known shard, which may be another than the parent's.
pg_uuid_t child_id(const pg_uuid_t &parent, int16 step_no, int32 run);

/// The number of runs of a child: each was started after the one before, and they are removed
/// together.
int32 count_child_runs(const pg_uuid_t &parent, int16 step_no);

/// The latest saga that this step has started, as the engine needs it.
std::optional<core::Child> load_child(const Saga &saga, const Step &step);

/// Starts a child, asks the latest one to compensate, or looks how it stands.
void send_request(const Saga &saga, const core::ChildRequest &request);

/// Reads the decisions of the sagas above this one, each by its key and without a lock, and applies
/// them: a child compensates with its parent. A saga without a parent has nothing to read.
void heed_ancestors(Saga &saga);

/// The saga that started this one, locked and read; null: another session holds it.
Saga *lock_parent(const Saga &saga);

/// Announces the status of this saga to the saga that started it.
void notify_parent(const Saga &saga);

} // namespace stacksaga
