// Differences between PostgreSQL versions: each with the version and the reason. The headers that
// only some versions have are included in pg.hpp, since no other file includes PostgreSQL's
// headers.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

#if PG_VERSION_NUM < 140000
#error "stacksaga needs PostgreSQL 14 or newer"
#endif

/// Before 15 each function sets its result up by itself. The caller has the result's columns
/// already; to look them up in the catalog once more took a tenth of a short call.
inline void init_materialized_srf(FunctionCallInfo fcinfo) {
#if PG_VERSION_NUM >= 150000
    InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
#else
    auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
    if (result == nullptr || !IsA(result, ReturnSetInfo) ||
        (result->allowedModes & SFRM_Materialize) == 0 || result->expectedDesc == nullptr)
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("set-valued function called in context that cannot accept a set")));
    MemoryContext saved = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
    result->returnMode = SFRM_Materialize;
    result->setResult = tuplestore_begin_heap((result->allowedModes & SFRM_Materialize_Random) != 0,
                                              false, work_mem);
    result->setDesc = CreateTupleDescCopy(result->expectedDesc);
    MemoryContextSwitchTo(saved);
#endif
}

/// The flag of a setting that may be set while a query runs in parallel: minor versions of August
/// 2024 added it.
#ifdef GUC_ALLOW_IN_PARALLEL
inline constexpr int allow_in_parallel = GUC_ALLOW_IN_PARALLEL;
#else
inline constexpr int allow_in_parallel = 0;
#endif

/// All settings that this process knows: 16 keeps them in a hash table, and copies them.
inline std::span<config_generic *const> all_settings() {
#if PG_VERSION_NUM >= 160000
    int count = 0;
    config_generic **all = get_guc_variables(&count);
    return {all, static_cast<size_t>(count)};
#else
    return {get_guc_variables(), static_cast<size_t>(GetNumConfigOptions())};
#endif
}

/// How many transactions that wrote have ended on this server: 17 renamed where that is counted.
/// One that ends is counted before it gives its locks up. The same number twice says that no row
/// has become visible meanwhile.
inline uint64 ended_transactions() {
#if PG_VERSION_NUM >= 170000
    const uint64 count = TransamVariables->xactCompletionCount;
#else
    const uint64 count = ShmemVariableCache->xactCompletionCount;
#endif
    pg_memory_barrier();
    return count;
}

/// 18 added a place for statistics.
inline IndexScanDesc begin_index_scan(Relation table, Relation index, Snapshot snapshot, int keys) {
#if PG_VERSION_NUM >= 180000
    return index_beginscan(table, index, snapshot, nullptr, keys, 0);
#else
    return index_beginscan(table, index, snapshot, keys, 0);
#endif
}

/// 15 added unique indexes for which nulls are equal.
inline bool nulls_are_distinct([[maybe_unused]] const FormData_pg_index &index) {
#if PG_VERSION_NUM >= 150000
    return !index.indnullsnotdistinct;
#else
    return true;
#endif
}

/// As table_tuple_update(), which tells since 16 which indexes need an entry: all, none, or those
/// that summarise. `all_indexes`: those of the other kinds do.
inline TM_Result update_tuple(Relation table, ItemPointer place, TupleTableSlot *slot,
                              TM_FailureData *failure, bool *all_indexes) {
    LockTupleMode mode;
#if PG_VERSION_NUM >= 160000
    TU_UpdateIndexes indexes;
    const TM_Result result =
        table_tuple_update(table, place, slot, GetCurrentCommandId(true), InvalidSnapshot,
                           InvalidSnapshot, true, failure, &mode, &indexes);
    *all_indexes = result == TM_Ok && indexes == TU_All;
#else
    const TM_Result result =
        table_tuple_update(table, place, slot, GetCurrentCommandId(true), InvalidSnapshot,
                           InvalidSnapshot, true, failure, &mode, all_indexes);
#endif
    return result;
}

