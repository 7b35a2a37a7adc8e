// What services, workers and operators do to the saga of a test.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

#include <new>

namespace stacksaga::core {

namespace {

/// The state that a test loads knows where from.
struct LoadedSaga : SagaState {
    TestSaga *test;
};
TestSaga &test_of(SagaState &saga) {
    return *static_cast<LoadedSaga &>(saga).test;
}

void load_effects(SagaState &saga) {
    TestSaga &test = test_of(saga);
    ++test.effect_loads;
    for (const Effect &e : test.tables.effects) {
        const auto i = static_cast<std::size_t>(e.step_no - 1);
        if (e.direction == Direction::compensate) {
            saga.progress.compensated[i] = true;
            continue;
        }
        saga.progress.acted[i] = true;
        saga.progress.acted_by_fallback[i] = e.by_fallback;
        saga.progress.acted_by_person[i] = e.settled_by == SettledBy::person;
    }
}

void load_failures(SagaState &saga) {
    TestSaga &test = test_of(saga);
    ++test.failure_loads;
    for (const StoredFailure &f : test.tables.failures)
        saga.progress.failures.push(saga.memory, {f.step_no, f.direction, f.attempt,
                                                  f.failure_class, f.outcome_known, f.by_fallback,
                                                  f.lease, f.started_at, f.failed_at});
}

void load_releases(SagaState &saga) {
    for (const Release &r : test_of(saga).tables.releases)
        saga.progress.releases.push(saga.memory, r);
}

void load_signals(SagaState &saga) {
    TestSaga &test = test_of(saga);
    ++test.signal_loads;
    for (std::size_t i = 0; i < test.tables.signals.size(); ++i)
        if (test.tables.takers[i] == 0)
            saga.signals.push(saga.memory, test.tables.signals[i]);
}

std::string_view find_error(SagaState &saga, std::int16_t step_no, std::int32_t attempt) {
    for (const StoredFailure &f : test_of(saga).tables.failures)
        if (f.step_no == step_no && f.direction == Direction::act && f.attempt == attempt) {
            auto *text =
                static_cast<char *>(saga.memory.allocate(saga.memory.owner, f.error.size() + 1));
            std::copy(f.error.begin(), f.error.end(), text); // the table's may change
            return {text, f.error.size()};
        }
    return {};
}

constexpr Source source{.load_effects = load_effects,
                        .load_failures = load_failures,
                        .load_releases = load_releases,
                        .load_signals = load_signals,
                        .find_error = find_error};

/// As leases are made, but without randomness.
std::int64_t lease_of(const Step &step, const Work &work) {
    return make_lease(work.attempt + 1, work.direction, static_cast<std::uint64_t>(step.no));
}

Failure failure_of(const SagaState &saga, FailureClass failure_class) {
    return {.failure_class = failure_class,
            .outcome_known = failure_class != FailureClass::unknown,
            .error = name_of(failure_class),
            .since = saga.now};
}

} // namespace

TestSaga::TestSaga(std::string text, Writes writes) : plan(std::move(text)), writes_(writes) {
    load();
}

void TestSaga::load() {
    auto *loaded = new (blocks_.memory().allocate(&blocks_, sizeof(LoadedSaga))) LoadedSaga{};
    loaded->test = this;
    state_ = loaded;
    SagaState &s = *state_;
    s.definition = &plan.definition();
    s.row = s.stored = tables.saga;
    s.deadline = plan.definition().deadline;
    if (plan.definition().deadline)
        s.deadline_at = time_plus(1000 * second, *plan.definition().deadline);
    if (tables.deadline_at)
        s.deadline_at = tables.deadline_at;
    s.is_child = plan.is_child();
    s.now = now;
    s.dedupe_retention_us = dedupe_retention;
    s.memory = blocks_.memory();
    s.source = &source;
    for (const Work &w : tables.work)
        s.work.push(s.memory, {.work = w, .state = RowState::stored, .wakes = false});
    delivered_ = 0;
    if (loads_progress_first)
        has_acted(s, 1);
}

void TestSaga::pass(std::int64_t seconds) {
    now += seconds * second;
    state_->now = now;
    state_->dedupe_retention_us = dedupe_retention;
}

void TestSaga::write() {
    SagaState &s = *state_;
    tables.write(s);
    List<WorkRow> live{};
    for (WorkRow row : s.work)
        if (row.is_live()) {
            row.state = RowState::stored;
            row.wakes = false;
            live.push(s.memory, row);
        }
    s.work = live;
    s.stored = s.row;
    s.changes = {};
    delivered_ = 0;
}

void TestSaga::finish_event() {
    deliver_requests();
    if (writes_ == Writes::at_the_end)
        return;
    write();
    if (writes_ == Writes::each_event)
        load();
}

/// The child sagas hear what is asked of them.
void TestSaga::deliver_requests() {
    const List<ChildRequest> &requests = state_->changes.children;
    for (; delivered_ < requests.size(); ++delivered_) {
        const ChildRequest &r = requests[delivered_];
        const auto child = children.find(r.step_no);
        if (r.kind == ChildRequest::Kind::start)
            children[r.step_no] = {.status = Status::running,
                                   .run = r.run,
                                   .is_requested = false,
                                   .output = {},
                                   .why_failed = "the child failed",
                                   .why_irreversible = "the child is irreversible"};
        else if (r.kind == ChildRequest::Kind::look)
            ++looks;
        else if (child != children.end())
            child->second.is_requested = true;
    }
}

std::optional<Work> TestSaga::work(std::string_view name, Direction d) const {
    return find_work(*state_, step(name).no, d);
}

std::optional<Child> TestSaga::child_of(const Step &step) const {
    const auto child = children.find(step.no);
    return child == children.end() ? std::nullopt : std::optional{child->second};
}

void TestSaga::start(std::int64_t due_in_seconds) {
    decide([&](SagaState &s) { open_first_stage(s, now + due_in_seconds * second); });
}

// ---------------------------------------------------------------------------------------- services

bool TestSaga::claim(std::string_view name, Direction d) {
    const Step &s = step(name);
    std::string_view queue = s.queue;
    if (const std::optional<Work> row = find_work(*state_, s.no, d))
        queue = s.queue_of(d, row->falling_back).value_or("");
    const std::optional<Work> row = find_claimable(*state_, s, d, queue, 0.5);
    if (row)
        begin_claim(*state_, s, *row, lease_of(s, *row), now + 30 * second, "service");
    finish_event();
    return row.has_value();
}

void TestSaga::complete(std::string_view name, Direction d) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, d);
    ASSERT_TRUE(row && row->lease) << name << " has no lease in " << text();
    answer(s, *row->lease);
}

