#include "src/find/find_walk.hpp"

#include "core/saga/saga_state.hpp"

#include "src/common/limits.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/saga_traits.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

constexpr int32 sagas_max = 1000;

std::optional<core::Status> status_argument(const pg::Arguments &arguments) {
    const std::optional<std::string_view> name = arguments.optional_text(1);
    if (!name)
        return std::nullopt;
    const std::optional<core::Status> status = core::status_of(*name);
    if (!status)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"status\" is not a status"),
                        errdetail("The value is \"%s\".", clip(*name)),
                        errhint("Use pending, running, compensating, completed, failed, parked or "
                                "suspended.")));
    return status;
}

/// Without an id: all that were created before the instant.
std::optional<ListPlace> before_argument(const pg::Arguments &arguments) {
    if (arguments.is_null(4) && arguments.is_null(5))
        return std::nullopt;
    if (arguments.is_null(4))
        ereport(ERROR, (errcode(pg::sg400), errmsg("before_saga_id needs created_before"),
                        errdetail("The next page begins after (created_at, saga_id) of a row."),
                        errhint("Pass both of the last row of the page before.")));
    ListPlace place{.created_at = DatumGetTimestampTz(arguments.datum(4)), .saga_id = {}};
    if (!arguments.is_null(5))
        place.saga_id = *DatumGetUUIDP(arguments.datum(5));
    return place;
}

size_t max_sagas_argument(const pg::Arguments &arguments) {
    const int32 count = arguments.required_int4(6, "max_sagas");
    if (count < 1 || count > sagas_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_sagas\" is out of range"),
                        errdetail("The value is %d.", count),
                        errhint("Use 1 to %d, and created_before and before_saga_id for the next "
                                "page.",
                                sagas_max)));
    return static_cast<size_t>(count);
}

} // namespace

SagaFilter find_argument(const pg::Arguments &arguments) {
    SagaFilter filter{.saga = arguments.optional_text(0),
                      .status = status_argument(arguments),
                      .key_prefix = arguments.optional_text(2),
                      .attributes = std::nullopt,
                      .before = before_argument(arguments),
                      .max_sagas = max_sagas_argument(arguments)};
    if (filter.saga)
        check_name(*filter.saga, "saga");
    if (filter.key_prefix)
        check_length(*filter.key_prefix, "key_prefix", key_bytes_max);
    if (!arguments.is_null(3))
        filter.attributes = checked_attributes(arguments.datum(3));
    if (filter.attributes)
        filter.hashes = hashes_of(*filter.attributes);
    return filter;
}

bool SagaFilter::accepts(TupleTableSlot *row) const {
    if (status && pg::view_of_text(value_in(row, SagaColumn::status)) != core::name_of(*status))
        return false;
    const int32 definition_id = DatumGetInt32(value_in(row, SagaColumn::definition_id));
    if (saga &&
        std::find(definitions.begin(), definitions.end(), definition_id) == definitions.end())
        return false;
    if (key_prefix && (slot_attisnull(row, pg::column_number(SagaColumn::key)) ||
                       !pg::view_of_text(value_in(row, SagaColumn::key)).starts_with(*key_prefix)))
        return false;
    return !attributes ||
           (!slot_attisnull(row, pg::column_number(SagaColumn::attributes)) &&
            DatumGetBool(DirectFunctionCall2(jsonb_contains, value_in(row, SagaColumn::attributes),
                                             *attributes)));
}

namespace {

using Entries = pg::IndexWalk::Entries;

// Reading a page of keys takes as long as looking at this number of rows, since rows of one status
// or definition lie far apart.
constexpr int near_rows_of_page = 8, far_rows_of_page = 2;
// Number of entries that a walk along keys keeps for each saga of a page, where each entry is
// accepted if its row is alive: several may belong to rows that were updated since.
constexpr size_t kept_per_saga = 16;
// The same where the row has to be looked at: 64 MB at most.
constexpr size_t kept_of_many = 500'000;

pg::KeyColumn status_column(core::Status status) {
    return {F_TEXTEQ, C_COLLATION_OID, PointerGetDatum(pg::make_text(core::name_of(status)))};
}
pg::KeyColumn definition_column(int32 definition_id) {
    return {F_INT4EQ, InvalidOid, Int32GetDatum(definition_id)};
}

} // namespace

FoundPage::FoundPage(size_t max_sagas)
    : places_(static_cast<ListPlace *>(palloc(sizeof(ListPlace) * max_sagas)), max_sagas) {}

ListWalk ListWalk::of_sagas(const SagaFilter &filter, const pg::OpenIndex &index) {
    ListWalk walk(filter, index);
    walk.is_merge_ = filter.saga || filter.status;
    if (walk.is_merge_)
        walk.add_ranges({});
    else
        walk.add_range({});
    return walk;
}

