#include "plan.hpp"

#include "random.hpp"

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

constexpr std::string_view kind_names[] = {"sql", "queue", "signal", "timer"};

// The first number of a Random's place.
enum Place : uint64_t {
    place_definition = 1,
    place_saga,
    place_outcome,
    place_finding,
    place_id,
    place_operation,
    place_rescue
};

// An attempt after this one succeeds, so that policies without a limit come to an end.
constexpr int attempts_with_outcome = 10;

Policy random_policy(Random &random) {
    Policy p{};
    p.max_attempts = random.one_of({0, 1, 1, 2, 2, 3, 4});
    p.initial = random.one_of({0.0, 0.5, 24.0, 50.0});
    p.multiplier = random.one_of({1.0, 1.5, 3.0});
    p.longest = p.initial * random.one_of({1.0, 2.0, 4.0});
    p.jitter = random.one_of({0.0, 0.2, 0.5, 1.0});
    return p;
}

std::string policy_sql(const Policy &p) {
    return fmt::format(
        "stacksaga.retry_policy(max_attempts => {}, initial_interval => '{} minutes', "
        "multiplier => {}, max_interval => '{} minutes', jitter => {})",
        p.max_attempts, p.initial, p.multiplier, p.longest, p.jitter);
}

StepPlan random_step(Random &random, int stage, int pivot_stage) {
    StepPlan s{};
    s.stage = stage;
    s.kind = random.one_of({Kind::sql, Kind::sql, Kind::sql, Kind::queue, Kind::queue, Kind::queue,
                            Kind::queue, Kind::signal, Kind::timer});
    s.queue = queues[static_cast<size_t>(random.below(std::size(queues)))];
    // The clock of a timeout of a function is the real one; only a service's is moved here.
    s.timeout = s.kind == Kind::sql ? 60 : random.one_of({36, 36, 100, 700});
    s.has_policy = random.chance(40);
    if (s.has_policy)
        s.policy = random_policy(random);
    s.compensable = (pivot_stage == 0 || stage < pivot_stage) && random.chance(80);
    s.effect = s.compensable ? "compensable" : random.one_of({"guarded", "idempotent"});
    s.undo_when_started = random.chance(75);
    s.verify = random.chance(30);
    if (is_unseen(s.kind)) {
        s.compensable = s.verify = false;
        s.effect = "guarded";
        s.timeout = random.one_of({0, 100, 400});
        s.delay = random.one_of({0, 24, 130});
    }
    if (s.kind != Kind::timer && random.chance(30))
        s.fallback = s.kind == Kind::sql ? "property.fall_back(stacksaga.step_call)" : spare_queue;
    return s;
}

void name_and_order(Definition &d, Random &random) {
    d.numbers_stages = random.chance(75);
    if (d.numbers_stages && random.chance(30))
        random.shuffle(d.steps);
    int no = 0;
    for (StepPlan &s : d.steps) {
        s.no = ++no;
        s.name = fmt::format("s{}", no);
        if (!d.numbers_stages)
            s.stage = no;
    }
    if (!d.numbers_stages)
        d.stages = no;
}

} // namespace

Definition make_definition(uint64_t seed, int number) {
    Random random(seed, {place_definition, static_cast<uint64_t>(number)});
    Definition d{};
    d.number = number;
    d.name = fmt::format("saga {}", number);
    d.stages = random.between(1, 4);
    if (random.chance(50))
        d.policy = random_policy(random);
    if (random.chance(50))
        d.own_compensation_policy = random_policy(random);
    d.compensation_policy = d.own_compensation_policy.value_or(d.policy.value_or(default_policy));
    d.continue_compensating = random.chance(40);
    if (random.chance(15))
        d.deadline = random.between(2, 8) * 60 - 30;
    const int pivot_stage = random.chance(35) ? random.between(1, d.stages) : 0;
    for (int stage = 1; stage <= d.stages; ++stage) {
        const int width = random.one_of({1, 1, 1, 2, 2, 3});
        for (int i = 0; i < width; ++i) {
            d.steps.push_back(random_step(random, stage, pivot_stage));
            StepPlan &s = d.steps.back();
            if (!s.has_policy)
                s.policy = d.policy.value_or(default_policy);
            if (stage == pivot_stage && !is_unseen(s.kind) && random.chance(60)) {
                s.irreversible = true;
                s.effect = "irreversible";
            }
        }
    }
    name_and_order(d, random);
    return d;
}