void TestSaga::answer(const Step &s, std::int64_t lease) {
    const JudgedAnswer judged = judge_completion(*state_, s, lease, std::nullopt);
    ASSERT_EQ(judged.outcome, AnswerOutcome::accept) << s.name << " in " << text();
    decide([&](SagaState &saga) {
        step_completed(saga, s, *judged.work,
                       {.bits = static_cast<std::uintptr_t>(s.no), .is_null = false});
    });
}

void TestSaga::fail(std::string_view name, FailureClass failure_class, Direction d) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, d);
    ASSERT_TRUE(row && row->lease) << name << " has no lease in " << text();
    refuse(s, *row->lease, failure_class);
}

void TestSaga::refuse(const Step &s, std::int64_t lease, FailureClass failure_class) {
    const JudgedAnswer judged = judge_failure(*state_, s, lease, failure_class, false);
    if (judged.outcome == AnswerOutcome::accepted_before)
        return;
    ASSERT_EQ(judged.outcome, AnswerOutcome::accept) << s.name << " in " << text();
    decide([&](SagaState &saga) {
        step_failed(saga, s, *judged.work, failure_of(saga, failure_class), 0.5);
    });
}

void TestSaga::complete_late(const Step &s, std::int64_t lease) {
    if (judge_completion(*state_, s, lease, std::nullopt).outcome == AnswerOutcome::accept)
        answer(s, lease);
}

