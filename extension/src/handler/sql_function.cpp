#include "src/handler/sql_function.hpp"

#include "pg/compat.hpp"
#include "pg/statement/scope.hpp"

namespace stacksaga {

/// In a memory context of its own.
struct SqlFunction {
    MemoryContext memory;
    const char *name;
    const char *source;
    // The row of pg_proc that it was made of.
    Oid oid;
    TransactionId row_xmin;
    ItemPointerData row_id;
    SQLFunctionParseInfoPtr parameters;
    Oid result;
    int16 result_length;
    bool result_by_value;
    bool is_read_only;
    SPIPlanPtr plan; ///< nullptr: left to fmgr_sql()
    ParamListInfo arguments;
    int statement; ///< the one that is running, from 1; 0: none
};

namespace {

// ----------------------------------------------------------------------------- preparing

void set_up_parser(ParseState *state, void *parameters) {
    sql_fn_parser_setup(state, static_cast<SQLFunctionParseInfoPtr>(parameters));
}

bool is_read_only(const Query &query) {
    return query.commandType == CMD_SELECT && !query.hasModifyingCTE && query.rowMarks == NIL;
}

bool gives(const CachedPlanSource &source, Oid type) {
    return source.resultDesc != nullptr && source.resultDesc->natts == 1 &&
           TupleDescAttr(source.resultDesc, 0)->atttypid == type;
}

/// Whether the statements can be run here: each has a plan, none does what the function's
/// volatility forbids, and the last one gives the result as it is.
bool suits(const SqlFunction &f, List *sources) {
    const ListCell *at_source;
    foreach (at_source, sources) {
        const ListCell *at_query;
        foreach (at_query, static_cast<const CachedPlanSource *>(lfirst(at_source))->query_list) {
            const auto *query = lfirst_node(Query, at_query);
            if (query->commandType == CMD_UTILITY || (f.is_read_only && !is_read_only(*query)))
                return false;
        }
    }
    if (f.result == VOIDOID)
        return true;
    if (sources == NIL)
        return false;
    const auto *last = static_cast<const CachedPlanSource *>(llast(sources));
    return list_length(last->query_list) == 1 && gives(*last, f.result);
}

/// Copies what it needs of the function's row. False when its body is no text.
bool read_row(SqlFunction &f, HeapTuple row) {
    const auto *form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(row));
    f.oid = form->oid;
    f.row_xmin = HeapTupleHeaderGetRawXmin(row->t_data);
    f.row_id = row->t_self;
    f.name = pstrdup(NameStr(form->proname));
    f.result = form->prorettype;
    get_typlenbyval(f.result, &f.result_length, &f.result_by_value);
    f.is_read_only = form->provolatile != PROVOLATILE_VOLATILE;
    f.parameters = prepare_sql_fn_parse_info(row, nullptr, InvalidOid);
    f.arguments = makeParamList(1);
    f.arguments->params[0].ptype = f.parameters->argtypes[0];
    bool isnull;
    (void)SysCacheGetAttr(PROCOID, row, Anum_pg_proc_prosqlbody, &isnull);
    if (!isnull)
        return false;
    const Datum source = SysCacheGetAttr(PROCOID, row, Anum_pg_proc_prosrc, &isnull);
    f.source = isnull ? "" : TextDatumGetCString(source);
    return true;
}

/// Generic plans, as fmgr_sql() makes them: none is made for the values of a call.
void plan(SqlFunction &f) {
    pg::with_spi([&] {
        SPIPlanPtr made = SPI_prepare_params(f.source, set_up_parser, f.parameters,
                                             CURSOR_OPT_PARALLEL_OK | CURSOR_OPT_GENERIC_PLAN);
        if (made == nullptr)
            elog(ERROR, "SPI_prepare_params failed: %s", SPI_result_code_string(SPI_result));
        if (!suits(f, SPI_plan_get_plan_sources(made)))
            return;
        SPI_keepplan(made);
        f.plan = made;
    });
}

// ----------------------------------------------------------------------------- running

/// Keeps the first column of the first row.
struct FirstValue {
    DestReceiver receiver; ///< PostgreSQL knows it by this, its first member
    MemoryContext memory;
    int16 length;
    bool by_value;
    bool is_there = false;
    bool isnull = true;
    Datum value = 0;
};

bool receive(TupleTableSlot *slot, DestReceiver *self) {
    auto &first = *reinterpret_cast<FirstValue *>(self);
    if (first.is_there)
        return true;
    first.is_there = true;
    const Datum value = slot_getattr(slot, 1, &first.isnull);
    if (!first.isnull)
        first.value = pg::in_context(
            first.memory, [&] { return datumCopy(value, first.by_value, first.length); });
    return true;
}
void receive_startup(DestReceiver *, int, TupleDesc) {}
void receive_end(DestReceiver *) {}

FirstValue first_value_of(const SqlFunction &f) {
    return {.receiver = {.receiveSlot = receive,
                         .rStartup = receive_startup,
                         .rShutdown = receive_end,
                         .rDestroy = receive_end,
                         .mydest = DestSQLFunction},
            .memory = CurrentMemoryContext,
            .length = f.result_length,
            .by_value = f.result_by_value};
}

/// As fmgr_sql() names the statement that failed; a position in its text is not one in the
/// client's.
void add_context(void *function) {
    const auto &f = *static_cast<const SqlFunction *>(function);
    const int position = geterrposition();
    if (position > 0) {
        errposition(0);
        internalerrposition(position);
        internalerrquery(f.source);
    }
    errcontext("SQL function \"%s\" statement %d", f.name, f.statement);
}

void run_statement(const SqlFunction &f, PlannedStmt *statement, FirstValue *result) {
    if (statement->commandType == CMD_UTILITY) { // of a rule that has been made since
        ProcessUtility(statement, f.source, true, PROCESS_UTILITY_QUERY, f.arguments, nullptr,
                       None_Receiver, nullptr);
        return;
    }
    DestReceiver *receiver =
        result != nullptr && statement->canSetTag ? &result->receiver : None_Receiver;
    // A SELECT ends at the row that is returned. What writes is run to its end.
    const bool ends_early = receiver != None_Receiver && statement->commandType == CMD_SELECT &&
                            !statement->hasModifyingCTE;
    QueryDesc *query = CreateQueryDesc(statement, f.source, GetActiveSnapshot(), InvalidSnapshot,
                                       receiver, f.arguments, nullptr, 0);
    ExecutorStart(query, ends_early ? EXEC_FLAG_SKIP_TRIGGERS : 0);
    pg::run_executor(query, ends_early ? 1 : 0);
    ExecutorFinish(query);
    ExecutorEnd(query);
    FreeQueryDesc(query);
}

/// `result`: where it goes, for the last statement of a function that has one.
void run_source(const SqlFunction &f, CachedPlanSource *source, FirstValue *result) {
    if (!f.is_read_only) {
        CommandCounterIncrement();
        PushActiveSnapshot(GetTransactionSnapshot());
    }
    ResourceOwner owner = CurrentResourceOwner;
    CachedPlan *plan = GetCachedPlan(source, f.arguments, owner, nullptr);
    // Statements before this one may have changed its result.
    if (result != nullptr && !gives(*source, f.result))
        ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                        errmsg("return type mismatch in function declared to return %s",
                               format_type_be(f.result))));
    const ListCell *cell;
    foreach (cell, plan->stmt_list) {
        if (!f.is_read_only && cell != list_head(plan->stmt_list)) {
            CommandCounterIncrement();
            UpdateActiveSnapshotCommandId();
        }
        run_statement(f, lfirst_node(PlannedStmt, cell), result);
    }
    ReleaseCachedPlan(plan, owner);
    if (!f.is_read_only)
        PopActiveSnapshot();
}

} // namespace

