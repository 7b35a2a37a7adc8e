// A saga of a state, loaded for one event: the engine decides on it, then it is stored.
#pragma once
#include "state.hpp"

#include "core/saga/saga_answers.hpp"
#include "core/saga/saga_children.hpp"
#include "core/saga/saga_compensation.hpp"
#include "core/saga/saga_operators.hpp"

#include <stdexcept>

namespace stacksaga::truth {

using core::Direction;
using core::FailureClass;
using core::Status;

/// The tables would refuse what the engine has decided.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The definitions of a state: the saga's, and its child's or nullptr.
struct Plans {
    const Plan *saga[2];

    [[nodiscard]] const Plan &of(int which) const { return *saga[which]; }
    /// The number of the saga's child step, counted from 0, or -1.
    [[nodiscard]] int child_step() const;
};

constexpr int index_of(Direction d) {
    return static_cast<int>(d);
}

/// The instant of every event.
inline constexpr std::int64_t now = 1'000'000'000;
/// How long services remember a key.
inline constexpr std::int64_t dedupe_retention = 100'000'000;

class Loaded : public core::SagaState {
public:
    /// `which`: 0 the saga, 1 its child. One is loaded at a time, and none is copied.
    Loaded(const Plans &plans, State &state, int which);
    Loaded(const Loaded &) = delete;
    Loaded &operator=(const Loaded &) = delete;

    [[nodiscard]] const core::Step &step_at(int i) const { return plan().step(i); }
    [[nodiscard]] std::optional<core::Work> work_of(int i, Direction d) const {
        return core::find_work(*this, static_cast<std::int16_t>(i + 1), d);
    }
    /// The latest child of this step.
    [[nodiscard]] std::optional<core::Child> child() const;
    /// Of a child: what its parent says of it holds before anything else.
    void heed_parent();
    /// Writes what was decided, and delivers what it asks of other sagas.
    void store();

private:
    friend struct Loader;
    [[nodiscard]] const Plan &plan() const { return plans_.of(which_); }
    void store_row(const core::SagaRow &to);
    void store_work(const core::WorkRow &row);
    void store_failure(const core::NewFailure &failure);
    void store_release(const core::Release &release);
    void store_effect(const core::Effect &effect);
    void store_changes();
    void send(const core::ChildRequest &request);

    const Plans &plans_;
    State &state_;
    Stored &stored_;
    int which_;
};

/// Inserts the saga or the child: its first stage is due.
void start(const Plans &plans, State &state, int which);

} // namespace stacksaga::truth
