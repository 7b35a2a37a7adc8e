// Goal: no order of events breaks a saga. Method: random definitions and random events from seeds;
// after each event everything that must hold is checked, and the same events are applied to sagas
// that are loaded anew, that stay in memory, and that are written later: all must come to the same.
#include "saga_invariants.hpp"

#include <functional>
#include <random>
#include <sstream>

namespace stacksaga::core {
namespace {

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
    int between(int low, int high) { return low + below(high - low + 1); }
    bool chance(int percent) { return below(100) < percent; }
    template <class T> const T &one_of(const std::vector<T> &values) {
        return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
    }

private:
    std::mt19937_64 engine_;
};

// ------------------------------------------------------------------------------------ definitions

/// What define_saga() accepts: neither a signal nor a timer is compensable, nor any step from the
/// stage of the first irreversible one on.
std::string random_step(Random &random, int no, bool is_past_pivot) {
    const StepKindTraits &kind = step_kinds[static_cast<std::size_t>(random.below(6))];
    // All signal steps wait for the same signal.
    std::string words = kind.waits_for == StepWait::signal
                            ? "s" + std::to_string(no)
                            : std::string(1, static_cast<char>('a' + no));
    words += " " + std::string(kind.name);
    const auto add = [&](int percent, const char *word) {
        if (random.chance(percent))
            words += word;
    };
    if (is_past_pivot)
        add(50, " pivot");
    else if (kind.has_effect || kind.waits_for == StepWait::child)
        add(70, random.chance(30) ? " undo started" : " undo");
    if (kind.has_effect)
        add(25, " verify");
    add(20, " fallback");
    add(50, random.chance(50) ? " once" : " twice");
    add(40, " eager");
    add(20, " parks");
    if (kind.waits_for == StepWait::signal)
        add(40, " endless");
    return words;
}

std::string random_plan(Random &random) {
    const int steps = random.between(1, 6);
    const int stages = random.between(1, std::min(3, steps));
    const int pivot_stage = random.chance(40) ? random.below(stages) : stages;
    std::string plan;
    for (int i = 0; i < steps; ++i) {
        const int stage = i * stages / steps;
        if (i > 0)
            plan += stage == (i - 1) * stages / steps ? ", " : " | ";
        plan += random_step(random, i, stage >= pivot_stage);
    }
    plan += ";";
    for (const auto &[percent, word] :
         {std::pair{40, " continue"}, {30, " child"}, {25, " deadline"}, {20, " parks"}})
        plan += random.chance(percent) ? word : "";
    return plan;
}

// ----------------------------------------------------------------------------------------- events

/// Something that may happen now, as it is applied to each of the sagas.
struct Event {
    std::string name;
    int weight;
    std::function<void(TestSaga &)> apply;
};

/// All that may happen to a saga.
class Events {
public:
    explicit Events(const TestSaga &saga) : saga_(saga) {
        for (const Work &w : saga.tables.work)
            if (w.purpose == WorkPurpose::deadline)
                offer_deadline(w);
            else
                offer_row(w, saga.step_of(w));
        offer_others();
        offer_late();
        offer_operators();
    }

    const std::vector<Event> &list() const { return list_; }
    const Event &choose(Random &random) const {
        int sum = 0;
        for (const Event &e : list_)
            sum += e.weight;
        int left = random.below(sum);
        for (const Event &e : list_)
            if ((left -= e.weight) < 0)
                return e;
        return list_.back();
    }

private:
    void add(int weight, std::string name, std::function<void(TestSaga &)> apply) {
        list_.push_back({std::move(name), weight, std::move(apply)});
    }
    void add(int weight, const char *name, const Step &step, Direction d,
             std::function<void(TestSaga &)> apply) {
        add(weight, std::string(name) + (d == Direction::act ? " " : " ~") + std::string(step.name),
            std::move(apply));
    }

    void offer_deadline(const Work &w) {
        if (w.due_at <= saga_.now)
            add(20, "deadline", [](TestSaga &s) { s.run_deadline(); });
    }

