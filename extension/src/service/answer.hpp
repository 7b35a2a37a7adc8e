// An answer of a service under its lease, and a batch of answers.
#pragma once
#include "core/saga/saga_answers.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

/// Runs an answer as the owner, which costs less than SECURITY DEFINER, with the tables open that
/// it reads and then writes.
template <class F> auto as_writing_owner(F &&answers) -> decltype(answers()) {
    return pg::as_owner([&] {
        return pg::with_spi([&] {
            return pg::with_tables(std::array{&saga_table, &work_table},
                                   static_cast<F &&>(answers));
        });
    });
}

/// An answer's saga, locked, and its step.
struct Answer {
    Saga &saga;
    const Step &step;
    int64 lease;

    core::Direction direction() const { return core::direction_of_lease(lease); }
};

/// Of the arguments saga_id, step and lease. SG404 for an unknown saga or step.
Answer begin_answer(const pg::Arguments &arguments);

inline std::string_view status_of(const Saga &saga) {
    return core::name_of(saga.status());
}

/// The marker of a completion under this lease.
std::optional<pg::TableRow> find_marker(const Answer &a);

/// Keeps a refused answer that contradicts what settled its step. `failed`: nothing for a
/// completion.
void note_answer(const Answer &a, std::optional<core::FailureClass> failed);

/// Raises the error of a step that no longer takes an answer under this lease.
[[noreturn]] void refuse_answer(const Answer &a, core::AnswerOutcome outcome);

/// One row of a batch of answers.
struct AnswerRow {
    std::optional<pg_uuid_t> saga_id;
    std::optional<std::string_view> step;
    std::optional<int64> lease;
    pg::Param output;
    const char *sqlstate = nullptr; ///< why it was refused
    std::string_view status{};
};

/// Of the arguments saga_ids, steps and leases, and of outputs where the call has them.
std::span<AnswerRow> answer_rows(const pg::Arguments &arguments, bool with_outputs);

/// Sorted, so that two batches lock the sagas that they share in the same order.
AnswerRow **in_order_of_sagas(std::span<AnswerRow> rows);

/// The saga and the step of a row, locked; nothing where the row is refused for what it names.
std::optional<Answer> begin_row(AnswerRow &row, TimestampTz now);

} // namespace stacksaga
