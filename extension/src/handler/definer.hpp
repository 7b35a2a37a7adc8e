// The definer: the role that defined a saga or created a subscription, as which its functions run.
#pragma once
#include "pg/pg.hpp"
#include "pg/statement/select.hpp"
#include "src/handler/function_ref.hpp"

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

/// From the columns definer and definer_oid. Copied to the current memory context.
template <class Column> Definer read_definer(const pg::RowsOf<Column> &rows, uint64 row) {
    return {.name = copy_text(rows.text(row, Column::definer)),
            .oid = rows.is_null(row, Column::definer_oid)
                       ? InvalidOid
                       : DatumGetObjectId(rows.value(row, Column::definer_oid))};
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
