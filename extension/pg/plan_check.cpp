#include "pg/plan_check.hpp"

namespace stacksaga::pg {

namespace {

// Tables as large as the installation, not as its history or backlog. Reading all of one is fine.
constexpr std::array<std::string_view, 12> small_tables{
    "definition_step", "node",         "ring",        "ring_adoption",
    "ring_epoch",      "ring_setting", "slot",        "saga_definition",
    "subscription",    "token_window", "usage_grant", "worker"};

/// What lies above a node.
struct Above {
    bool is_limited = false; ///< a LIMIT, with nothing between that reads to the end
    /// What reads to the end although a LIMIT wants but some, or joins all with all.
    const char *reads_all = nullptr;
};

struct Check {
    const PlannedStmt &plan;
    const char *text;
};

[[noreturn]] void refuse(const Check &check, const char *what, const char *table) {
    ereport(ERROR,
            (errcode(ERRCODE_INTERNAL_ERROR),
             errmsg("a statement is not planned by an index: %s", what),
             errdetail("It reads stacksaga.%s: %s", table, check.text),
             errhint("Give it a shape that only an index serves, or Plans::by_statistics.")));
}

/// The name of the table that a scan reads where that is one that grows; else null.
const char *growing_table(const Check &check, const Scan &scan) {
    const RangeTblEntry *entry = rt_fetch(scan.scanrelid, check.plan.rtable);
    if (entry->rtekind != RTE_RELATION ||
        get_rel_namespace(entry->relid) != get_namespace_oid("stacksaga", true))
        return nullptr;
    const char *name = get_rel_name(entry->relid);
    const bool is_small = std::find(small_tables.begin(), small_tables.end(),
                                    std::string_view{name}) != small_tables.end();
    return is_small ? nullptr : name;
}

void check_scan(const Check &check, const Scan &scan, const List *index_quals, bool takes_any,
                Above above) {
    const char *table = growing_table(check, scan);
    if (table == nullptr)
        return;
    if (above.reads_all != nullptr)
        refuse(check, above.reads_all, table);
    if (index_quals == NIL && !(takes_any && above.is_limited))
        refuse(check, "a scan of a whole table", table);
}

void check_node(const Check &check, const Plan *node, Above above);

void check_list(const Check &check, const List *nodes, Above above) {
    const ListCell *cell;
    foreach (cell, nodes)
        check_node(check, static_cast<const Plan *>(lfirst(cell)), above);
}

void check_node(const Check &check, const Plan *node, Above above) {
    if (node == nullptr)
        return;
    switch (nodeTag(node)) {
    case T_SeqScan:
    case T_BitmapHeapScan:
        check_scan(check, *reinterpret_cast<const Scan *>(node), NIL, node->qual == NIL, above);
        break;
    case T_IndexScan: {
        const auto *scan = reinterpret_cast<const IndexScan *>(node);
        check_scan(check, scan->scan, scan->indexqual, node->qual == NIL, above);
        break;
    }
    case T_IndexOnlyScan: {
        const auto *scan = reinterpret_cast<const IndexOnlyScan *>(node);
        check_scan(check, scan->scan, scan->indexqual, node->qual == NIL, above);
        break;
    }
    case T_Limit:
        above = {.is_limited = true};
        break;
    case T_Sort:
    case T_IncrementalSort:
        if (above.is_limited)
            above = {.reads_all = "a sort below a limit"};
        break;
    case T_HashJoin:
        above = {.reads_all = "a hash join"};
        break;
    case T_MergeJoin:
        above = {.reads_all = "a merge join"};
        break;
    case T_Agg:
    case T_Group:
    case T_WindowAgg:
    case T_SetOp:
        above.is_limited = false;
        break;
    case T_Append:
        check_list(check, reinterpret_cast<const Append *>(node)->appendplans, above);
        break;
    case T_MergeAppend:
        check_list(check, reinterpret_cast<const MergeAppend *>(node)->mergeplans, above);
        break;
    case T_SubqueryScan:
        check_node(check, reinterpret_cast<const SubqueryScan *>(node)->subplan, above);
        break;
    default:
        break;
    }
    check_node(check, node->lefttree, above);
    check_node(check, node->righttree, above);
}

} // namespace

void check_plan(const PlannedStmt &plan, const char *text) {
    const Check check{plan, text};
    check_node(check, plan.planTree, {});
    check_list(check, plan.subplans, {});
}

} // namespace stacksaga::pg
