// Every difference between PostgreSQL versions that touches us, each with the version and reason.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

#if PG_VERSION_NUM < 140000
#error "stacksaga needs PostgreSQL 14 or newer"
#endif

/// 15 renamed SetSingleFuncCall, which exists only in late minor releases of 14.
inline void init_materialized_srf(FunctionCallInfo fcinfo) {
#if PG_VERSION_NUM >= 150000
    InitMaterializedSRF(fcinfo, 0);
#else
    SetSingleFuncCall(fcinfo, 0);
#endif
}

/// 16 folded the per-object ACL checks into one function.
inline bool may_execute(Oid function, Oid role) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK;
#else
    return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/// Before 15 a module's settings are checked for typos by the older name.
inline void reserve_settings_prefix(const char *prefix) {
#if PG_VERSION_NUM >= 150000
    MarkGUCPrefixReserved(prefix);
#else
    EmitWarningsOnPlaceholders(prefix);
#endif
}

/// What a check hook hands on is freed with free() before 16, with guc_free() since.
inline void *settings_alloc(size_t size) {
#if PG_VERSION_NUM >= 160000
    return guc_malloc(LOG, size);
#else
    return malloc(size);
#endif
}

} // namespace stacksaga::pg
