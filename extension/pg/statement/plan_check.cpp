#include "pg/statement/plan_check.hpp"

#include "pg/compat.hpp"

namespace stacksaga::pg {

namespace {

// Tables as large as the installation, not as its history or backlog. Reading all of one is fine.
constexpr std::array<std::string_view, 12> small_tables{
    "definition_step", "node",         "ring",        "ring_adoption",
    "ring_epoch",      "ring_setting", "slot",        "saga_definition",
    "subscription",    "token_window", "usage_grant", "worker"};

// Each execution makes a hash table as large as the planner expects it to become: in some
// microseconds up to this number of groups, in half a millisecond where it fills work_mem.
constexpr long hashed_groups_max = 10000;

/// The nodes above a node.
struct Above {
    bool is_limited = false; ///< a LIMIT, with nothing between that reads to the end
    /// A node that reads to the end although a LIMIT wants few rows, or joins all with all.
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

void check_groups(const Check &check, const char *what, double groups) {
    if (groups > static_cast<double>(hashed_groups_max))
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
                        errmsg("a statement is not planned by an index: a hash table for %.0f %s",
                               groups, what),
                        errdetail("The statement: %s", check.text),
                        errhint("Have an index give the rows in order, or look them up in turn.")));
}

bool check_expression(Node *node, void *check_pointer) {
    const Check &check = *static_cast<const Check *>(check_pointer);
    if (node == nullptr)
        return false;
    if (IsA(node, SubPlan) && castNode(SubPlan, node)->useHashTable) {
        const auto id = static_cast<size_t>(castNode(SubPlan, node)->plan_id);
        const auto *plan =
            static_cast<const Plan *>(list_nth(check.plan.subplans, static_cast<int>(id) - 1));
        check_groups(check, "rows of a subquery", plan->plan_rows);
    }
    return walk_expression(node, check_expression, check_pointer);
}

void check_expressions(const Check &check, const Plan *node) {
    Check copy = check;
    check_expression(reinterpret_cast<Node *>(node->targetlist), &copy);
    check_expression(reinterpret_cast<Node *>(node->qual), &copy);
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
    check_expressions(check, node);
    switch (nodeTag(node)) {
    case T_RecursiveUnion:
        if (reinterpret_cast<const RecursiveUnion *>(node)->numCols > 0)
            check_groups(
                check, "rows of a recursive query",
                static_cast<double>(reinterpret_cast<const RecursiveUnion *>(node)->numGroups));
        break;
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
        if (reinterpret_cast<const Agg *>(node)->aggstrategy == AGG_HASHED)
            check_groups(check, "groups",
                         static_cast<double>(reinterpret_cast<const Agg *>(node)->numGroups));
        above.is_limited = false;
        break;
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