SqlFunction *prepare_sql_function(Oid function) {
    HeapTuple row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(row))
        elog(ERROR, "cache lookup failed for function %u", function);
    // In a context that the transaction frees if this fails, and kept afterwards.
    MemoryContext memory =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga SQL function", ALLOCSET_SMALL_SIZES);
    SqlFunction *f = pg::in_context(
        memory, [&] { return static_cast<SqlFunction *>(palloc0(sizeof(SqlFunction))); });
    f->memory = memory;
    const bool is_text = pg::in_context(memory, [&] { return read_row(*f, row); });
    ReleaseSysCache(row);
    if (is_text)
        plan(*f);
    MemoryContextSetParent(memory, CacheMemoryContext);
    return f;
}

bool is_of(const SqlFunction &f, Oid function) {
    if (f.oid != function)
        return false;
    HeapTuple row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(row))
        return false;
    const bool is_same = HeapTupleHeaderGetRawXmin(row->t_data) == f.row_xmin &&
                         ItemPointerEquals(&row->t_self, const_cast<ItemPointer>(&f.row_id));
    ReleaseSysCache(row);
    return is_same;
}

bool can_be_run(const SqlFunction &f) {
    if (f.plan == nullptr)
        return false;
    const List *sources = SPI_plan_get_plan_sources(f.plan);
    const ListCell *cell;
    foreach (cell, sources)
        if (!CachedPlanIsValid(static_cast<CachedPlanSource *>(lfirst(cell))))
            return false;
    return f.result == VOIDOID ||
           gives(*static_cast<const CachedPlanSource *>(llast(sources)), f.result);
}

bool is_left_to_fmgr(const SqlFunction &f) {
    return f.plan == nullptr;
}

Datum run_sql_function(SqlFunction &f, Datum argument, bool *isnull) {
    FirstValue result = first_value_of(f);
    ErrorContextCallback context{
        .previous = error_context_stack, .callback = add_context, .arg = &f};
    error_context_stack = &context;
    f.arguments->params[0].value = argument;
    f.arguments->params[0].isnull = false;
    f.statement = 0;
    const List *sources = SPI_plan_get_plan_sources(f.plan);
    const ListCell *cell;
    foreach (cell, sources) {
        ++f.statement;
        const bool is_last = f.statement == list_length(sources);
        run_source(f, static_cast<CachedPlanSource *>(lfirst(cell)),
                   is_last && f.result != VOIDOID ? &result : nullptr);
    }
    error_context_stack = context.previous;
    *isnull = result.isnull;
    return result.value;
}

void free_sql_function(SqlFunction *f) {
    if (f->plan != nullptr)
        SPI_freeplan(f->plan);
    MemoryContextDelete(f->memory);
}

} // namespace stacksaga
