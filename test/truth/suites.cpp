#include "suites.hpp"

#include <random>

namespace stacksaga::truth {

namespace {

bool acts_outside(Kind kind) {
    return kind == Kind::queue || kind == Kind::message || kind == Kind::calling;
}

/// Whether define_saga would take the step, and the model can tell it from others.
bool is_sensible(const StepShape &s) {
    if (s.verify != Verify::none && !acts_outside(s.kind))
        return false;
    if (s.kind == Kind::timer)
        return s.undo == Undo::none && !s.has_fallback;
    if (s.kind == Kind::sql)
        return s.undo != Undo::when_completed;
    // A signal step is undone where its fallback acts, which is what can be asked.
    return s.kind != Kind::signal || s.undo == Undo::none || s.has_fallback;
}

std::vector<StepShape> all_steps(std::initializer_list<Kind> kinds) {
    std::vector<StepShape> steps;
    for (const Kind kind : kinds)
        for (const Undo undo : {Undo::when_started, Undo::when_completed, Undo::none, Undo::pivot})
            for (const bool has_fallback : {false, true})
                for (const Verify verify : {Verify::none, Verify::looks, Verify::settles})
                    if (const StepShape s{.kind = kind,
                                          .undo = undo,
                                          .has_fallback = has_fallback,
                                          .verify = verify};
                        is_sensible(s))
                        steps.push_back(s);
    return steps;
}

/// Few that differ in what matters to the steps beside them.
const std::vector<StepShape> &telling_steps() {
    static const std::vector<StepShape> steps{
        {.kind = Kind::queue, .undo = Undo::when_started},
        {.kind = Kind::queue, .undo = Undo::when_started, .has_fallback = true},
        {.kind = Kind::queue, .undo = Undo::when_started, .differs = true},
        {.kind = Kind::queue, .undo = Undo::when_completed, .verify = Verify::looks},
        {.kind = Kind::queue, .undo = Undo::none},
        {.kind = Kind::queue, .undo = Undo::pivot},
        {.kind = Kind::queue, .undo = Undo::pivot, .verify = Verify::looks},
        {.kind = Kind::sql, .undo = Undo::when_started},
        {.kind = Kind::calling, .undo = Undo::pivot, .has_fallback = true},
        {.kind = Kind::signal, .undo = Undo::none},
        {.kind = Kind::timer, .undo = Undo::none},
    };
    return steps;
}

/// The sagas of `count` of these steps, in every arrangement of stages.
void add_arrangements(std::vector<Family> &families, const std::vector<StepShape> &steps,
                      std::size_t count, const Shape &saga) {
    std::vector<std::size_t> chosen(count, 0);
    for (;;) {
        for (unsigned parallel = 0; parallel < 1U << (count - 1); ++parallel) {
            Shape shape = saga;
            bool is_ordered = true; // of steps in parallel one order is enough
            int stage = 1;
            for (std::size_t i = 0; i < count; ++i) {
                const bool is_parallel = i > 0 && (parallel >> (i - 1) & 1U) != 0;
                stage += i > 0 && !is_parallel ? 1 : 0;
                is_ordered &= !is_parallel || chosen[i] >= chosen[i - 1];
                shape.steps.push_back(steps[chosen[i]]);
                shape.steps.back().stage = stage;
            }
            if (is_ordered && is_valid(shape))
                families.push_back({.saga = shape, .child = std::nullopt});
        }
        std::size_t i = count;
        while (i > 0 && ++chosen[i - 1] == steps.size())
            chosen[--i] = 0;
        if (i == 0)
            return;
    }
}

bool has_pivot(const Shape &shape) {
    for (const StepShape &s : shape.steps)
        if (s.undo == Undo::pivot)
            return true;
    return false;
}

std::vector<Shape> child_shapes() {
    std::vector<Shape> shapes;
    for (const char *text : {"queue started; 1", "queue completed; 1", "queue pivot; 1",
                             "queue pivot looks; 1", "queue pivot settles; 1",
                             "queue pivot | queue guarded; 1", "sql started | queue pivot; 1",
                             "queue pivot, queue guarded; 1", "queue started; 1 deadline"})
        shapes.push_back(shape_of_text(text));
    return shapes;
}

void add_with_children(std::vector<Family> &families, const Shape &saga) {
    const StepShape waits{.kind = Kind::child};
    for (const Shape &child : child_shapes())
        for (const bool has_fallback : {false, true})
            for (int form = 0; form < 5; ++form)
                for (const StepShape &other : telling_steps()) {
                    if ((form == 0 || form == 4) && &other != &telling_steps().front())
                        continue;
                    StepShape step = waits;
                    step.has_fallback = has_fallback;
                    step.undo = has_pivot(child) ? Undo::pivot : Undo::when_started;
                    Shape shape = saga;
                    shape.steps = {step};
                    if (form == 4)
                        shape.steps.front().verify = Verify::looks;
                    else if (form == 1)
                        shape.steps.insert(shape.steps.begin(), other);
                    else if (form > 1)
                        shape.steps.push_back(other);
                    if (form == 1 || form == 2)
                        shape.steps.back().stage = 2;
                    if (is_valid(shape))
                        families.push_back({.saga = shape, .child = child});
                }
}

/// So that a part of them, when time is short, is a part of every kind.
void shuffle(std::vector<Family> &families) {
    std::mt19937_64 random(1);
    for (std::size_t i = families.size(); i > 1; --i)
        std::swap(families[i - 1], families[random() % i]);
}

} // namespace

std::vector<Suite> suites(bool at_length) {
    std::vector<Suite> all{
        {.name = "one-step",
         .families = {},
         .settings = {.bounds = {.operations = 1, .losses = 2}}},
        {.name = "two-steps",
         .families = {},
         .settings = {.bounds = {.operations = 1, .losses = 1}}},
        {.name = "three-steps",
         .families = {},
         .settings = {.bounds = {.operations = 1, .losses = 1}}},
        {.name = "with-child",
         .families = {},
         .settings = {.bounds = {.operations = 1, .losses = 1}}},
    };
    const std::vector<StepShape> outside = all_steps(
        {Kind::queue, Kind::message, Kind::sql, Kind::calling, Kind::signal, Kind::timer});
    const std::vector<StepShape> pairs =
        at_length ? all_steps({Kind::queue, Kind::sql, Kind::calling, Kind::signal, Kind::timer})
                  : telling_steps();
    for (const bool parks : {false, true})
        for (const int attempts : {1, 2}) {
            const Shape saga{.steps = {}, .attempts = attempts, .parks = parks};
            add_arrangements(all[0].families, outside, 1, saga);
            add_arrangements(all[1].families, pairs, 2, saga);
            if (attempts == 1 || at_length)
                add_arrangements(all[2].families, telling_steps(), 3, saga);
            add_with_children(all[3].families, saga);
        }
    if (at_length) {
        all[0].settings.bounds = {.operations = 2, .losses = 3};
        all[1].settings.bounds = {.operations = 1, .losses = 2};
    }
    for (Suite &suite : all) {
        shuffle(suite.families);
        if (!at_length)
            suite.settings.states_max = 100'000;
    }
    return all;
}

Family random_family(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t bound) {
        return static_cast<std::size_t>(random() % bound);
    };
    static const std::vector<StepShape> steps = all_steps(
        {Kind::queue, Kind::message, Kind::sql, Kind::calling, Kind::signal, Kind::timer});
    for (;;) {
        Family family{.saga = {.steps = {}, .attempts = 1 + static_cast<int>(below(3))},
                      .child = std::nullopt};
        int stage = 1;
        for (std::size_t i = 0, count = 2 + below(2); i < count; ++i) {
            StepShape s = steps[below(steps.size())];
            stage += i > 0 && below(2) == 0 ? 1 : 0;
            s.stage = stage;
            s.differs = below(5) == 0;
            family.saga.steps.push_back(s);
        }
        family.saga.continues = below(4) == 0;
        family.saga.parks = below(4) == 0;
        if (below(3) == 0) {
            family.child = child_shapes()[below(child_shapes().size())];
            StepShape &s = family.saga.steps[below(family.saga.steps.size())];
            s = {.kind = Kind::child,
                 .undo = has_pivot(*family.child) ? Undo::pivot : Undo::when_started,
                 .has_fallback = below(2) == 0,
                 .stage = s.stage};
        }
        if (is_valid(family.saga))
            return family;
    }
}

} // namespace stacksaga::truth
