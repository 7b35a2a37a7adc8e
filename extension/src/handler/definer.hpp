// The definer: the role that defined a saga or created a subscription, as which its functions run.
#pragma once
#include "pg/pg.hpp"
#include "pg/select.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga {

/// A role by its name and by its oid. A role that is dropped and created again has the name and is
/// another role; an oid alone means nothing after a restore. Both have to name the same role.
struct Definer {
    const char *name = nullptr;
    Oid oid = InvalidOid; ///< invalid: no role had the name when the row was written
    bool operator==(const Definer &other) const {
        return oid == other.oid && strcmp(name, other.name) == 0;
    }
};
static_assert(std::is_trivially_destructible_v<Definer>);

/// From two columns of a row, the second an oid. Copied to the current memory context.
Definer read_definer(const pg::Rows &rows, uint64 row, int column);
template <class Column> Definer read_definer(const pg::RowsOf<Column> &rows, uint64 row) {
    static_assert(static_cast<int>(Column::definer_oid) == static_cast<int>(Column::definer) + 1);
    return read_definer(rows.unnamed(), row, static_cast<int>(Column::definer));
}

/// Why nothing may run as this definer, or nullptr.
const char *objection_to(const Definer &definer);

/// The caller of a function that defines something, who becomes its definer: see WhoAsks.
struct Caller {
    Definer role;
    bool is_superuser = false;
};
static_assert(std::is_trivially_destructible_v<Caller>);

Caller current_caller();

/// Whether the caller is the definer, a member of it or a superuser.
bool may_replace(const Definer &definer, const Caller &caller);

} // namespace stacksaga