// The arguments that a kind of step alone has.
std::string own_arguments(const StepPlan &s) {
    switch (s.kind) {
    case Kind::sql:
        return fmt::format("'property.run(stacksaga.step_call)'{}",
                           s.compensable ? ", compensation => 'property.run(stacksaga.step_call)'"
                                         : "");
    case Kind::queue:
        return fmt::format("'{}'{}", s.queue,
                           s.irreversible ? "" : fmt::format(", compensable => {}", s.compensable));
    case Kind::signal:
        return fmt::format("'signal {}'", s.name);
    case Kind::timer:
        return fmt::format("'{} minutes'", s.delay);
    }
    return "";
}

std::string define_statement(const Definition &d) {
    std::string steps;
    for (const StepPlan &s : d.steps) {
        std::string more;
        if (d.numbers_stages)
            more += fmt::format(", stage => {}", s.stage * 10);
        if (s.timeout > 0)
            more += fmt::format(", timeout => '{} minutes'", s.timeout);
        more += fmt::format(", effect => '{}', compensate_when => '{}'", s.effect,
                            s.undo_when_started ? "started" : "completed");
        if (s.verify)
            more += ", verify => 'property.verify(stacksaga.step_call)'";
        if (s.has_policy)
            more += ", retry => " + policy_sql(s.policy);
        if (!s.fallback.empty())
            more += fmt::format(", fallback => '{}'", s.fallback);
        steps +=
            fmt::format("{}\n  stacksaga.{}_step('{}', {}{})", steps.empty() ? "" : ",",
                        kind_names[static_cast<size_t>(s.kind)], s.name, own_arguments(s), more);
    }
    std::string rest = ", events_topic => 'property events'";
    if (d.deadline)
        rest += fmt::format(", deadline => '{} minutes'", *d.deadline);
    if (d.policy)
        rest += ",\n  retry => " + policy_sql(*d.policy);
    if (d.own_compensation_policy)
        rest += ",\n  compensation_retry => " + policy_sql(*d.own_compensation_policy);
    if (d.continue_compensating)
        rest += ", on_compensation_failure => 'continue'";
    return fmt::format("SELECT stacksaga.define_saga('{}', ARRAY[{}]{})", d.name, steps, rest);
}

int lease_of(std::string_view queue, int tick) {
    if (queue == "short")
        return 24;
    if (queue == "long")
        return 500;
    return tick % 3 == 0 ? 24 : 130;
}

Plan::Plan(uint64_t seed, int number) : seed_(seed), number_(number) {
    Random random(seed, {place_saga, static_cast<uint64_t>(number)});
    trouble_ = random.one_of({0, 8, 25, 25, 50, 70});
    compensation_trouble_ = random.one_of({0, 10, 40, 70});
    if (random.chance(10))
        start_after_ = random.between(1, 3);
    if (random.chance(8))
        deadline_ = random.between(2, 8) * 60 - 20;
}

std::string Plan::saga_id() const {
    Random random(seed_, {place_id, static_cast<uint64_t>(number_)});
    const uint64_t high = random.next(), low = random.next();
    return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                       high & 0xfff, low >> 52, low & 0xffffffffffff);
}

Outcome Plan::raw_outcome(const StepPlan &step, Direction direction, int attempt) const {
    Random random(seed_,
                  {place_outcome, static_cast<uint64_t>(number_), static_cast<uint64_t>(step.no),
                   static_cast<uint64_t>(direction), static_cast<uint64_t>(attempt)});
    Outcome f{};
    const bool is_sql = step.kind == Kind::sql;
    if (attempt > attempts_with_outcome)
        return f;
    if (!random.chance(direction == Direction::act ? trouble_ : compensation_trouble_)) {
        if (!is_sql && random.chance(10))
            f.repeat_after = random.below(3);
        return f;
    }
    f.word = random.one_of({Word::done, Word::retryable, Word::retryable, Word::non_retryable,
                            Word::unknown, Word::silence, Word::released});
    if (is_sql) {
        if (f.word == Word::silence || f.word == Word::released)
            f.word = Word::retryable;
        if (f.word == Word::retryable)
            f.sqlstate = random.one_of({"SR503", "SR409", "40001", "53300", "08006"});
        else if (f.word == Word::non_retryable)
            f.sqlstate = random.one_of({"SG424", "22012", "P0001", "23505"});
        else if (f.word == Word::unknown)
            f.sqlstate = "SR504";
        f.happens = f.word == Word::unknown && random.chance(50);
        return f;
    }
    f.happens = (f.word == Word::unknown || f.word == Word::silence || f.word == Word::done) &&
                random.chance(50);
    f.answer_after = random.one_of({0, 0, 0, 1, 1, 2, 3, 6});
    if (random.chance(30))
        f.repeat_after = random.below(4);
    f.repeats_other = random.chance(40);
    f.forges = random.chance(10);
    if (f.answer_after > 1 && random.chance(30))
        f.extend_by = random.one_of({24, 130});
    return f;
}

