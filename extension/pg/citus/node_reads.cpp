#include "pg/citus/node_reads.hpp"

#include "pg/citus/citus.hpp"
#include "pg/citus/local_shards.hpp"
#include "pg/compat.hpp"
#include "pg/statement/scope.hpp"

namespace stacksaga::pg {

namespace {

constexpr const char *mark = "stacksaga_this_node";

struct Walk {
    bool is_inside; ///< a query that has the mark
};

using Visit = bool (*)(Node *, void *);

/// As walk_expression(), of a query. Where its visitor is declared with parameters it is cast to
/// that.
bool walk_query(Query *query, Visit visit, void *context) {
    return query_tree_walker(
        query, reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(visit)), context, 0);
}

bool has_mark(const Query *query) {
    ListCell *cell;
    foreach (cell, query->cteList)
        if (std::string_view{static_cast<CommonTableExpr *>(lfirst(cell))->ctename} == mark)
            return true;
    return false;
}

/// A role that may read the table may read its shards.
bool check_as(Node *node, void *context) {
    if (node == nullptr)
        return false;
    const Oid role = *static_cast<Oid *>(context);
    if (IsA(node, Query)) {
        each_permission(reinterpret_cast<Query *>(node), [&](Oid &checked) { checked = role; });
        return walk_query(reinterpret_cast<Query *>(node), check_as, context);
    }
    return walk_expression(node, check_as, context);
}

/// SELECT of all columns of the table's shards here.
Query *query_of_shards(Oid relation, Oid role) {
    const MemoryContext memory = CurrentMemoryContext;
    char *text = nullptr;
    with_spi([&] {
        const char *shards = shards_of(relation);
        in_context(memory, [&] { text = pstrdup(shards); });
    });
    List *parsed = pg_parse_query(text);
    Query *query = analyze(linitial_node(RawStmt, parsed), text);
    check_as(reinterpret_cast<Node *>(query), &role);
    return query;
}

/// Whether the query reads the table as the owner of a view, for a role that may not read the table
/// itself. Citus sends such a query to the nodes as that role, where it is refused.
bool is_for_a_view_alone(Query *query, RangeTblEntry *table) {
    const Oid role = checked_role(query, table);
    return OidIsValid(role) && role != GetUserId() &&
           pg_class_aclcheck(table->relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK;
}

bool is_of_this_node(Query *query, RangeTblEntry *table, bool is_marked) {
    return table->rtekind == RTE_RELATION && is_managed_by_citus(table->relid) &&
           get_rel_namespace(table->relid) == get_namespace_oid("stacksaga", true) &&
           (is_marked || is_for_a_view_alone(query, table));
}

bool replace_tables(Node *node, void *context) {
    if (node == nullptr)
        return false;
    if (IsA(node, Query)) {
        auto *query = reinterpret_cast<Query *>(node);
        Walk inside{.is_inside = static_cast<Walk *>(context)->is_inside || has_mark(query)};
        if (query->commandType == CMD_SELECT && query->rowMarks == NIL) {
            ListCell *cell;
            foreach (cell, query->rtable) {
                auto *entry = static_cast<RangeTblEntry *>(lfirst(cell));
                if (is_of_this_node(query, entry, inside.is_inside))
                    make_subquery(entry, query_of_shards(entry->relid, checked_role(query, entry)));
            }
        }
        return walk_query(query, replace_tables, &inside);
    }
    return walk_expression(node, replace_tables, context);
}

} // namespace

void read_this_node(Query *query) {
    Walk walk{.is_inside = false};
    if (is_citus_loaded())
        (void)replace_tables(reinterpret_cast<Node *>(query), &walk);
}

} // namespace stacksaga::pg
