// Rows whose retention is over and that cannot be removed, since something of the user's refers to
// them or refuses it: the retention passes over them, remembers them in stacksaga.kept_row, tries
// them again an hour later, and removes the others.
#pragma once
#include "pg/statement/attempt.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga {

/// A condition of statements that find rows to remove.
#define IS_NOT_KEPT(RELATION, KEY, NOW)                                                            \
    " AND NOT EXISTS (SELECT FROM stacksaga.kept_row AS kept"                                      \
    "                  WHERE kept.relation = '" RELATION "' AND kept.row_key = " KEY               \
    "                    AND kept.retry_at > " NOW ")"

/// The same where Citus has distributed the table: it does not join it with kept_row, so the keys
/// come as an array.
#define IS_NOT_KEPT_OF(KEYS, KEY) " AND " KEY " <> ALL (" KEYS ")"
pg::Param kept_keys(const char *relation, TimestampTz now);

/// Whether the error is of the rows that were to be removed, so that other rows may be removed.
bool is_of_rows(const ErrorData &error);

/// Remembers the row, and logs the first one of its table. Inside with_spi.
void keep_row(const char *relation, std::string_view row_key, const char *error);
/// Forgets those of the table whose time came, and that were not kept again.
void forget_kept_rows(const char *relation, TimestampTz now);
bool has_kept_rows(const char *relation);
bool is_kept(const char *relation, std::string_view row_key, TimestampTz now);

/// Says that this transaction does nothing but remove rows, as a worker's: constraints are not
/// deferred to its commit, where nobody would know any more which row it was.
void fire_constraints_from_now_on();
/// Fires deferred triggers and constraints, in such a transaction.
void fire_constraints();

/// Runs `body` in a subtransaction. False where it failed because of the rows; `error` says how.
template <class F> bool attempt_removal(const char *&error, F &&body) {
    MemoryContext caller = CurrentMemoryContext;
    const auto note = [&](const ErrorData &raised) {
        if (!is_of_rows(raised))
            return false;
        error = MemoryContextStrdup(caller, raised.message);
        return true;
    };
    return pg::attempt_expecting(note, [&] {
        body();
        fire_constraints();
    });
}

struct Removed {
    int64 found; ///< of those that were wanted; fewer: nothing else is due
    int64 rows;
};

/// Removes at most `limit` of what is due: `remove(count)` the first ones, `first_key()` names the
/// first. What cannot be removed together is halved until the row that cannot is alone. Returns how
/// many rows were removed.
template <class F, class K>
int64 remove_passing_over(const char *relation, TimestampTz now, int64 limit, F &&remove,
                          K &&first_key) {
    int64 found = 0, rows = 0, step = limit;
    while (found < limit) {
        CHECK_FOR_INTERRUPTS();
        const int64 wanted = std::min(step, limit - found);
        Removed removed{};
        const char *error = nullptr;
        if (attempt_removal(error, [&] { removed = remove(wanted); })) {
            found += removed.found;
            rows += removed.rows;
            if (removed.found < wanted) {
                forget_kept_rows(relation, now);
                break;
            }
            step = std::min(2 * step, limit);
        } else if (wanted > 1) {
            step = wanted / 2;
        } else if (const std::optional<std::string_view> key = first_key()) {
            keep_row(relation, *key, error);
        } else { // no row is to blame: raises that error, if it is there still
            const Removed alone = remove(wanted);
            rows += alone.rows;
            if (alone.found < wanted)
                break;
            found += alone.found;
        }
    }
    return rows;
}

} // namespace stacksaga