bool Plan::happened_before(const StepPlan &step, int attempt) const {
    for (int earlier = 1; earlier < attempt; ++earlier)
        if (raw_outcome(step, Direction::act, earlier).happens)
            return true;
    return false;
}

// A service that has done it already, under the same idempotency key, does not report a failure.
Outcome Plan::outcome(const StepPlan &step, Direction direction, int attempt) const {
    Outcome f = raw_outcome(step, direction, attempt);
    const bool denies =
        f.word == Word::retryable || f.word == Word::non_retryable || f.word == Word::released;
    if (direction == Direction::act && denies && happened_before(step, attempt)) {
        f.word = Word::done;
        f.sqlstate.clear();
    }
    return f;
}

Finding Plan::finding(const StepPlan &step, int attempt) const {
    Random random(seed_, {place_finding, static_cast<uint64_t>(number_),
                          static_cast<uint64_t>(step.no), static_cast<uint64_t>(attempt)});
    const bool is_endless = step.policy.max_attempts == 0; // and it is asked the same again
    if (random.chance(30)) {
        const Finding f =
            random.one_of({Finding::unknown, Finding::breaks, Finding::away, Finding::nonsense});
        return f == Finding::away && is_endless ? Finding::unknown : f;
    }
    if (happened_before(step, attempt + 1))
        return Finding::done;
    return random.chance(20) || (step.irreversible && is_endless) ? Finding::never_done
                                                                  : Finding::not_done;
}

std::vector<Operation> Plan::operations(const Definition &definition) const {
    Random random(seed_, {place_operation, static_cast<uint64_t>(number_)});
    std::vector<Operation> list;
    for (const StepPlan &step : definition.steps) {
        if (step.kind != Kind::signal)
            continue;
        // One that can wait for ever is not left alone.
        if (step.timeout > 0 && random.chance(20))
            continue;
        int tick = random.below(6);
        for (int message = 1; message <= 2; ++message) {
            list.push_back({tick, Action::signal, step.no, message});
            if (random.chance(30)) // the same message twice
                list.push_back({tick + random.below(3), Action::signal, step.no, message});
            if (random.chance(70))
                break;
            tick += 3;
        }
    }
    if (random.chance(12))
        list.push_back({random.below(10), Action::cancel});
    if (random.chance(15)) {
        const int tick = random.below(8);
        list.push_back({tick, Action::suspend});
        if (random.chance(15))
            list.push_back({tick + random.below(3), Action::cancel});
        list.push_back({tick + random.between(0, 4), Action::resume});
    }
    if (random.chance(8))
        list.push_back({random.below(10),
                        random.one_of({Action::done, Action::not_done, Action::never}),
                        random.between(1, static_cast<int>(definition.steps.size()))});
    if (random.chance(4))
        list.push_back({random.below(10), random.one_of({Action::retry, Action::resume})});
    return list;
}

std::optional<Action> Plan::rescue(int n) const {
    Random random(seed_, {place_rescue, static_cast<uint64_t>(number_), static_cast<uint64_t>(n)});
    if (n > 3 || random.chance(40))
        return std::nullopt;
    return random.one_of({Action::retry, Action::retry, Action::done, Action::not_done,
                          Action::never, Action::cancel});
}

std::string Plan::input(const Definition &definition) const {
    std::string act, compensate, verify;
    for (const StepPlan &s : definition.steps) {
        std::string lists[3];
        for (int attempt = 1; attempt <= attempts_with_outcome; ++attempt) {
            for (Direction d : {Direction::act, Direction::compensate}) {
                const Outcome f = outcome(s, d, attempt);
                lists[static_cast<size_t>(d)] +=
                    f.sqlstate.empty() ? "null," : fmt::format("\"{}\",", f.sqlstate);
            }
            lists[2] += fmt::format("\"{}\",", name_of(finding(s, attempt)));
        }
        for (std::string &list : lists)
            list.back() = ']';
        if (s.kind == Kind::sql) {
            act += fmt::format("{}\"{}\": [{}", act.empty() ? "" : ", ", s.name, lists[0]);
            if (s.compensable)
                compensate +=
                    fmt::format("{}\"{}\": [{}", compensate.empty() ? "" : ", ", s.name, lists[1]);
        }
        if (s.verify)
            verify += fmt::format("{}\"{}\": [{}", verify.empty() ? "" : ", ", s.name, lists[2]);
    }
    return fmt::format(R"({{"no": {}, "act": {{{}}}, "compensate": {{{}}}, "verify": {{{}}}}})",
                       number_, act, compensate, verify);
}

} // namespace stacksaga::property