ListWalk ListWalk::of_attribute(const SagaFilter &filter, const pg::OpenIndex &index, int64 hash,
                                const pg::OpenIndex &primary_key) {
    ListWalk walk(filter, index);
    const pg_uuid_t nobody{};
    walk.sagas_.emplace(primary_key,
                        std::array{pg::KeyColumn{F_UUID_EQ, InvalidOid, UUIDPGetDatum(&nobody)}},
                        std::nullopt, ForwardScanDirection, Entries::places);
    walk.add_ranges(std::array{pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(hash)}});
    return walk;
}

void ListWalk::add_ranges(std::span<const pg::KeyColumn> prefix) {
    for (size_t i = 0; i < core::status_names.size(); ++i) {
        const auto status = static_cast<core::Status>(i);
        if (!filter_.status || *filter_.status == status)
            add_ranges_of(prefix, status);
    }
}

/// One for each definition of the filter, or for each that has entries.
void ListWalk::add_ranges_of(std::span<const pg::KeyColumn> prefix, core::Status status) {
    std::array<pg::KeyColumn, 3> key{};
    const size_t count = prefix.size() + 2;
    std::copy(prefix.begin(), prefix.end(), key.begin());
    key[count - 2] = status_column(status);
    const std::span<const pg::KeyColumn> whole(key.data(), count);
    if (filter_.saga) {
        for (const int32 definition_id : filter_.definitions) {
            key[count - 1] = definition_column(definition_id);
            add_range(whole);
        }
        return;
    }
    const auto column = static_cast<AttrNumber>(count);
    const auto after = [&](int32 definition_id) {
        key[count - 1] = {F_INT4GT, InvalidOid, Int32GetDatum(definition_id),
                          BTGreaterStrategyNumber};
        return whole;
    };
    pg::IndexWalk definitions(index_, after(0), std::nullopt, ForwardScanDirection,
                              Entries::values);
    while (definitions.next_entry()) {
        const int32 definition_id = DatumGetInt32(definitions.value(column));
        key[count - 1] = definition_column(definition_id);
        add_range(whole);
        definitions.seek(after(definition_id));
    }
    definitions.close();
}

void ListWalk::add_range(std::span<const pg::KeyColumn> key) {
    std::optional<pg::RowBound> before;
    if (filter_.before)
        before = pg::RowBound{.column = static_cast<AttrNumber>(key.size() + 1),
                              .time = filter_.before->created_at,
                              .id = filter_.before->saga_id};
    Range range{.walk = pg::IndexWalk(index_, key, before, BackwardScanDirection, Entries::values),
                .column = static_cast<AttrNumber>(key.size() + 1),
                .place = {}};
    if (count_ == capacity_) {
        capacity_ = std::max<size_t>(8, 2 * capacity_);
        const Size bytes = sizeof(Range) * capacity_;
        ranges_ =
            static_cast<Range *>(ranges_ == nullptr ? palloc(bytes) : repalloc(ranges_, bytes));
    }
    give_back(range);
}

ListPlace ListWalk::place_of(const Range &range) {
    std::array<Datum, 5> entry;
    const auto column = static_cast<size_t>(range.column);
    range.walk.values(std::span(entry).first(column + 1));
    return {.created_at = DatumGetTimestampTz(entry[column - 1]),
            .saga_id = *DatumGetUUIDP(entry[column])};
}

/// Its next entry, whose row may be gone: the walk reads rows when it reaches them.
bool ListWalk::read(Range &range) const {
    if (!range.walk.next_entry())
        return false;
    if (is_merge_)
        range.place = place_of(range);
    return true;
}

/// With its next entry, if there is one.
void ListWalk::give_back(Range range) {
    if (!read(range)) {
        range.walk.close();
        return;
    }
    ranges_[count_++] = range;
    std::push_heap(ranges_, ranges_ + count_,
                   [](const Range &a, const Range &b) { return b.place.is_newer_than(a.place); });
}

bool ListWalk::is_accepted(Range &range, const RowSet *only) {
    if (only != nullptr && !only->has(range.walk.place()))
        return false;
    TupleTableSlot *row = range.walk.row();
    if (row != nullptr && sagas_) {
        sagas_->seek(
            std::array{pg::KeyColumn{F_UUID_EQ, InvalidOid, UUIDPGetDatum(&range.place.saga_id)}});
        row = sagas_->next_row();
    }
    return row != nullptr && filter_.accepts(row);
}

bool ListWalk::advance(FoundPage &page, const RowSet *only) {
    if (count_ == 0)
        return false;
    std::pop_heap(ranges_, ranges_ + count_,
                  [](const Range &a, const Range &b) { return b.place.is_newer_than(a.place); });
    Range range = ranges_[--count_];
    if (is_accepted(range, only))
        page.add(place_of(range));
    give_back(range);
    return !page.is_full() && count_ > 0;
}

void ListWalk::close() {
    for (size_t i = 0; i < count_; ++i)
        ranges_[i].walk.close();
    if (sagas_)
        sagas_->close();
}

