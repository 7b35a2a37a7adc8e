#include "pg/local_shards.hpp"

#include "pg/citus.hpp"
#include "pg/query.hpp"

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

void append_shards(StringInfo text, Oid relation) {
    const Rows shards = list_shards.run(param_datum(OIDOID, ObjectIdGetDatum(relation)));
    appendStringInfoChar(text, '(');
    for (uint64 i = 0; i < shards.count(); ++i) {
        const std::string_view shard = shards.text(i, 0);
        appendStringInfo(text, "%sSELECT * FROM %.*s", i == 0 ? "" : " UNION ALL ",
                         static_cast<int>(shard.size()), shard.data());
    }
    if (shards.empty())
        appendStringInfo(text, "SELECT (NULL::stacksaga.%s).* WHERE false",
                         quote_identifier(get_rel_name(relation)));
    appendStringInfoChar(text, ')');
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
        if (is_managed)
            append_shards(&text, relation);
        has_any = has_any || is_managed;
    });
    appendBinaryStringInfo(&text, rest.data(), static_cast<int>(rest.size()));
    return has_any ? text.data : sql;
}

} // namespace stacksaga::pg
