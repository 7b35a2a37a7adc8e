#include "saga_fixture.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace stacksaga::core {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(separator), text.size());
        if (end > 0)
            parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

} // namespace

Memory Blocks::memory() {
    return {.allocate = [](void *owner, std::size_t bytes) -> void * {
                auto &blocks = static_cast<Blocks *>(owner)->blocks_;
                blocks.push_back(
                    std::make_unique<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1));
                return blocks.back().get();
            },
            .owner = this};
}

// --------------------------------------------------------------------------------------- the plan

Plan::Plan(std::string text) : text_(std::move(text)) {
    const std::vector<std::string_view> parts = split(text_, ';');
    std::int16_t stage = 0;
    for (const std::string_view words : split(parts[0], '|')) {
        ++stage;
        for (const std::string_view step : split(words, ','))
            read_step(step, stage);
    }
    definition_.steps = steps_;
    definition_.stages = stage;
    definition_.compensation_policy = {.max_attempts = 2,
                                       .initial_interval_us = 5 * second,
                                       .max_interval_us = 5 * second,
                                       .multiplier = 1,
                                       .jitter = 0};
    for (const Step &s : steps_)
        definition_.has_children |= s.kind == StepKind::child;
    if (parts.size() > 1)
        read_saga_words(parts[1]);
}

void Plan::read_step(std::string_view text, std::int16_t stage) {
    const std::vector<std::string_view> words = split(text, ' ');
    Step s{};
    s.no = static_cast<std::int16_t>(steps_.size() + 1);
    s.stage = stage;
    s.name = words.at(0);
    s.kind = step_kind_of(words.at(1)).value();
    s.queue = s.kind == StepKind::queue ? "work" : "";
    s.signal = s.kind == StepKind::signal ? s.name.substr(0, 1) : "";
    s.delay = 10 * second;
    s.timeout = 60 * second;
    s.policy = {.max_attempts = 3,
                .initial_interval_us = 5 * second,
                .max_interval_us = 5 * second,
                .multiplier = 1,
                .jitter = 0};
    for (std::size_t i = 2; i < words.size(); ++i) {
        const std::string_view word = words[i];
        s.compensable |= word == "undo";
        s.irreversible |= word == "pivot";
        s.idempotent |= word == "idempotent";
        if (word == "parks")
            s.on_failure = OnFailure::park;
        s.compensate_when_started |= word == "started";
        s.has_verify |= word == "verify";
        s.has_fallback |= word == "fallback";
        if (word == "once" || word == "twice")
            s.policy.max_attempts = word == "once" ? 1 : 2;
        if (word == "eager")
            s.policy.initial_interval_us = 0;
        if (word == "endless")
            s.timeout = no_timeout;
    }
    if (s.has_fallback && s.traits().fallback != FallbackKind::function)
        s.fallback_queue = "other";
    steps_.push_back(s);
}

void Plan::read_saga_words(std::string_view text) {
    for (const std::string_view word : split(text, ' ')) {
        definition_.continue_compensating |= word == "continue";
        is_child_ |= word == "child";
        if (word == "parks")
            definition_.on_failure = OnFailure::park;
        if (word == "deadline")
            definition_.deadline = 1000 * second;
    }
}

// ------------------------------------------------------------------------------------- the tables

namespace {

bool is_same_row(const Work &a, const Work &b) {
    return a.purpose == b.purpose && a.step_no == b.step_no && a.direction == b.direction;
}

void write_work(std::vector<Work> &table, const WorkRow &row) {
    const auto place = std::find_if(table.begin(), table.end(),
                                    [&](const Work &w) { return is_same_row(w, row.work); });
    const bool is_there = place != table.end();
    switch (row.state) {
    case RowState::added:
        ASSERT_FALSE(is_there) << "a second row of step " << row.work.step_no;
        table.push_back(row.work);
        break;
    case RowState::changed:
        ASSERT_TRUE(is_there) << "no row of step " << row.work.step_no << " to change";
        *place = row.work;
        break;
    case RowState::removed:
        ASSERT_TRUE(is_there) << "no row of step " << row.work.step_no << " to remove";
        table.erase(place);
        break;
    case RowState::stored:
        ASSERT_TRUE(is_there);
        break;
    case RowState::gone:
        ASSERT_FALSE(is_there);
        break;
    }
}

void write_failure_row(std::vector<StoredFailure> &table, const NewFailure &n) {
    StoredFailure row{.step_no = n.step_no,
                      .direction = n.direction,
                      .attempt = n.attempt,
                      .failure_class = n.failure.failure_class,
                      .outcome_known = n.failure.outcome_known,
                      .by_fallback = n.by_fallback,
                      .lease = n.lease,
                      .started_at = n.started_at,
                      .failed_at = n.failure.since,
                      .error = std::string(n.failure.error)};
    for (StoredFailure &f : table)
        if (f.step_no == row.step_no && f.direction == row.direction && f.attempt == row.attempt) {
            if (n.failure.adds_to_error)
                row.error = f.error + "; " + row.error;
            f = row;
            return;
        }
    table.push_back(row);
}

void write_effect_row(std::vector<Effect> &table, const Effect &effect) {
    for (const Effect &e : table)
        ASSERT_FALSE(e.step_no == effect.step_no && e.direction == effect.direction)
            << "a second marker of step " << effect.step_no;
    table.push_back(effect);
}

template <class T> std::string optional_text(const std::optional<T> &value) {
    std::ostringstream out;
    if (value)
        out << *value;
    else
        out << '-';
    return out.str();
}

} // namespace