void TestSaga::fail_late(const Step &s, std::int64_t lease, FailureClass failure_class) {
    if (judge_failure(*state_, s, lease, failure_class, false).outcome == AnswerOutcome::accept)
        refuse(s, lease, failure_class);
}

AnswerOutcome TestSaga::release(std::string_view name, std::int64_t retry_after, Direction d) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, d);
    return release(s, row && row->lease ? *row->lease : 0, retry_after);
}

AnswerOutcome TestSaga::release(const Step &s, std::int64_t lease, std::int64_t retry_after) {
    const JudgedAnswer judged = judge_release(*state_, s, lease, false);
    if (judged.outcome == AnswerOutcome::accept)
        decide([&](SagaState &saga) {
            step_released(saga, s, *judged.work,
                          {.retry_after_us = retry_after * second, .reason = "deployment"}, 0.5);
        });
    return judged.outcome;
}

void TestSaga::serve(std::string_view name, Direction d) {
    ASSERT_TRUE(claim(name, d)) << name << " in " << text();
    complete(name, d);
}

void TestSaga::refuse(std::string_view name, Direction d) {
    ASSERT_TRUE(claim(name, d)) << name << " in " << text();
    fail(name, FailureClass::non_retryable, d);
}

// ----------------------------------------------------------------------------------------- workers

namespace {

Work next_attempt(const SagaState &saga, const Work &work) {
    Work attempt = work;
    ++attempt.attempt;
    attempt.started_at = saga.now;
    attempt.worker = "worker";
    return attempt;
}

void send_command(SagaState &saga, const Step &step, const Work &work) {
    Work attempt = next_attempt(saga, work);
    attempt.lease = lease_of(step, work);
    attempt_begins(saga);
    const std::int64_t until = time_plus(saga.now, step.timeout);
    claim_work(saga, attempt, until, until);
}

} // namespace

void TestSaga::run_row(const Step &s, const Work &row) {
    SagaState &saga = *state_;
    const auto child = children.find(s.no);
    switch (s.kind) {
    case StepKind::sql:
        attempt_begins(saga);
        step_completed(saga, s, next_attempt(saga, row),
                       {.bits = static_cast<std::uintptr_t>(s.no), .is_null = false});
        break;
    case StepKind::queue:
        FAIL() << "a service claims " << s.name;
        break;
    case StepKind::signal:
        signal_due(saga, s, row, "the signal did not arrive in time");
        break;
    case StepKind::timer:
        timer_due(saga, s, row, "worker");
        break;
    case StepKind::child:
        child_step_due(saga, s, row,
                       child == children.end() ? std::nullopt : std::optional{child->second},
                       "worker");
        break;
    case StepKind::message:
        send_command(saga, s, row);
        break;
    }
}

void TestSaga::run(std::string_view name, Direction d) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, d);
    ASSERT_TRUE(row && row->due_at <= now && !row->verifying) << name << " in " << text();
    if (row->is_claimed())
        lease_expired(*state_, s, *row, 0.5, child_of(s));
    else if (!deadline_passed(*state_))
        run_row(s, *row);
    finish_event();
}

void TestSaga::run_deadline() {
    decide([](SagaState &s) { deadline_due(s); });
}

void TestSaga::run_fails(std::string_view name, FailureClass failure_class, Direction d) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, d);
    ASSERT_TRUE(row && row->due_at <= now && !row->is_claimed()) << name << " in " << text();
    decide([&](SagaState &saga) {
        attempt_begins(saga);
        step_failed(saga, s, next_attempt(saga, *row), failure_of(saga, failure_class), 0.5);
    });
}

bool TestSaga::die_ahead(std::string_view name, Direction d) {
    bool is_charged = false;
    decide([&](SagaState &s) { is_charged = crashed_ahead(s, step(name), d, "worker"); });
    return is_charged;
}

