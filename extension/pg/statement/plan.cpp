#include "pg/statement/plan.hpp"

#include "pg/citus/citus.hpp"
#include "pg/citus/node_reads.hpp"
#include "pg/settings.hpp"
#include "pg/statement/plan_check.hpp"

namespace stacksaga::pg {

namespace {

// A bit that no option of a cursor uses; options are handed on to the planner as they are.
constexpr int option_by_index = 1 << 30;

// A table of years.
constexpr double tuples = 1e8;
constexpr double tuples_per_page = 50, tuples_per_index_page = 200;
constexpr int tree_height = 3;

struct Flag {
    bool *variable;
    bool value;
};
constinit const std::array planner_flags{
    Flag{&enable_indexscan, true},
    Flag{&enable_indexonlyscan, true},
    Flag{&enable_nestloop, true},
    Flag{&enable_hashagg, true},
    Flag{&enable_partition_pruning, true},
    Flag{&enable_seqscan, false},
    Flag{&enable_bitmapscan, false},
    Flag{&enable_tidscan, true},
    Flag{&enable_sort, false},
    Flag{&enable_incremental_sort, false},
    Flag{&enable_hashjoin, false},
    Flag{&enable_mergejoin, false},
    Flag{&enable_material, false},
    Flag{&enable_memoize, false},
    Flag{&jit_enabled, false}, // the cost of a forbidden node would have the whole plan compiled
};

struct Cost {
    double *variable;
    double value;
};
constinit const std::array planner_costs{
    Cost{&seq_page_cost, DEFAULT_SEQ_PAGE_COST},
    Cost{&random_page_cost, DEFAULT_RANDOM_PAGE_COST},
    Cost{&cpu_tuple_cost, DEFAULT_CPU_TUPLE_COST},
    Cost{&cpu_index_tuple_cost, DEFAULT_CPU_INDEX_TUPLE_COST},
    Cost{&cpu_operator_cost, DEFAULT_CPU_OPERATOR_COST},
};

constinit bool is_planning_by_index = false;

/// The settings that planning by an index changes, and their values before.
struct Environment {
    std::array<bool, planner_flags.size()> flags;
    std::array<double, planner_costs.size()> costs;
    int cache_size;
    int workers;
    bool is_by_index;
};

Environment change_environment() {
    Environment saved{};
    for (size_t i = 0; i < planner_flags.size(); ++i)
        saved.flags[i] = std::exchange(*planner_flags[i].variable, planner_flags[i].value);
    for (size_t i = 0; i < planner_costs.size(); ++i)
        saved.costs[i] = std::exchange(*planner_costs[i].variable, planner_costs[i].value);
    saved.cache_size = std::exchange(effective_cache_size, DEFAULT_EFFECTIVE_CACHE_SIZE);
    saved.workers = std::exchange(max_parallel_workers_per_gather, 0);
    saved.is_by_index = std::exchange(is_planning_by_index, true);
    return saved;
}

void restore(const Environment &saved) {
    for (size_t i = 0; i < planner_flags.size(); ++i)
        *planner_flags[i].variable = saved.flags[i];
    for (size_t i = 0; i < planner_costs.size(); ++i)
        *planner_costs[i].variable = saved.costs[i];
    effective_cache_size = saved.cache_size;
    max_parallel_workers_per_gather = saved.workers;
    is_planning_by_index = saved.is_by_index;
}

PlannedStmt *plan_by_index(planner_hook_type next, Query *query, const char *text, int options,
                           ParamListInfo params) {
    const Environment saved = change_environment();
    PlannedStmt *volatile plan = nullptr;
    PG_TRY();
    { plan = next(query, text, options, params); }
    PG_CATCH();
    {
        restore(saved);
        PG_RE_THROW();
    }
    PG_END_TRY();
    restore(saved);
    return plan;
}

} // namespace

PlannedStmt *plan_statement(planner_hook_type next, Query *query, const char *text, int options,
                            ParamListInfo params) {
    read_this_node(query);
    if ((options & option_by_index) == 0)
        return next(query, text, options, params);
    PlannedStmt *plan = plan_by_index(next, query, text, options, params);
    if (settings.check_plans)
        check_plan(*plan, text);
    return plan;
}

void set_relation_info(bool is_parent, RelOptInfo *relation) {
    if (!is_planning_by_index || is_parent)
        return;
    relation->tuples = tuples;
    relation->pages = static_cast<BlockNumber>(tuples / tuples_per_page);
    relation->allvisfrac = 1;
    relation->statlist = NIL;
    ListCell *cell;
    foreach (cell, relation->indexlist) {
        auto *index = static_cast<IndexOptInfo *>(lfirst(cell));
        index->tuples = tuples;
        index->pages = static_cast<BlockNumber>(tuples / tuples_per_index_page);
        index->tree_height = tree_height;
    }
}

bool hides_statistics(const RangeTblEntry *table) {
    return is_planning_by_index && table->rtekind == RTE_RELATION;
}

int cursor_options(Plans plans, std::string_view text) {
    // Where a row is Citus knows only when it knows the token, so a plan for all parameters is one
    // that it cannot make.
    if (names_table_of_citus(text))
        return CURSOR_OPT_CUSTOM_PLAN;
    return plans == Plans::by_index ? CURSOR_OPT_GENERIC_PLAN | option_by_index : 0;
}

} // namespace stacksaga::pg