/// 16 lets the caller leave out all indexes but those that summarise.
inline void insert_into_indexes(ResultRelInfo *table, TupleTableSlot *slot, EState *state) {
#if PG_VERSION_NUM >= 160000
    ExecInsertIndexTuples(table, slot, state, false, false, nullptr, NIL, false);
#else
    ExecInsertIndexTuples(table, slot, state, false, false, nullptr, NIL);
#endif
}

/// Another number for each transaction of this process, whether or not it writes.
inline LocalTransactionId local_transaction_id() {
#if PG_VERSION_NUM >= 170000
    return MyProc->vxid.lxid;
#else
    return MyProc->lxid;
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
inline bool may_use_schema(Oid schema, Oid role) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) == ACLCHECK_OK;
#else
    return pg_namespace_aclcheck(schema, role, ACL_USAGE) == ACLCHECK_OK;
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

/// 15 replaced random(). At least 0 and less than 1.
inline double pseudo_random_fraction() {
#if PG_VERSION_NUM >= 150000
    return pg_prng_double(&pg_global_prng_state);
#else
    return static_cast<double>(random()) / (static_cast<double>(MAX_RANDOM_VALUE) + 1);
#endif
}

/// 17 added infinite intervals.
inline bool is_finite([[maybe_unused]] const Interval &interval) {
#if PG_VERSION_NUM >= 170000
    return !INTERVAL_NOT_FINITE(&interval);
#else
    return true;
#endif
}

/// The value of a check hook is freed with free() before 16, with guc_free() since.
inline void *settings_alloc(size_t size) {
#if PG_VERSION_NUM >= 160000
    return guc_malloc(LOG, size);
#else
    return malloc(size);
#endif
}

/// 17 lets the caller ask for a stronger mode as well.
inline bool holds_lock(const LOCKTAG &tag, LOCKMODE mode) {
#if PG_VERSION_NUM >= 170000
    return LockHeldByMe(&tag, mode, false);
#else
    return LockHeldByMe(&tag, mode);
#endif
}

/// Takes the lock to the end of the transaction if it is to be had at once, and there is room for
/// it. 18 asks whether to log that it is not.
inline void try_lock(const LOCKTAG &tag, LOCKMODE mode) {
#if PG_VERSION_NUM >= 180000
    (void)LockAcquireExtended(&tag, mode, false, true, false, nullptr, false);
#else
    (void)LockAcquireExtended(&tag, mode, false, true, false, nullptr);
#endif
}

#if PG_VERSION_NUM >= 160000
/// dlist_foreach() and dlist_container() are not C++.
template <class T, class F> void for_each_in_list(const dlist_head &list, size_t offset, F &&each) {
    for (dlist_node *at = list.head.next; at != nullptr && at != &list.head; at = at->next)
        each(*reinterpret_cast<T *>(reinterpret_cast<char *>(at) - offset));
}
#endif

/// 16 gave a process's lists of locks another type.
inline bool has_no_locks(PGPROC &process, int partition) {
#if PG_VERSION_NUM >= 160000
    return dlist_is_empty(&process.myProcLocks[partition]);
#else
    return SHMQueueEmpty(&process.myProcLocks[partition]);
#endif
}

template <class F> void for_each_lock(PGPROC &process, int partition, F &&each) {
#if PG_VERSION_NUM >= 160000
    for_each_in_list<PROCLOCK>(process.myProcLocks[partition], offsetof(PROCLOCK, procLink), each);
#else
    SHM_QUEUE *list = &process.myProcLocks[partition];
    auto next = [&](SHM_QUEUE *at) {
        return reinterpret_cast<PROCLOCK *>(SHMQueueNext(list, at, offsetof(PROCLOCK, procLink)));
    };
    for (PROCLOCK *lock = next(list); lock != nullptr; lock = next(&lock->procLink))
        each(*lock);
#endif
}