RowSet::RowSet(size_t count) : mask_(std::bit_ceil(2 * count + 2) - 1) {
    numbers_ = static_cast<uint64 *>(MemoryContextAllocExtended(
        CurrentMemoryContext, sizeof(uint64) * (mask_ + 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO));
}

/// Never 0: lines of a page count from 1.
uint64 RowSet::number_of(const ItemPointerData &row) {
    return uint64{ItemPointerGetBlockNumberNoCheck(&row)} << 16 |
           ItemPointerGetOffsetNumberNoCheck(&row);
}

uint64 *RowSet::find(uint64 number) const {
    size_t at = (number * 0x9e3779b97f4a7c15) >> 32 & mask_;
    while (numbers_[at] != 0 && numbers_[at] != number)
        at = (at + 1) & mask_;
    return &numbers_[at];
}

void RowSet::add(const ItemPointerData &row) {
    const uint64 number = number_of(row);
    *find(number) = number;
}

bool RowSet::has(const ItemPointerData &row) const {
    return *find(number_of(row)) != 0;
}

KeyWalk::KeyWalk(const SagaFilter &filter, const pg::OpenIndex &index)
    : filter_(filter), index_(index), begin_{F_TEXT_PATTERN_GE, DEFAULT_COLLATION_OID,
                                             PointerGetDatum(pg::make_text(*filter.key_prefix)),
                                             BTGreaterEqualStrategyNumber},
      walk_(index, std::array{begin_}, std::nullopt, ForwardScanDirection, Entries::places),
      kept_max_(filter.accepts_each_key() ? kept_per_saga * filter.max_sagas : kept_of_many) {}

KeyWalk::State KeyWalk::advance(FoundPage &page) {
    if (state_ == State::reading)
        state_ = read();
    else if (state_ == State::looking)
        state_ = look(page);
    return state_;
}

KeyWalk::State KeyWalk::read() {
    const int turns = filter_.accepts_each_key() ? near_rows_of_page : far_rows_of_page;
    if (turn_++ % turns != 0)
        return State::reading;
    if (!leaves_) {
        if (!walk_.next_entry())
            return finish();
        leaves_.emplace(index_, walk_.page());
    }
    reserve(pg::LeafWalk::entries_max);
    const bool goes_on =
        leaves_->next_page([this](const pg::LeafEntry &entry) { return keep_entry(entry); });
    if (count_ >= 2 * kept_max_)
        drop_oldest();
    return goes_on ? State::reading : finish();
}

KeyWalk::State KeyWalk::finish() {
    std::make_heap(entries_, entries_ + count_, is_older);
    return State::looking;
}

/// False for the first entry whose key does not begin with the prefix.
bool KeyWalk::keep_entry(const pg::LeafEntry &entry) {
    if (!entry.text.starts_with(*filter_.key_prefix))
        return entry.text < *filter_.key_prefix; // of the first page
    if (cut_ && entry.time < cut_->created_at)
        return true;
    const ListPlace place{.created_at = entry.time, .saga_id = *entry.id};
    if ((cut_ && cut_->is_newer_than(place)) || (from_ && place.is_newer_than(*from_)) ||
        (filter_.before && !filter_.before->is_newer_than(place)))
        return true;
    entries_[count_++] = {.place = place, .row = entry.row};
    return true;
}

void KeyWalk::reserve(size_t more) {
    if (count_ + more <= capacity_)
        return;
    capacity_ = std::max(count_ + more, 2 * capacity_);
    const Size bytes = sizeof(Entry) * capacity_;
    entries_ =
        static_cast<Entry *>(entries_ == nullptr ? palloc(bytes) : repalloc(entries_, bytes));
}

void KeyWalk::drop_oldest() {
    std::nth_element(entries_, entries_ + (kept_max_ - 1), entries_ + count_, is_newer);
    count_ = kept_max_;
    cut_ = entries_[kept_max_ - 1].place;
}

KeyWalk::State KeyWalk::look(FoundPage &page) {
    if (count_ == 0)
        return cut_ ? read_older() : State::done;
    std::pop_heap(entries_, entries_ + count_, is_older);
    const Entry &newest = entries_[--count_];
    // A saga has several entries when its row was updated, some before and some behind the cut.
    const bool is_known = !page.places().empty() && page.places().back().is(newest.place);
    TupleTableSlot *saga = is_known ? nullptr : walk_.row_at(newest.row);
    if (saga != nullptr && filter_.accepts(saga))
        page.add(newest.place);
    return page.is_full() ? State::done : State::looking;
}

/// Reads the entries that were dropped, and keeps more of them than before.
KeyWalk::State KeyWalk::read_older() {
    from_ = cut_;
    cut_.reset();
    kept_max_ = std::max(kept_max_, std::min(16 * kept_max_, kept_of_many));
    walk_.seek(std::array{begin_});
    leaves_.reset();
    return State::reading;
}

const RowSet *KeyWalk::rows() {
    if (state_ != State::looking || cut_ || from_ || filter_.accepts_each_key())
        return nullptr;
    if (!rows_) {
        rows_.emplace(count_);
        for (size_t i = 0; i < count_; ++i)
            rows_->add(entries_[i].row);
    }
    return &*rows_;
}

} // namespace stacksaga