    void offer_row(const Work &w, const Step &step) {
        const std::string_view name = step.name;
        const Direction d = w.direction;
        if (w.is_claimed() && w.lease)
            offer_answers(step, d);
        if (w.due_at > saga_.now)
            return;
        if (w.verifying) {
            for (const char *answer :
                 {"done", "not_done", "unknown", "never", "raises", "raises retryable"})
                add(8, answer, step, d, [=](TestSaga &s) { s.verify(name, answer); });
        } else if (w.is_claimed()) {
            add(20, "expire", step, d, [=](TestSaga &s) { s.run(name, d); });
            add(10, "claim", step, d, [=](TestSaga &s) { s.claim(name, d); });
        } else if (step.queue_of(d, w.falling_back)) {
            add(40, "claim", step, d, [=](TestSaga &s) { s.claim(name, d); });
        } else {
            add(40, "run", step, d, [=](TestSaga &s) { s.run(name, d); });
            if (step.kind == StepKind::sql)
                offer_errors(step, d);
        }
    }
    void offer_answers(const Step &step, Direction d) {
        const std::string_view name = step.name;
        add(25, "complete", step, d, [=](TestSaga &s) { s.complete(name, d); });
        for (const FailureClass c :
             {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
            add(6, name_of(c).data(), step, d, [=](TestSaga &s) { s.fail(name, c, d); });
    }
    /// Answers under leases that have ended.
    void offer_late() {
        for (const StoredFailure &f : saga_.tables.failures) {
            if (!f.lease)
                continue;
            const std::int64_t lease = *f.lease;
            const Step &step = saga_.plan.definition().step(f.step_no);
            const std::int16_t no = f.step_no;
            add(6, "late completion", step, f.direction,
                [=](TestSaga &s) { s.complete_late(s.plan.definition().step(no), lease); });
            for (const FailureClass c :
                 {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
                add(1, "late failure", step, f.direction,
                    [=](TestSaga &s) { s.fail_late(s.plan.definition().step(no), lease, c); });
        }
    }
    void offer_errors(const Step &step, Direction d) {
        const std::string_view name = step.name;
        for (const FailureClass c :
             {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
            add(7, name_of(c).data(), step, d, [=](TestSaga &s) { s.run_fails(name, c, d); });
        add(1, "unusable", step, d, [=](TestSaga &s) { s.run_is_unusable(name, d); });
    }

    void offer_others() {
        std::int64_t next = never;
        for (const Work &w : saga_.tables.work)
            if (w.due_at > saga_.now)
                next = std::min(next, w.due_at);
        if (next != never)
            add(30, "time passes", [=](TestSaga &s) { s.pass((next - s.now) / second); });
        const bool takes_signals =
            !is_final(saga_.tables.saga.status) && saga_.tables.saga.direction == Direction::act;
        for (const Step &step : saga_.plan.definition().steps) {
            const std::string_view name = step.name;
            const auto child = saga_.children.find(step.no);
            if (step.kind == StepKind::sql)
                for (const Direction d : {Direction::act, Direction::compensate})
                    add(2, "dies ahead", step, d, [=](TestSaga &s) { s.die_ahead(name, d); });
            if (step.kind == StepKind::signal && takes_signals)
                add(6, "signal", step, Direction::act, [=](TestSaga &s) { s.signal(name); });
            if (child == saga_.children.end())
                continue;
            const Child &c = child->second;
            if (c.status == Status::running || c.is_requested)
                for (const Status end : {Status::completed, Status::failed})
                    add(15, name_of(end).data(), step, Direction::act,
                        [=](TestSaga &s) { s.child_ends(name, end); });
        }
        if (saga_.plan.is_child())
            add(2, "parent", [](TestSaga &s) {
                s.decide([](SagaState &x) { compensate_for_parent(x, "the parent"); });
            });
    }

    void offer_operators() {
        add(1, "cancel", [](TestSaga &s) { s.cancel(); });
        add(2, "compensate", [](TestSaga &s) { s.compensate(); });
        add(3, "suspend", [](TestSaga &s) { s.suspend(); });
        const Status status = saga_.tables.saga.status;
        add(status == Status::suspended ? 15 : 1, "resume", [](TestSaga &s) { s.resume(); });
        add(status == Status::parked ? 15 : 1, "retry", [](TestSaga &s) { s.retry(); });
        for (const Step &step : saga_.plan.definition().steps)
            for (const ResolveOutcome outcome :
                 {ResolveOutcome::done, ResolveOutcome::not_done, ResolveOutcome::never_done})
                offer_resolution(step, outcome, status == Status::parked ? 2 : 1);
    }
    void offer_resolution(const Step &step, ResolveOutcome outcome, int weight) {
        const std::string_view name = step.name;
        const std::string word =
            "resolve " + std::string(resolve_outcome_names[static_cast<std::size_t>(outcome)]);
        for (const std::optional<Direction> d :
             {std::optional<Direction>{}, std::optional{Direction::act},
              std::optional{Direction::compensate}})
            add(weight, word.c_str(), step, d.value_or(Direction::act),
                [=](TestSaga &s) { s.resolve(name, outcome, d); });
    }

    const TestSaga &saga_;
    std::vector<Event> list_;
};

// ------------------------------------------------------------------------------------- the test

/// The same saga, loaded and written in different ways.
class Sagas {
public:
    explicit Sagas(const std::string &plan)
        : each_event(plan), progress_first(plan), each_and_holds(plan, Writes::each_and_holds),
          at_the_end(plan, Writes::at_the_end), now_and_then(plan, Writes::at_the_end) {
        progress_first.loads_progress_first = true;
    }

    void apply(const Event &event, Random &random) {
        for (TestSaga *s : all)
            event.apply(*s);
        if (random.chance(30))
            now_and_then.write();
        if (random.chance(15)) {
            now_and_then.write();
            now_and_then.load();
        }
        for (const TestSaga *s : all)
            ASSERT_EQ(s->text(), each_event.text()) << "number " << (s - &each_event);
    }
    void write_all() {
        at_the_end.write();
        now_and_then.write();
        for (const TestSaga *s : all)
            EXPECT_EQ(s->tables.dump(), each_event.tables.dump());
    }

    TestSaga each_event, progress_first, each_and_holds, at_the_end, now_and_then;

private:
    std::vector<TestSaga *> all{&each_event, &progress_first, &each_and_holds, &at_the_end,
                                &now_and_then};
};

/// What the seeds have reached, so that the test is known to try what it is for.
struct Reached {
    std::map<std::string, int> events;
    std::map<std::string, int> statuses;

    void note(const Event &event, const SagaRow &row) {
        ++events[event.name.substr(0, event.name.find_first_of(" ~"))];
        ++statuses[std::string(name_of(row.status)) + " " + std::string(name_of(row.direction))];
    }
};

/// Not a signal that no step waits for.
bool is_of_use(const TestSaga &s, const Event &event) {
    if (!event.name.starts_with("signal "))
        return true;
    const std::optional<Work> row = s.work(event.name.substr(7));
    return row && row->started_at && !row->falling_back;
}

/// A person does what helps a parked saga on: tries again, or says what is true.
void help(TestSaga &s) {
    const SagaRow row = s.tables.saga;
    const std::string before = s.text();
    if (s.retry().empty() && s.text() != before)
        return;
    const Step &step = s.plan.definition().step(*row.parked_step);
    const auto child = s.children.find(step.no);
    if (child != s.children.end() && !is_final(child->second.status)) {
        s.child_ends(step.name, Status::completed);
        return;
    }
    EXPECT_EQ(s.resolve(step.name, ResolveOutcome::done, row.parked_direction), "") << before;
}

/// Whoever is asked says yes: an end must come.
void bring_to_end(TestSaga &s) {
    for (int i = 0; i < 300 && !is_final(s.tables.saga.status); ++i) {
        if (s.tables.saga.suspended_at) {
            s.resume();
            continue;
        }
        if (s.tables.saga.status == Status::parked) {
            help(s);
            continue;
        }
        const Events events(s);
        // "complete" is the answer of a service, "completed" the end of a child.
        const std::vector<std::string> wanted =
            s.tables.saga.direction == Direction::act
                ? std::vector<std::string>{"done", "complete", "run", "claim", "signal", "time"}
                : std::vector<std::string>{"done", "complete ", "run", "claim", "failed", "time"};
        const Event *chosen = nullptr;
        for (const std::string &word : wanted)
            for (const Event &e : events.list())
                if (chosen == nullptr && e.name.starts_with(word) && is_of_use(s, e))
                    chosen = &e;
        ASSERT_NE(chosen, nullptr) << "nothing can happen in " << s.text();
        chosen->apply(s);
    }
    EXPECT_TRUE(is_final(s.tables.saga.status)) << "does not end: " << s.text();
}

void run_seed(std::uint64_t seed, Reached &reached, std::string &trace) {
    Random random(seed);
    const std::string plan = random_plan(random);
    trace = "seed " + std::to_string(seed) + ": " + plan + "\n";
    Sagas sagas(plan);
    const TestSaga &saga = sagas.each_event;
    const int delay = random.chance(20) ? 20 : 0;
    sagas.apply({"start", 1, [=](TestSaga &s) { s.start(delay); }}, random);
    const Invariants invariants(saga);
    int left = random.between(5, 60);
    while (left-- > 0 && !testing::Test::HasFailure()) {
        const Event event = Events(saga).choose(random);
        const Before before = invariants.before();
        trace += event.name + " -> ";
        sagas.apply(event, random);
        trace += saga.text() + "\n";
        invariants.check(before);
        reached.note(event, saga.tables.saga);
        if (is_final(saga.tables.saga.status))
            left = std::min(left, 3); // little can happen any more
    }
    sagas.write_all();
    if (!testing::Test::HasFailure())
        bring_to_end(sagas.each_event);
}

TEST(SagaRandom, NoOrderOfEventsBreaksASagaWhereverItIsWritten) {
    Reached reached;
    for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
        std::string trace;
        run_seed(seed, reached, trace);
        ASSERT_FALSE(HasFailure()) << trace;
    }
    EXPECT_EQ(reached.statuses.size(), 9U);
    for (const auto &[status, count] : reached.statuses)
        EXPECT_GT(count, 100) << status;
    EXPECT_EQ(reached.events.size(), 26U);
    for (const auto &[event, count] : reached.events)
        EXPECT_GT(count, 20) << event;
}

TEST(SagaRandom, TheSameEventsComeToTheSame) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        Reached reached;
        std::string first, second_time;
        run_seed(seed, reached, first);
        run_seed(seed, reached, second_time);
        EXPECT_EQ(first, second_time);
    }
}

} // namespace
} // namespace stacksaga::core
