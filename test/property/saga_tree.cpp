// The generator of saga trees.
#include "saga_tree.hpp"

#include "random.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

// The first number of a Random's place; beside those of plan.cpp.
enum Place : uint64_t { place_tree = 101, place_tree_input, place_tree_id };

struct Kid {
    std::string name;
    bool is_irreversible;
};

std::string policy(Random &random) {
    return fmt::format("stacksaga.retry_policy(max_attempts => {}, initial_interval => '{} "
                       "minutes', multiplier => 1, max_interval => '1 hour', jitter => 0)",
                       random.one_of({0, 1, 2, 2, 3, 4}), random.one_of({0, 0, 5, 50}));
}

/// One step without its stage. A child that could be undone is not, where its step need not be.
std::string own_step(Random &random, int no, bool compensable, const char *effect,
                     int sql_percent) {
    constexpr const char *run = "property.tree_run(stacksaga.step_call)";
    const bool is_sql = random.chance(sql_percent);
    std::string text =
        is_sql ? fmt::format("stacksaga.sql_step('s{}', '{}'{}", no, run,
                             compensable ? fmt::format(", compensation => '{}'", run) : "")
               : fmt::format("stacksaga.queue_step('s{}', 'tree'{}, timeout => '{} minutes'", no,
                             *effect == 'i' ? ""
                             : compensable  ? ", compensable => true"
                                            : ", compensable => false",
                             random.one_of({36, 100, 700}));
    if (random.chance(25))
        text += is_sql ? ", fallback => 'property.tree_fall_back(stacksaga.step_call)'"
                       : ", fallback => 'tree spare'";
    return text + fmt::format(", effect => '{}'", effect);
}

std::string child_step(Random &random, int no, const Kid &kid, bool compensable) {
    const int timeout = random.one_of({36, 100, 700, 6000});
    const bool has_fallback = random.chance(25); // whose retries may not outlast its key
    std::string text = fmt::format("stacksaga.child_step('s{}', '{}', timeout => '{} minutes'", no,
                                   kid.name, has_fallback ? std::min(timeout, 2000) : timeout);
    if (has_fallback)
        text += ", fallback => 'tree spare'";
    if (!kid.is_irreversible && (!compensable || random.chance(5)))
        text += ", effect => 'guarded'";
    return text;
}

std::string signal_step(Random &random, int no) {
    return fmt::format("stacksaga.signal_step('s{}', 'go', timeout => '{} minutes', effect => "
                       "'guarded'",
                       no, random.one_of({36, 100, 700}));
}

/// Defines `name`, with these as steps among others. Returns whether it cannot be undone.
bool define(Random &random, const std::string &name, std::vector<Kid> kids, int sql_percent,
            std::string &text) {
    const int stages = random.between(1, 3);
    bool is_irreversible = false; // from this stage on
    std::string steps;
    int no = 0;
    for (int stage = 1; stage <= stages; ++stage) {
        const bool has_child = !kids.empty() && (stage == stages || random.chance(60));
        const bool child_is_pivot = has_child && kids.back().is_irreversible;
        const bool has_pivot = !child_is_pivot && kids.empty() && random.chance(12);
        is_irreversible = is_irreversible || child_is_pivot || has_pivot;
        std::vector<std::string> list;
        if (has_child) {
            list.push_back(child_step(random, ++no, kids.back(), !is_irreversible));
            kids.pop_back();
        }
        if (has_pivot)
            list.push_back(own_step(random, ++no, false, "irreversible", sql_percent));
        while (list.empty() || random.chance(35)) {
            const bool compensable = !is_irreversible && random.chance(85);
            list.push_back(own_step(random, ++no, compensable,
                                    compensable ? "compensable" : "guarded", sql_percent));
        }
        if (random.chance(20))
            list.push_back(signal_step(random, ++no));
        for (const std::string &step : list)
            steps += fmt::format("{}\n  {}, stage => {}{})", steps.empty() ? "" : ",", step, stage,
                                 random.chance(50) ? ", retry => " + policy(random) : "");
    }
    text = fmt::format("SELECT stacksaga.define_saga('{}', ARRAY[{}],\n  retry => {}", name, steps,
                       policy(random));
    if (random.chance(15))
        text += fmt::format(", deadline => '{} minutes'", random.between(1, 8) * 60 - 30);
    if (random.chance(40))
        text += ", on_compensation_failure => 'continue'";
    text += ", events_topic => 'property events')";
    return is_irreversible;
}

} // namespace

SagaTreeDefinition make_saga_tree(uint64_t seed, int number, int sql_percent) {
    Random random(seed, {place_tree, static_cast<uint64_t>(number)});
    SagaTreeDefinition f{.root = fmt::format("tree {}", number), .statements = {}};
    std::vector<Kid> kids;
    const auto add = [&](const std::string &name, const std::vector<Kid> &children) {
        f.statements.emplace_back();
        return Kid{name, define(random, name, children, sql_percent, f.statements.back())};
    };
    const Kid leaf = add(f.root + " leaf", {});
    if (random.chance(50))
        kids.push_back(add(f.root + " middle", {leaf}));
    // Two that cannot be undone would have to be done in one stage.
    if (kids.empty() || (random.chance(40) && !leaf.is_irreversible))
        kids.push_back(leaf);
    if (random.chance(25) && !leaf.is_irreversible)
        kids.push_back(leaf);
    random.shuffle(kids);
    add(f.root, kids);
    return f;
}

std::string tree_input(uint64_t seed, int number, bool may_fail) {
    Random random(seed, {place_tree_input, static_cast<uint64_t>(number)});
    // Per mille of the attempts that do not succeed.
    const int act = may_fail ? random.one_of({0, 50, 200, 200, 400}) : 0;
    const int compensate = may_fail ? random.one_of({0, 100, 400}) : 0;
    return fmt::format(R"({{"tree": {}, "seed": {}, "act": {}, "compensate": {}}})", number,
                       random.next() >> 2, act, compensate);
}

std::string tree_id(uint64_t seed, int number) {
    Random random(seed, {place_tree_id, static_cast<uint64_t>(number)});
    const uint64_t high = random.next(), low = random.next();
    return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                       high & 0xfff, low >> 52, low & 0xffffffffffff);
}

} // namespace stacksaga::property
