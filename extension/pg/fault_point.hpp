// Fault points: named places at which a test has the reading of one item fail, with an SQLSTATE of
// its choice. Compiled in with -DSTACKSAGA_CRASH_POINTS alone, as crash points are; without it a
// point is nothing.
#pragma once

#ifndef STACKSAGA_CRASH_POINTS
#define FAULT_POINT(name, id) static_cast<void>(0)
#else
#define FAULT_POINT(name, id) ::stacksaga::pg::fail_if_armed(name, id)

#include "pg/pg.hpp"

namespace stacksaga::pg {

/// In the data directory. Each line is an SQLSTATE, the id of an item and the name of a point; it
/// stands until the test removes the file.
inline constexpr char fault_file[] = "stacksaga.faults";

[[gnu::noinline]] inline void fail_if_armed(const char *name, const pg_uuid_t &id) {
    FILE *file = AllocateFile(fault_file, "r");
    if (file == nullptr)
        return;
    char line[256];
    int sqlstate = 0;
    const char *wanted = psprintf(
        " %s %s\n", DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&id))), name);
    while (sqlstate == 0 && fgets(line, sizeof line, file) != nullptr)
        if (strlen(line) > 5 && strcmp(line + 5, wanted) == 0)
            sqlstate = MAKE_SQLSTATE(line[0], line[1], line[2], line[3], line[4]);
    FreeFile(file);
    if (sqlstate != 0)
        ereport(ERROR, (errcode(sqlstate), errmsg("the test wants \"%s\" to fail", name)));
}

} // namespace stacksaga::pg
#endif
