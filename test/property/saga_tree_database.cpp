#include "live_worker.hpp"
#include "saga_tree.hpp"

#include <map>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

// From this hour on nothing fails any more, and some hours later everything must be final.
constexpr int calm_from = 60; // as in saga_tree.sql
constexpr int ticks_max = calm_from + 240;

constexpr const char *select_unfinished = R"(
    SELECT EXISTS (SELECT FROM stacksaga.saga WHERE status NOT IN ('completed', 'failed'))
        OR EXISTS (SELECT FROM property.tree_answer)
        OR EXISTS (SELECT FROM stacksaga.work))";
constexpr const char *select_events = R"(
    SELECT line FROM (
        SELECT format('%s: %s of %s took effect, attempt %s%s', saga_id, direction, step, attempt,
                      CASE WHEN fallback THEN ', by its fallback' END), effect_no
          FROM property.tree_effect
         UNION ALL
        SELECT format('%s: hour %s, %s %s: %s', saga_id, tick, action, step, reply), operation_no
          FROM property.tree_operation) AS e (line, n)
     WHERE left(line, 36)::uuid IN (SELECT saga_id FROM property.tree_saga WHERE tree = $1)
     ORDER BY n)";

} // namespace

SagaTreeDatabase::SagaTreeDatabase(const std::string &database, const std::string &script,
                                   uint64_t seed)
    : seed_(seed), session_("dbname=" + database, "-c statement_timeout=2min") {
    session_.run_script(script);
}

SagaTreeDatabase::SagaTreeDatabase(const std::string &database, const std::string &script,
                                   uint64_t seed, int kills)
    : SagaTreeDatabase(database, script, seed) {
    worker_ = std::make_unique<LiveWorker>(session_, database, seed, kills);
}

SagaTreeDatabase::~SagaTreeDatabase() = default;

int SagaTreeDatabase::run(int first, int last, bool report_all, std::vector<std::string> &reports) {
    const int round = worker_ ? first / trees_per_round % rounds : 1;
    if (worker_)
        worker_->spare(round != 2);
    start(first, last, round != 0);
    for (int tick = 0; tick < ticks_max && run_tick(tick); ++tick)
        ;
    std::map<int, std::string> broken;
    const support::Rows rows = session_.run("SELECT tree, what FROM property.tree_broken");
    for (int i = 0; i < rows.size(); ++i)
        broken[static_cast<int>(rows.number(i, 0))] += "\n  " + rows.text(i, 1);
    for (int number = first; number < last; ++number)
        if (report_all || broken.contains(number))
            reports.push_back(report(number, broken.contains(number) ? broken[number] : " kept"));
    session_.run("SELECT property.tree_forget()");
    return static_cast<int>(broken.size());
}

void SagaTreeDatabase::start(int first, int last, bool may_fail) {
    begin_hour(0);
    SagaTreeDefinition definition;
    for (int number = first; number < last; ++number) {
        if (number == first || number % trees_per_definition == 0) {
            definition = definition_of(number);
            for (const std::string &statement : definition.statements)
                session_.run(statement.c_str());
        }
        session_.run(
            "SELECT stacksaga.start_saga($1, $2::jsonb, saga_id => $3::uuid)",
            {definition.root, tree_input(seed_, number, may_fail), tree_id(seed_, number)});
    }
    end_hour();
}

/// Mostly SQL steps where a worker may run them ahead.
SagaTreeDefinition SagaTreeDatabase::definition_of(int number) const {
    return make_saga_tree(seed_, number / trees_per_definition, worker_ ? 85 : 50);
}

/// In a transaction of its own, or with a worker that sees what is committed.
void SagaTreeDatabase::begin_hour(int tick) {
    if (worker_) {
        worker_->move_clock(tick);
        return;
    }
    session_.run("BEGIN");
    session_.run(fmt::format("SET LOCAL stacksaga.clock_offset = '{} hours'", tick).c_str());
}

void SagaTreeDatabase::end_hour() {
    if (!worker_)
        session_.run("COMMIT");
}

/// Whether anything was done, where that is known.
bool SagaTreeDatabase::run_steps() {
    if (worker_) {
        worker_->await_rest();
        return false;
    }
    return session_.run("SELECT stacksaga.run_pending(1000000)").number(0, 0) > 0;
}

/// One hour. Returns whether something is left for the next one.
bool SagaTreeDatabase::run_tick(int tick) {
    begin_hour(tick);
    const std::string now = fmt::format("{}", tick);
    const auto count = [&](const char *sql, const std::vector<std::string> &parameters) {
        return session_.run(sql, parameters).number(0, 0);
    };
    const auto serve = [&](std::string_view queue) {
        return count("SELECT property.tree_serve($1, $2::integer, make_interval(mins => $3))",
                     {std::string(queue), now, tick % 3 == 0 ? "24" : "130"});
    };
    bool busy = true;
    bool is_first = true;
    while (busy) {
        busy = run_steps();
        busy = count("SELECT property.tree_answers($1::integer)", {now}) > 0 || busy;
        if (is_first) {
            busy = count("SELECT property.tree_operate($1::integer)", {now}) > 0 || busy;
            busy = count("SELECT property.tree_signals($1::integer)", {now}) > 0 || busy;
        }
        is_first = false;
        busy = serve("tree") > 0 || busy;
        busy = serve("tree spare") > 0 || busy;
    }
    const bool is_left = session_.run(select_unfinished).text(0, 0) == "t";
    end_hour();
    return is_left;
}

std::string SagaTreeDatabase::report(int number, const std::string &broken) {
    std::string text =
        fmt::format("-- saga tree {} ({}--seed {} {} {})\npromises:{}\n", number,
                    worker_ ? "of a worker, " : "", seed_, worker_ ? "--live" : "--tree",
                    worker_ ? number + 1 : number, broken);
    for (const std::string &statement : definition_of(number).statements)
        text += statement + ";\n";
    text += "input " +
            session_
                .run("SELECT input FROM stacksaga.saga WHERE saga_id = $1::uuid",
                     {tree_id(seed_, number)})
                .text(0, 0) +
            "\n";
    const support::Rows events = session_.run(select_events, {fmt::format("{}", number)});
    for (int i = 0; i < events.size(); ++i)
        text += "  " + events.text(i, 0) + "\n";
    const support::Rows sagas = session_.run(R"(
        SELECT saga_id, format('%s, %s, step %s of %s, run %s, %s', saga_id, d.saga, parent_step,
                               parent_id, run, status)
          FROM property.tree_saga s JOIN stacksaga.saga_definition d USING (definition_id)
         WHERE tree = $1 ORDER BY s.created_at, saga_id)",
                                             {fmt::format("{}", number)});
    for (int i = 0; i < sagas.size(); ++i) {
        text += sagas.text(i, 1) + "\n";
        const support::Rows lines =
            session_.run("SELECT stacksaga.saga_timeline($1::uuid)", {sagas.text(i, 0)});
        for (int line = 0; line < lines.size(); ++line)
            text += "  " + lines.text(line, 0) + "\n";
        const support::Rows work = session_.run(
            "SELECT format('work: %s %s %s due %s', purpose, step_no, direction, due_at) "
            "FROM stacksaga.work WHERE saga_id = $1",
            {sagas.text(i, 0)});
        for (int line = 0; line < work.size(); ++line)
            text += "  " + work.text(line, 0) + "\n";
    }
    return text;
}

} // namespace stacksaga::property
