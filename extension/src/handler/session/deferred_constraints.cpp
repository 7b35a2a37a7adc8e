#include "src/handler/session/deferred_constraints.hpp"

#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/handler/catalog_watch.hpp"
#include "src/handler/running_handler.hpp"

namespace stacksaga {

namespace {

constexpr int rounds_max = 1000;

// Leaves out a name that a constraint that is not deferred has too.
enum class ConstraintColumn : uint8_t { nspname, conname };
constinit pg::Select<ConstraintColumn> list_deferred{
    "SELECT n.nspname::text, c.conname::text FROM pg_catalog.pg_constraint AS c"
    "  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.connamespace"
    " WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE')"
    " GROUP BY n.nspname, c.conname HAVING bool_and(c.condeferred)",
    pg::Plans::by_statistics};

constinit pg::Statement find_deferred{
    "SELECT FROM pg_catalog.pg_constraint WHERE condeferred LIMIT 1", pg::Plans::by_statistics};

// Whether a constraint of the database is deferred from the start, as far as this session knows.
enum class Deferred : uint8_t { unknown, none, some };
constinit Deferred deferred = Deferred::unknown;
// The call_state() in which all that is deferred from the start was deferred again.
constinit uint64 deferred_at = 0;

void note_constraint_change(Datum, int, uint32) {
    deferred = Deferred::unknown;
}

/// Reads the catalog whole where it has to: once after a change of any constraint.
void look_for_deferred() {
    static constinit bool is_registered = false;
    if (!is_registered) {
        CacheRegisterSyscacheCallback(CONSTROID, note_constraint_change, Datum{0});
        is_registered = true;
    }
    if (deferred != Deferred::unknown)
        return;
    pg::with_spi([] {
        deferred = Deferred::none; // unless a change is noted during the query
        if (!find_deferred.run().empty())
            deferred = Deferred::some;
    });
}

[[noreturn]] void raise_endless() {
    ereport(ERROR,
            (errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
             errmsg("deferred triggers queued one another for %d rounds", rounds_max),
             errdetail("A trigger that is fired at the end of the transaction makes a change whose "
                       "own trigger is deferred as well, and so on."),
             errhint("Let a deferred trigger make no change that fires it again.")));
}

// ----------------------------------------------------------------------------- rounds

// PostgreSQL fires all that is queued at the end of a transaction in rounds, and has an EState for
// each. Nothing tells when a round begins, but what a trigger executes comes by here, and then the
// memory of the EState of its round is there.
struct Rounds {
    MemoryContext memory = nullptr; ///< the parent of each round's; nullptr: nothing is fired
    bool is_counted = false;        ///< the round that goes on
    int count = 0;
};
constinit Rounds rounds{};
// Counts the SET CONSTRAINTS statements of the session.
constinit uint64 statements_set = 0;

void note_round() {
    if (rounds.memory == nullptr)
        return;
    for (MemoryContext c = rounds.memory->firstchild; c != nullptr && !rounds.is_counted;
         c = c->nextchild) {
        if (strcmp(c->name, "ExecutorState") != 0)
            continue;
        static constinit MemoryContextCallback at_end{};
        at_end.func = [](void *) { rounds.is_counted = false; };
        MemoryContextRegisterResetCallback(c, &at_end);
        rounds.is_counted = true;
        ++rounds.count;
    }
    if (rounds.count > rounds_max) // once more for each statement of a trigger that catches it
        raise_endless();
}

/// Where PostgreSQL allows it: at the top of a transaction. Leaves what SET CONSTRAINTS has set.
void fire_at_top() {
    MemoryContext memory =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga rounds", ALLOCSET_SMALL_SIZES);
    static constinit MemoryContextCallback at_end{}; // also after an error
    at_end.func = [](void *) { rounds = {}; };
    MemoryContextRegisterResetCallback(memory, &at_end);
    rounds = {.memory = memory};
    pg::in_context(memory, [] { AfterTriggerFireDeferred(); });
    MemoryContextDelete(memory);
}

/// Sets all constraints to immediate, which fires what is queued. A trigger that sets them to
/// deferred can queue more.
void fire_in_query() {
    auto *all_immediate = makeNode(ConstraintsSetStmt);
    for (int round = 1;; ++round) {
        const uint64 before = statements_set;
        AfterTriggerSetState(all_immediate);
        if (statements_set == before)
            break;
        if (round == rounds_max)
            raise_endless();
    }
}

void defer_constraints_again() {
    look_for_deferred();
    deferred_at = call_state();
    if (deferred == Deferred::none)
        return;
    pg::with_spi([] {
        const auto rows = list_deferred.run();
        if (rows.empty())
            return;
        auto *statement = makeNode(ConstraintsSetStmt);
        statement->deferred = true;
        auto copy = [&](uint64 row, ConstraintColumn column) {
            const std::string_view name = rows.text(row, column);
            return pnstrdup(name.data(), name.size());
        };
        for (uint64 row = 0; row < rows.count(); ++row)
            statement->constraints = lappend(
                statement->constraints, makeRangeVar(copy(row, ConstraintColumn::nspname),
                                                     copy(row, ConstraintColumn::conname), -1));
        AfterTriggerSetState(statement);
    });
}

} // namespace

void note_query_of_trigger() {
    note_round();
}

void note_utility_of_trigger(const Node *statement) {
    note_round();
    if (IsA(statement, ConstraintsSetStmt)) {
        ++statements_set;
        running_handler.note_set_constraints();
    }
}

void defer_what_has_become_deferred() {
    look_for_deferred();
    if (deferred != Deferred::none && deferred_at != call_state())
        defer_constraints_again();
}

void fire_deferred_constraints() {
    CommandCounterIncrement();
    const bool is_outermost = running_handler.is_outermost();
    if (is_outermost)
        fire_at_top();
    if (running_handler.has_set_constraints() || (!is_outermost && deferred != Deferred::none)) {
        fire_in_query();
        running_handler.note_set_constraints();
    }
}

void reset_constraints() {
    if (running_handler.has_set_constraints())
        defer_constraints_again();
}

void check_constraints_of_caller() {
    CommandCounterIncrement();
    pg::as_role(GetOuterUserId(), [] { fire_in_query(); });
    pg::with_pinned_path([] { defer_constraints_again(); });
}

} // namespace stacksaga
