// What a saga of the model looks like: its steps and what holds of them, in one line, and the
// definition that the engine gets of it.
#pragma once
#include "core/saga/definition.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stacksaga::truth {

inline constexpr int steps_max = 3;

/// What a step does, as far as the world can tell the difference.
enum class Kind : std::uint8_t {
    sql,     ///< a function in the transaction of its marker
    calling, ///< a SQL function that calls a service, and raises SR504 when it does not answer
    queue,   ///< a service claims it
    message, ///< a service gets a command
    signal,  ///< somebody acts, and says so by a signal
    timer,   ///< nothing but time
    child,   ///< a saga of its own
};

/// What a verify function can find out.
enum class Verify : std::uint8_t {
    none,
    looks,   ///< whether the effect is there now
    settles, ///< also that it is not, and cannot come any more
};

enum class Undo : std::uint8_t {
    when_started,   ///< compensable, also in doubt
    when_completed, ///< compensable, once it is known to be done
    none,           ///< guarded: it may stand
    pivot,          ///< irreversible
};

struct StepShape {
    Kind kind = Kind::queue;
    Undo undo = Undo::when_started;
    bool has_fallback = false;
    Verify verify = Verify::none;
    int stage = 1;
    bool differs = false; ///< its own on_failure is the one that the saga does not say
};

struct Shape {
    std::vector<StepShape> steps;
    int attempts = 2; ///< of each step, and of each compensation
    bool has_deadline = true;
    bool continues = false; ///< on_compensation_failure => 'continue'
    bool parks = false;     ///< on_failure => 'park'

    /// For people: "queue undo fallback | queue pivot verify(looks); 2 attempts".
    [[nodiscard]] std::string text() const;
};

/// A shape with the definition that the engine reads. Does not move: the definition points into it.
class Plan {
public:
    Plan(Shape shape, bool is_child);
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;

    [[nodiscard]] const Shape &shape() const { return shape_; }
    [[nodiscard]] const core::Definition &definition() const { return definition_; }
    [[nodiscard]] const core::Step &step(int i) const {
        return steps_[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] const StepShape &shape_of(int i) const {
        return shape_.steps[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] int steps() const { return static_cast<int>(steps_.size()); }
    [[nodiscard]] bool is_child() const { return is_child_; }
    [[nodiscard]] bool is_pivot(int i) const { return shape_of(i).undo == Undo::pivot; }
    [[nodiscard]] bool is_compensable(int i) const {
        return shape_of(i).undo == Undo::when_started || shape_of(i).undo == Undo::when_completed;
    }

private:
    Shape shape_;
    std::vector<core::Step> steps_;
    core::Definition definition_{};
    bool is_child_;
};

/// Reads what text() writes; std::invalid_argument says what it does not understand.
Shape shape_of_text(std::string_view text);

/// Whether define_saga would take it: nothing compensable in or behind the stage of a pivot.
bool is_valid(const Shape &shape);

} // namespace stacksaga::truth