void Tables::write(const SagaState &s) {
    for (const Effect &effect : s.changes.effects)
        write_effect_row(effects, effect);
    for (const Settled &settled : s.changes.settled)
        for (StoredFailure &f : failures)
            f.outcome_known |= settled.concerns(f.step_no, f.direction, f.attempt);
    for (const NewFailure &failure : s.changes.failures)
        write_failure_row(failures, failure);
    for (const NewRelease &n : s.changes.releases) {
        for (const Release &r : releases)
            EXPECT_FALSE(r.step_no == n.release.step_no && r.direction == n.release.direction &&
                         r.attempt == n.release.attempt)
                << "attempt " << r.attempt << " is released twice";
        releases.push_back(n.release);
    }
    for (const WorkRow &row : s.work)
        write_work(work, row);
    for (const TakenSignal &taken : s.changes.taken) {
        std::int16_t &taker = takers.at(static_cast<std::size_t>(taken.no - 1));
        EXPECT_EQ(taker, 0) << "a signal is taken twice";
        taker = taken.step_no;
    }
    for (const SagaRow &row : s.changes.rows) {
        EXPECT_TRUE(may_change(saga.status, saga.direction, row.status, row.direction, s.is_child))
            << name_of(saga.status) << " to " << name_of(row.status);
        saga = row;
        statuses.push_back(row);
    }
    if (s.changes.moves_deadline)
        deadline_at = s.deadline_at;
    retries += s.changes.retries;
    parent_notices += s.changes.notifies_parent ? 1 : 0;
    notices_removed |= s.changes.removes_notices;
}

std::string Tables::dump() const {
    std::ostringstream out;
    out << name_of(saga.status) << ' ' << name_of(saga.direction) << ' '
        << optional_text(saga.failed_step) << ' ' << optional_text(saga.error) << ' '
        << optional_text(saga.parked_step) << '\n';
    std::map<std::pair<std::int16_t, Direction>, std::string> rows;
    for (const Work &w : work) {
        std::ostringstream row;
        row << "work " << name_of(w.purpose) << ' ' << w.step_no << ' ' << name_of(w.direction)
            << " due " << w.due_at << " attempt " << w.attempt << " base " << w.attempt_base
            << " lease " << optional_text(w.lease) << " until " << optional_text(w.lease_until)
            << " started " << optional_text(w.started_at) << " resume "
            << optional_text(w.resume_at) << (w.verifying ? " verifying" : "")
            << (w.falling_back ? " falling_back" : "") << (w.deferred ? " deferred" : "") << ' '
            << optional_text(w.worker) << '\n';
        rows[{w.step_no, w.direction}] += row.str();
    }
    for (const auto &[key, row] : rows)
        out << row;
    for (const Effect &e : effects)
        out << "effect " << e.step_no << ' ' << name_of(e.direction) << ' ' << e.attempt << ' '
            << optional_text(e.lease) << ' ' << e.started_at << ' ' << optional_text(e.worker)
            << ' ' << e.output.bits << '\n';
    for (const StoredFailure &f : failures)
        out << "failure " << f.step_no << ' ' << name_of(f.direction) << ' ' << f.attempt << ' '
            << name_of(f.failure_class) << ' ' << f.outcome_known << ' ' << f.error << '\n';
    for (const Release &r : releases)
        out << "release " << r.step_no << ' ' << name_of(r.direction) << ' ' << r.attempt << '\n';
    for (const std::int16_t taker : takers)
        out << "signal of " << taker << '\n';
    out << "retries " << retries << (notices_removed ? ", notices removed" : "") << '\n';
    return out.str();
}

// ---------------------------------------------------------------------------------------- as text

namespace {

std::string text_of(const Work &w, std::int64_t now) {
    std::string words;
    if (w.falling_back)
        words += " fallback";
    if (w.is_claimed())
        words += " claimed";
    if (w.verifying)
        words += " verifying";
    if (w.resume_at)
        words += " held";
    else if (w.is_claimed())
        return words;
    else if (w.is_ahead())
        words += " ahead";
    else if (w.due_at == never)
        words += " waits";
    else if (w.due_at > now)
        words += " in " + std::to_string((w.due_at - now) / second);
    else if (!w.verifying)
        words += " due";
    return words;
}

std::string mark(Direction d) {
    return d == Direction::act ? "" : "~";
}

} // namespace

std::string TestSaga::text() const {
    const SagaState &s = *state_;
    const bool is_stopped = s.row.status == Status::suspended || s.row.status == Status::parked;
    std::string out{name_of(s.row.status)};
    if (is_stopped)
        out += mark(s.row.direction);
    if (s.row.parked_step)
        out += " for " + mark(*s.row.parked_direction) +
               std::string(plan.definition().step(*s.row.parked_step).name);
    std::map<std::pair<std::int16_t, Direction>, std::string> rows;
    for (const WorkRow &row : s.work)
        if (row.is_live())
            rows[{row.work.step_no, row.work.direction}] +=
                (row.work.purpose == WorkPurpose::deadline
                     ? "deadline"
                     : mark(row.work.direction) +
                           std::string(plan.definition().step(row.work.step_no).name)) +
                text_of(row.work, now);
    const char *separator = ": ";
    for (const auto &[key, row] : rows) {
        out += separator + row;
        separator = ", ";
    }
    return out;
}

std::string TestSaga::markers() const {
    std::map<std::pair<std::int16_t, Direction>, std::string> done;
    const auto add = [&](const Effect &e) {
        done[{e.step_no, e.direction}] =
            mark(e.direction) + std::string(plan.definition().step(e.step_no).name);
    };
    for (const Effect &e : tables.effects)
        add(e);
    for (const Effect &e : state_->changes.effects)
        add(e);
    std::string out;
    for (const auto &[key, name] : done)
        out += (out.empty() ? "" : " ") + name;
    return out;
}

} // namespace stacksaga::core