/// 16 gave the queue of a lock another type, too.
template <class F> void for_each_waiter(LOCK &lock, F &&each) {
#if PG_VERSION_NUM >= 160000
    for_each_in_list<PGPROC>(lock.waitProcs.dlist, offsetof(PGPROC, links), each);
#else
    SHM_QUEUE *list = &lock.waitProcs.links;
    for (SHM_QUEUE *at = list->next; at != list; at = at->next)
        each(*reinterpret_cast<PGPROC *>(at)); // its links are its first member
#endif
}

/// 18 plans the statements of a function in SQL once in a session.
inline constexpr bool sql_functions_keep_plans = PG_VERSION_NUM >= 180000;

/// Runs a query once, up to `count` rows; 0: all. 18 no longer asks whether it is once.
inline void run_executor(QueryDesc *query, uint64 rows) {
#if PG_VERSION_NUM >= 180000
    ExecutorRun(query, ForwardScanDirection, rows);
#else
    ExecutorRun(query, ForwardScanDirection, rows, true);
#endif
}

/// Before 16 the visitor is declared without its parameters.
inline bool walk_expression(Node *node, bool (*visit)(Node *, void *), void *state) {
#if PG_VERSION_NUM >= 160000
    return expression_tree_walker(node, visit, state);
#else
    return expression_tree_walker(
        node, reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(visit)), state);
#endif
}

/// 18 negated the flag of a process.
inline bool may_be_background_worker(const PGPROC &process) {
#if PG_VERSION_NUM >= 180000
    return !process.isRegularBackend;
#else
    return process.isBackgroundWorker;
#endif
}

/// The wait event in pg_stat_activity of a waiting worker. 17 gave extensions names of their own,
/// and 19 keeps them in shared memory, so they are asked for by the process that waits.
inline uint32 wait_event_of_worker() {
#if PG_VERSION_NUM >= 170000
    static uint32 event = 0;
    if (event == 0)
        event = WaitEventExtensionNew("StacksagaWorker");
    return event;
#else
    return PG_WAIT_EXTENSION;
#endif
}

/// 15 gave parse analysis another name.
inline Query *analyze(RawStmt *statement, const char *text) {
#if PG_VERSION_NUM >= 150000
    return parse_analyze_fixedparams(statement, text, nullptr, 0, nullptr);
#else
    return parse_analyze(statement, text, nullptr, 0, nullptr);
#endif
}

/// The role whose right to read a table is checked, or InvalidOid: the role that runs the query. 16
/// keeps that in a list of its own.
inline Oid checked_role(Query *query, RangeTblEntry *table) {
#if PG_VERSION_NUM >= 160000
    return table->perminfoindex == 0
               ? InvalidOid
               : getRTEPermissionInfo(query->rteperminfos, table)->checkAsUser;
#else
    (void)query;
    return table->checkAsUser;
#endif
}

/// Calls `visit` with the role that is checked for each table of the query itself, to be changed.
template <class F> void each_permission(Query *query, F &&visit) {
    ListCell *cell;
#if PG_VERSION_NUM >= 160000
    foreach (cell, query->rteperminfos)
        visit(static_cast<RTEPermissionInfo *>(lfirst(cell))->checkAsUser);
#else
    foreach (cell, query->rtable)
        visit(static_cast<RangeTblEntry *>(lfirst(cell))->checkAsUser);
#endif
}

/// Makes a table in a query a subquery, as a rule does with a view. The rights of the table are
/// those of who reads the subquery's tables.
inline void make_subquery(RangeTblEntry *table, Query *query) {
    table->rtekind = RTE_SUBQUERY;
    table->subquery = query;
    table->relid = InvalidOid;
    table->relkind = 0;
    table->rellockmode = 0;
    table->tablesample = nullptr;
    table->inh = false;
#if PG_VERSION_NUM >= 160000
    table->perminfoindex = 0;
#else
    table->requiredPerms = 0;
    table->checkAsUser = InvalidOid;
    table->selectedCols = nullptr;
#endif
}

} // namespace stacksaga::pg