void TestSaga::run_is_unusable(std::string_view name, Direction d) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, d);
    ASSERT_TRUE(row && row->due_at <= now && !row->is_claimed()) << name << " in " << text();
    decide([&](SagaState &saga) {
        attempt_begins(saga);
        step_is_unusable(saga, s, next_attempt(saga, *row),
                         {.failure_class = FailureClass::retryable,
                          .outcome_known = true,
                          .error = "the function is gone",
                          .since = saga.now});
    });
}

void TestSaga::verify(std::string_view name, std::string_view answer) {
    const Step &s = step(name);
    const std::optional<Work> row = find_work(*state_, s.no, Direction::act);
    ASSERT_TRUE(row && row->verifying && row->due_at <= now) << name << " in " << text();
    decide([&](SagaState &saga) {
        if (answer.starts_with("raises"))
            verify_failed(saga, s, *row,
                          {.failure_class = answer == "raises" ? FailureClass::non_retryable
                                                               : FailureClass::retryable,
                           .outcome_known = true,
                           .error = answer,
                           .since = saga.now},
                          0.5);
        else
            verify_answered(saga, s, *row,
                            {.outcome = verify_outcome_of(answer).value(), .error = answer}, 0.5);
    });
}

void TestSaga::expire(std::string_view name, Direction d) {
    const std::optional<Work> row = work(name, d);
    ASSERT_TRUE(row && row->is_claimed()) << name << " in " << text();
    now = state_->now = std::max(now, row->due_at);
    run(name, d);
}

void TestSaga::signal(std::string_view name) {
    const auto no = static_cast<std::int32_t>(tables.signals.size() + 1);
    const Signal arrived{.no = no,
                         .name = step(name).signal,
                         .payload = {.bits = static_cast<std::uintptr_t>(no), .is_null = false}};
    tables.signals.push_back(arrived);
    tables.takers.push_back(0);
    if (state_->has_signals_loaded) // the row is inserted under the saga's lock
        state_->signals.push(state_->memory, arrived);
    decide([](SagaState &s) { take_signals(s); });
}

void TestSaga::child_ends(std::string_view name, Status status) {
    Child &child = children.at(step(name).no);
    child.status = status;
    child.is_requested = false;
    child.output = {.bits = static_cast<std::uintptr_t>(100 + child.run), .is_null = false};
    decide([&](SagaState &s) { child_settled(s, step(name), child); });
}

// --------------------------------------------------------------------------------------- operators

namespace {

std::string because(const std::optional<Refusal> &refusal) {
    if (!refusal)
        return "";
    return refusal->because.empty() ? "refused" : "refused" + std::string(refusal->because);
}

} // namespace

std::string TestSaga::cancel() {
    const std::optional<Refusal> refusal = cancel_saga(*state_, "cancelled");
    finish_event();
    return because(refusal);
}

std::string TestSaga::compensate(std::int64_t delay) {
    const std::optional<Refusal> refusal = compensate_saga(*state_, "compensated", delay);
    finish_event();
    return because(refusal);
}

std::string TestSaga::suspend() {
    const std::optional<Refusal> refusal = suspend_saga(*state_);
    finish_event();
    return because(refusal);
}

std::string TestSaga::resume(std::int64_t delay) {
    const std::optional<Refusal> refusal = resume_saga(*state_, delay);
    finish_event();
    return because(refusal);
}

std::string TestSaga::retry(std::int64_t delay) {
    const std::optional<Refusal> refusal = retry_saga(*state_, delay);
    finish_event();
    return because(refusal);
}

std::string TestSaga::resolve(std::string_view name, ResolveOutcome outcome,
                              std::optional<Direction> direction) {
    const Step &s = step(name);
    const auto child = children.find(s.no);
    const Resolved resolved = resolve_step(
        *state_, s,
        {.outcome = outcome,
         .direction = direction,
         .output = outcome == ResolveOutcome::done ? Value{.bits = 99, .is_null = false} : Value{},
         .error = "the operator says no",
         .role = "operator",
         .child_stands = child != children.end() && !is_final(child->second.status)},
        0.5);
    finish_event();
    return because(resolved.refusal);
}

} // namespace stacksaga::core
