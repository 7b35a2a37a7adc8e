#include "pg/citus/local_shards.hpp"

#include "pg/citus/citus.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga::pg {

namespace {

// A reference table has one shard, and a copy of it on each node.
constinit Statement list_shards{
    "SELECT pg_catalog.shard_name(s.logicalrelid, s.shardid)"
    "  FROM pg_catalog.pg_dist_shard s"
    "  JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid"
    "  JOIN pg_catalog.pg_dist_local_group g ON g.groupid = p.groupid"
    " WHERE s.logicalrelid = $1::pg_catalog.regclass AND p.shardstate = 1 ORDER BY s.shardid",
    Plans::by_statistics};

/// The columns of a table, with a NULL for each that was dropped: a shard that has moved since has
/// no such column.
const char *columns_of(Oid relation) {
    StringInfoData text;
    initStringInfo(&text);
    Relation table = relation_open(relation, AccessShareLock);
    const TupleDesc columns = RelationGetDescr(table);
    for (int i = 0; i < columns->natts; ++i) {
        const Form_pg_attribute column = TupleDescAttr(columns, i);
        appendStringInfo(&text, "%s%s", i == 0 ? "" : ", ",
                         column->attisdropped ? "NULL::pg_catalog.int4"
                                              : quote_identifier(NameStr(column->attname)));
    }
    relation_close(table, NoLock);
    return text.data;
}

void append_shards(StringInfo text, Oid relation) {
    const Rows shards = list_shards.run(param_datum(OIDOID, ObjectIdGetDatum(relation)));
    const char *columns = columns_of(relation);
    for (uint64 i = 0; i < shards.count(); ++i) {
        const std::string_view shard = shards.text(i);
        appendStringInfo(text, "%sSELECT %s FROM %.*s", i == 0 ? "" : " UNION ALL ", columns,
                         static_cast<int>(shard.size()), shard.data());
    }
    if (shards.empty())
        appendStringInfo(text, "SELECT %s FROM (SELECT (NULL::stacksaga.%s).*) AS none WHERE false",
                         columns, quote_identifier(get_rel_name(relation)));
}

} // namespace

const char *with_local_shards(const char *sql) {
    StringInfoData text;
    initStringInfo(&text);
    bool has_any = false;
    const std::string_view rest = each_table(sql, [&](std::string_view before, Oid relation) {
        const size_t name = before.rfind("stacksaga.");
        const bool is_managed = is_managed_by_citus(relation);
        appendBinaryStringInfo(&text, before.data(),
                               static_cast<int>(is_managed ? name : before.size()));
        if (is_managed) {
            appendStringInfoChar(&text, '(');
            append_shards(&text, relation);
            appendStringInfoChar(&text, ')');
        }
        has_any = has_any || is_managed;
    });
    appendBinaryStringInfo(&text, rest.data(), static_cast<int>(rest.size()));
    return has_any ? text.data : sql;
}

const char *shards_of(Oid relation) {
    StringInfoData text;
    initStringInfo(&text);
    append_shards(&text, relation);
    return text.data;
}

} // namespace stacksaga::pg
