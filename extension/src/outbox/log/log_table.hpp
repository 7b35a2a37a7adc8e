// The tables of the log, read by their indexes without the planner: a plan that was made while they
// were small, or just truncated, must not read them from end to end when they are large.
#pragma once
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "pg/table/index_walk.hpp"
#include "src/outbox/log/log_read.hpp"
#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

/// A row under a scan; its values are valid until the scan continues.
class LogRow {
public:
    explicit LogRow(TupleTableSlot *slot) : slot_(slot) {}

    Datum value(LogColumn column) const {
        bool isnull;
        return slot_getattr(slot_, static_cast<int>(column), &isnull);
    }
    int64 int8(LogColumn column) const { return DatumGetInt64(value(column)); }
    int64 number() const { return int8(LogColumn::number); }
    std::string_view topic() const {
        text *t = DatumGetTextPP(value(LogColumn::topic));
        return {VARDATA_ANY(t), static_cast<size_t>(VARSIZE_ANY_EXHDR(t))};
    }
    core::LogEntry entry() const {
        return {.xid = static_cast<uint64>(int8(LogColumn::transaction_id)),
                .number = number(),
                .origin = int8(LogColumn::origin)};
    }
    /// A copy in the current memory context, without what depends on the subscription.
    Message copy() const;

private:
    TupleTableSlot *slot_;
};

/// The generations that hold messages. After an error the resource owner closes what is open.
class LogTables {
public:
    /// Opens them, under a lock that keeps them from being truncated until the transaction ends.
    LogTables();

    /// Calls `each(const LogRow &)` for the rows of `stripes` with numbers in (after, until], in
    /// their order, until it returns false.
    template <class F> void by_number(core::Stripes stripes, int64 after, int64 until, F &&each) {
        merge(false, 0, stripes, after, until, each);
    }

    /// The same for the rows of one transaction.
    template <class F>
    void by_transaction(uint64 xid, core::Stripes stripes, int64 after, int64 until, F &&each) {
        merge(true, xid, stripes, after, until, each);
    }

    /// Whether there is a row of the transaction.
    bool holds_transaction(uint64 xid);

    /// To be called on the normal path; the locks stay.
    void close();

private:
    /// One of them, and the index that is being read: one at a time, so that REINDEX TABLE, which
    /// locks one after the other, waits for no session that waits for it.
    struct Table {
        pg::Table *log;
        pg::OpenIndex index;
    };
    struct Scan {
        IndexScanDesc descriptor;
        TupleTableSlot *slot;
        bool has_row;
        int64 number; ///< of the row
    };
    /// The range of a scan: one stripe, or all that a transaction published.
    struct Range {
        bool by_transaction;
        uint64 xid;
        int16 stripe;
        int64 after;
        int64 until;
    };
    static constexpr int16 any_stripe = -1; ///< of a transaction

    /// The rows of all generations, in the order of their numbers.
    template <class F>
    void merge(bool by_transaction, uint64 xid, core::Stripes stripes, int64 after, int64 until,
               F &&each) {
        int count = 0;
        open_indexes(by_transaction ? LogIndex::by_transaction : LogIndex::by_number);
        for (int i = 0; i < count_; ++i)
            for (int stripe = stripes.first; stripe <= stripes.last; ++stripe)
                begin(scans_[count++], tables_[i].index,
                      {.by_transaction = by_transaction,
                       .xid = xid,
                       .stripe = static_cast<int16>(stripe),
                       .after = after,
                       .until = until});
        for (Scan *next = first(count); next != nullptr; next = first(count)) {
            CHECK_FOR_INTERRUPTS();
            if (!each(LogRow{next->slot}))
                break;
            step(*next);
        }
        for (int i = 0; i < count; ++i)
            end(scans_[i]);
        close_indexes();
    }

    void open_indexes(LogIndex index);
    void close_indexes();
    void begin(Scan &scan, const pg::OpenIndex &by, const Range &range);
    static void end(Scan &scan);
    static void step(Scan &scan);
    Scan *first(int count);

    std::array<Table, generations> tables_{};
    std::array<Scan, static_cast<size_t>(generations) * core::log_stripes> scans_;
    int count_ = 0; ///< of the tables
    ::Snapshot snapshot_ = nullptr;
};
static_assert(std::is_trivially_destructible_v<LogTables>);

/// The sequences of the log.
struct LogSequences {
    Oid number, generation;
};

/// Looked up once in a session, and again when one of them may have been replaced.
const LogSequences &log_sequences();

/// The last value that a sequence of the outbox has given; 0 before the first one.
int64 last_value_of(Oid sequence);

} // namespace stacksaga
