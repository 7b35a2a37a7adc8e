#include "shape.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace stacksaga::truth {

namespace {

constexpr std::array<std::string_view, 7> kind_names{"sql",    "calling", "queue", "message",
                                                     "signal", "timer",   "child"};
constexpr std::array<std::string_view, 4> undo_names{"started", "completed", "guarded", "pivot"};
constexpr std::array<std::string_view, 3> verify_names{"", "looks", "settles"};
constexpr std::array<std::string_view, steps_max> step_names{"s1", "s2", "s3"};

template <class E, std::size_t N>
bool read_name(const std::array<std::string_view, N> &names, std::string_view word, E &value) {
    const auto *const place = std::find(names.begin(), names.end(), word);
    if (place == names.end())
        return false;
    value = static_cast<E>(place - names.begin());
    return true;
}

core::StepKind kind_of(Kind kind) {
    switch (kind) {
    case Kind::sql:
    case Kind::calling:
        return core::StepKind::sql;
    case Kind::queue:
        return core::StepKind::queue;
    case Kind::message:
        return core::StepKind::message;
    case Kind::signal:
        return core::StepKind::signal;
    case Kind::timer:
        return core::StepKind::timer;
    case Kind::child:
        return core::StepKind::child;
    }
    throw std::invalid_argument("no such kind");
}

core::Step step_of(const StepShape &shape, int i, int attempts, bool parks) {
    core::Step s{};
    s.no = static_cast<std::int16_t>(i + 1);
    s.stage = static_cast<std::int16_t>(shape.stage);
    s.kind = kind_of(shape.kind);
    s.name = step_names.at(static_cast<std::size_t>(i));
    s.queue = s.kind == core::StepKind::queue ? "action" : "";
    s.signal = s.kind == core::StepKind::signal ? s.name : "";
    s.child_saga = s.kind == core::StepKind::child ? "child" : "";
    s.timeout = 60'000'000;
    s.policy = {.max_attempts = attempts,
                .initial_interval_us = 0,
                .max_interval_us = 0,
                .multiplier = 1,
                .jitter = 0};
    s.has_verify = shape.verify != Verify::none;
    s.has_fallback = shape.has_fallback;
    if (s.has_fallback && s.traits().fallback != core::FallbackKind::function)
        s.fallback_queue = "fallback";
    s.compensable = shape.undo == Undo::when_started || shape.undo == Undo::when_completed;
    s.irreversible = shape.undo == Undo::pivot;
    s.compensate_when_started = shape.undo == Undo::when_started;
    s.on_failure = parks != shape.differs ? core::OnFailure::park : core::OnFailure::compensate;
    return s;
}

} // namespace

std::string Shape::text() const {
    std::ostringstream out;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const StepShape &s = steps[i];
        if (i > 0)
            out << (s.stage == steps[i - 1].stage ? ", " : " | ");
        out << kind_names.at(static_cast<std::size_t>(s.kind)) << ' '
            << undo_names.at(static_cast<std::size_t>(s.undo));
        if (s.has_fallback)
            out << " fallback";
        if (s.verify != Verify::none)
            out << ' ' << verify_names.at(static_cast<std::size_t>(s.verify));
        if (s.differs)
            out << " differs";
    }
    out << "; " << attempts << (attempts == 1 ? " attempt" : " attempts");
    if (has_deadline)
        out << " deadline";
    if (continues)
        out << " continues";
    if (parks)
        out << " parks";
    return out.str();
}

Shape shape_of_text(std::string_view text) {
    Shape shape{.steps = {}, .attempts = 2, .has_deadline = false};
    std::string spaced;
    for (const char c : text)
        spaced += c == ',' || c == '|' || c == ';' ? std::string{' ', c, ' '} : std::string{c};
    std::istringstream words(spaced);
    bool is_of_saga = false;
    bool begins = true;
    int stage = 1;
    for (std::string word; words >> word;) {
        if (word == "|" || word == ",") {
            stage += word == "|" ? 1 : 0;
            begins = true;
        } else if (word == ";") {
            is_of_saga = true;
        } else if (is_of_saga) {
            if (word == "deadline")
                shape.has_deadline = true;
            else if (word == "continues")
                shape.continues = true;
            else if (word == "parks")
                shape.parks = true;
            else if (word == "1" || word == "2" || word == "3")
                shape.attempts = word[0] - '0';
            else if (word != "attempt" && word != "attempts")
                throw std::invalid_argument("a saga is not \"" + word + "\"");
        } else {
            if (begins)
                shape.steps.push_back({.stage = stage});
            begins = false;
            StepShape &s = shape.steps.back();
            if (word == "fallback")
                s.has_fallback = true;
            else if (word == "differs")
                s.differs = true;
            else if (!read_name(kind_names, word, s.kind) && !read_name(undo_names, word, s.undo) &&
                     !read_name(verify_names, word, s.verify))
                throw std::invalid_argument("a step is not \"" + word + "\"");
        }
    }
    if (shape.steps.empty() || shape.steps.size() > steps_max)
        throw std::invalid_argument("a saga has one to three steps");
    return shape;
}

bool is_valid(const Shape &shape) {
    for (const StepShape &pivot : shape.steps)
        if (pivot.undo == Undo::pivot)
            for (const StepShape &s : shape.steps)
                if ((s.undo == Undo::when_started || s.undo == Undo::when_completed) &&
                    s.stage >= pivot.stage)
                    return false;
    return true;
}

Plan::Plan(Shape shape, bool is_child) : shape_(std::move(shape)), is_child_(is_child) {
    for (std::size_t i = 0; i < shape_.steps.size(); ++i)
        steps_.push_back(
            step_of(shape_.steps[i], static_cast<int>(i), shape_.attempts, shape_.parks));
    definition_.steps = steps_;
    definition_.stages = static_cast<std::int16_t>(shape_.steps.back().stage);
    definition_.compensation_policy = steps_.front().policy;
    if (shape_.has_deadline)
        definition_.deadline = 30'000'000;
    definition_.continue_compensating = shape_.continues;
    definition_.on_failure = shape_.parks ? core::OnFailure::park : core::OnFailure::compensate;
    for (const core::Step &s : steps_) {
        definition_.has_children |= s.kind == core::StepKind::child;
        definition_.has_signals |= s.kind == core::StepKind::signal;
    }
}

} // namespace stacksaga::truth
