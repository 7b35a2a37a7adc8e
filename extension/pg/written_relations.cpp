#include "pg/written_relations.hpp"

namespace stacksaga::pg {

namespace {

constinit ExecutorCheckPerms_hook_type next_hook = nullptr;
using NoteWritten = void (*)(Oid relation);
constinit NoteWritten note_written = nullptr;

constexpr AclMode write_rights = ACL_INSERT | ACL_UPDATE | ACL_DELETE;

// 16 moved the rights out of the range table.
#if PG_VERSION_NUM >= 160000
bool check(List *range_table, List *permissions, bool raises) {
    const ListCell *cell;
    foreach (cell, permissions) {
        const auto *p = lfirst_node(RTEPermissionInfo, cell);
        if ((p->requiredPerms & write_rights) != 0)
            note_written(p->relid);
    }
    return next_hook == nullptr || next_hook(range_table, permissions, raises);
}
#else
bool check(List *range_table, bool raises) {
    const ListCell *cell;
    foreach (cell, range_table) {
        const auto *entry = lfirst_node(RangeTblEntry, cell);
        if (entry->rtekind == RTE_RELATION && (entry->requiredPerms & write_rights) != 0)
            note_written(entry->relid);
    }
    return next_hook == nullptr || next_hook(range_table, raises);
}
#endif

} // namespace

void watch_written(void (*note)(Oid relation)) {
    note_written = note;
    next_hook = ExecutorCheckPerms_hook;
    ExecutorCheckPerms_hook = check;
}

} // namespace stacksaga::pg
