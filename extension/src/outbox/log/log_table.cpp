#include "src/outbox/log/log_table.hpp"

#include "core/ring/token.hpp"

#include "pg/compat.hpp"
#include "pg/statement/scope.hpp"
#include "pg/table/lookup.hpp"
#include "pg/table/relation_change.hpp"

namespace stacksaga {

namespace {

constinit LogSequences sequences{};
constinit uint64 changes = 1;  // of any table, as this session has noticed
constinit uint64 known_at = 0; // what `changes` was when the sequences were looked up
constinit bool is_watching = false;

Oid relation_named(const char *name) {
    Oid oid = get_relname_relid(name, get_namespace_oid("stacksaga", false));
    if (!OidIsValid(oid))
        elog(ERROR, "relation stacksaga.%s does not exist", name);
    return oid;
}

/// The extension may be dropped and made again in the same session.
void note_change(Datum, Oid) {
    ++changes;
}

} // namespace

const LogSequences &log_sequences() {
    if (!is_watching) {
        pg::watch_relations(note_change);
        is_watching = true;
    }
    if (known_at != changes) {
        const uint64 before = changes; // the look-up itself may notice a change
        const LogSequences found{.number = relation_named("outbox_number_seq"),
                                 .generation = relation_named("outbox_generation_seq")};
        sequences = found;
        known_at = before;
    }
    return sequences;
}

int64 last_value_of(Oid sequence) {
    // Called with a result flag, since "none yet" is a NULL.
    LOCAL_FCINFO(fcinfo, 1);
    InitFunctionCallInfoData(*fcinfo, nullptr, 1, InvalidOid, nullptr, nullptr);
    fcinfo->args[0].value = ObjectIdGetDatum(sequence);
    fcinfo->args[0].isnull = false;
    const Datum value = pg_sequence_last_value(fcinfo);
    return fcinfo->isnull ? 0 : DatumGetInt64(value);
}

Message LogRow::copy() const {
    HeapTuple tuple = ExecCopySlotHeapTuple(slot_);
    // There may be more columns than ours: publish() refuses such a table, but its rows are read.
    const auto columns = static_cast<size_t>(slot_->tts_tupleDescriptor->natts);
    auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * columns));
    auto *nulls = static_cast<bool *>(palloc(sizeof(bool) * columns));
    heap_deform_tuple(tuple, slot_->tts_tupleDescriptor, values, nulls);
    auto value = [&](LogColumn column) {
        auto i = static_cast<size_t>(column) - 1;
        return nulls[i] ? Datum{0} : values[i];
    };
    Message m{};
    m.number = DatumGetInt64(value(LogColumn::number));
    m.token = core::Token::from_int64(DatumGetInt64(value(LogColumn::token)));
    m.attempt = 1;
    m.id = *DatumGetUUIDP(value(LogColumn::message_id));
    m.published_at = DatumGetTimestampTz(value(LogColumn::published_at));
    if (!nulls[static_cast<size_t>(LogColumn::deliver_at) - 1])
        m.deliver_at = DatumGetTimestampTz(value(LogColumn::deliver_at));
    m.topic = value(LogColumn::topic);
    m.key = value(LogColumn::key);
    m.type = value(LogColumn::type);
    m.payload = value(LogColumn::payload);
    m.headers = value(LogColumn::headers);
    pfree(values);
    pfree(nulls);
    return m;
}

LogTables::LogTables() {
    for (pg::Table &log : log_tables) {
        Relation table = log.open(AccessShareLock);
        // Under the lock: an empty table may be filled from now on, but not with messages that the
        // caller looks for, since those are committed already.
        const bool is_empty = RelationGetNumberOfBlocks(table) == 0;
        table_close(table, is_empty ? AccessShareLock : NoLock);
        if (!is_empty)
            tables_[count_++].log = &log;
    }
}

void LogTables::open_indexes(LogIndex index) {
    for (int i = 0; i < count_; ++i) {
        const std::optional<pg::OpenIndex> opened = pg::OpenIndex::open(*tables_[i].log, index);
        if (!opened)
            pg::raise_unreadable(*tables_[i].log, static_cast<size_t>(index));
        tables_[i].index = *opened;
    }
}

void LogTables::close_indexes() {
    for (int i = 0; i < count_; ++i)
        tables_[i].index.close();
}

void LogTables::begin(Scan &scan, const pg::OpenIndex &by, const Range &range) {
    if (snapshot_ == nullptr)
        snapshot_ = RegisterSnapshot(GetLatestSnapshot());
    ScanKeyData keys[4];
    int count = 0;
    if (range.by_transaction)
        ScanKeyInit(&keys[count++], 1, BTEqualStrategyNumber, F_INT8EQ,
                    Int64GetDatum(static_cast<int64>(range.xid)));
    const auto first_column = static_cast<AttrNumber>(count + 1);
    const auto second_column = static_cast<AttrNumber>(count + 2);
    if (range.stripe != any_stripe) {
        ScanKeyInit(&keys[count++], first_column, BTEqualStrategyNumber, F_INT2EQ,
                    Int16GetDatum(range.stripe));
        ScanKeyInit(&keys[count++], second_column, BTGreaterStrategyNumber, F_INT8GT,
                    Int64GetDatum(range.after));
        ScanKeyInit(&keys[count++], second_column, BTLessEqualStrategyNumber, F_INT8LE,
                    Int64GetDatum(range.until));
    }
    scan.descriptor = pg::begin_index_scan(by.table, by.index, snapshot_, count);
    index_rescan(scan.descriptor, keys, count, nullptr, 0);
    scan.slot = table_slot_create(by.table, nullptr);
    step(scan);
}

void LogTables::end(Scan &scan) {
    ExecDropSingleTupleTableSlot(scan.slot);
    index_endscan(scan.descriptor);
}

void LogTables::step(Scan &scan) {
    scan.has_row = index_getnext_slot(scan.descriptor, ForwardScanDirection, scan.slot);
    if (scan.has_row)
        scan.number = LogRow{scan.slot}.number();
}

LogTables::Scan *LogTables::first(int count) {
    Scan *least = nullptr;
    for (int i = 0; i < count; ++i)
        if (scans_[i].has_row && (least == nullptr || scans_[i].number < least->number))
            least = &scans_[i];
    return least;
}

bool LogTables::holds_transaction(uint64 xid) {
    bool found = false;
    open_indexes(LogIndex::by_transaction);
    for (int i = 0; i < count_ && !found; ++i) {
        Scan &scan = scans_[0];
        begin(scan, tables_[i].index,
              {.by_transaction = true, .xid = xid, .stripe = any_stripe, .after = 0, .until = 0});
        found = scan.has_row;
        end(scan);
    }
    close_indexes();
    return found;
}

void LogTables::close() {
    if (snapshot_ != nullptr)
        UnregisterSnapshot(snapshot_);
    snapshot_ = nullptr;
    count_ = 0;
}

} // namespace stacksaga
