#include "src/saga/find_walk.hpp"

#include "src/saga/tables.hpp"

namespace stacksaga {

namespace {

using Entries = pg::IndexWalk::Entries;

// Reading so many entries takes somewhat longer than looking at a row.
constexpr int entries_per_turn = 16;
// Of one walk of keys: 40 MB. Where more sagas have the prefix the list leads to them.
constexpr size_t entries_max = 1'000'000;

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
    walk.created_at_ = pg::column_number(SagaColumn::created_at);
    walk.saga_id_ = pg::column_number(SagaColumn::saga_id);
    if (filter.saga || filter.status)
        walk.add_ranges({});
    else
        walk.add_range({});
    return walk;
}

ListWalk ListWalk::of_attribute(const SagaFilter &filter, const pg::OpenIndex &index, int64 hash,
                                const pg::OpenIndex &primary_key) {
    ListWalk walk(filter, index);
    walk.created_at_ = pg::column_number(AttributeColumn::created_at);
    walk.saga_id_ = pg::column_number(AttributeColumn::saga_id);
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
    Range range{.walk = pg::IndexWalk(index_, key, before, BackwardScanDirection, Entries::places),
                .row = nullptr,
                .place = {}};
    if (count_ == capacity_) {
        capacity_ = std::max<size_t>(8, 2 * capacity_);
        const Size bytes = sizeof(Range) * capacity_;
        ranges_ =
            static_cast<Range *>(ranges_ == nullptr ? palloc(bytes) : repalloc(ranges_, bytes));
    }
    give_back(range);
}

bool ListWalk::read(Range &range) const {
    range.row = range.walk.next_row();
    if (range.row != nullptr)
        range.place = place_in(range.row, created_at_, saga_id_);
    return range.row != nullptr;
}

/// With its next row, if there is one.
void ListWalk::give_back(Range range) {
    if (!read(range)) {
        range.walk.close();
        return;
    }
    ranges_[count_++] = range;
    std::push_heap(ranges_, ranges_ + count_,
                   [](const Range &a, const Range &b) { return b.place.is_newer_than(a.place); });
}

TupleTableSlot *ListWalk::saga_row(const Range &range) {
    if (!sagas_)
        return range.row;
    sagas_->seek(
        std::array{pg::KeyColumn{F_UUID_EQ, InvalidOid, UUIDPGetDatum(&range.place.saga_id)}});
    return sagas_->next_row();
}

bool ListWalk::advance(FoundPage &page) {
    if (count_ == 0)
        return false;
    std::pop_heap(ranges_, ranges_ + count_,
                  [](const Range &a, const Range &b) { return b.place.is_newer_than(a.place); });
    const Range range = ranges_[--count_];
    TupleTableSlot *saga = saga_row(range);
    if (saga != nullptr && filter_.accepts(saga))
        page.add(range.place);
    give_back(range);
    return !page.is_full() && count_ > 0;
}

void ListWalk::close() {
    for (size_t i = 0; i < count_; ++i)
        ranges_[i].walk.close();
    if (sagas_)
        sagas_->close();
}

// No upper bound: a comparison through the index would take longer than that of the bytes.
KeyWalk::KeyWalk(const SagaFilter &filter, const pg::OpenIndex &index)
    : filter_(filter),
      walk_(index,
            std::array{pg::KeyColumn{F_TEXT_PATTERN_GE, DEFAULT_COLLATION_OID,
                                     PointerGetDatum(pg::make_text(*filter.key_prefix)),
                                     BTGreaterEqualStrategyNumber}},
            std::nullopt, ForwardScanDirection, Entries::values) {}

KeyWalk::State KeyWalk::advance(FoundPage &page) {
    if (state_ == State::reading)
        state_ = read();
    else if (state_ == State::looking)
        state_ = look(page);
    return state_;
}

KeyWalk::State KeyWalk::read() {
    for (int i = 0; i < entries_per_turn; ++i) {
        if (!walk_.next_entry() || !keep_entry()) {
            std::make_heap(entries_, entries_ + count_, is_older);
            return State::looking;
        }
    }
    return count_ < entries_max ? State::reading : State::given_up;
}

/// False for the first entry whose key begins otherwise.
bool KeyWalk::keep_entry() {
    std::array<Datum, 3> entry;
    walk_.values(entry);
    if (!pg::view_of_text(entry[0]).starts_with(*filter_.key_prefix))
        return false;
    const ListPlace place{.created_at = DatumGetTimestampTz(entry[1]),
                          .saga_id = *DatumGetUUIDP(entry[2])};
    if (filter_.before && !filter_.before->is_newer_than(place))
        return true;
    if (count_ == capacity_) {
        capacity_ = std::max<size_t>(256, 2 * capacity_);
        const Size bytes = sizeof(Entry) * capacity_;
        entries_ =
            static_cast<Entry *>(entries_ == nullptr ? palloc(bytes) : repalloc(entries_, bytes));
    }
    entries_[count_++] = {.place = place, .row = walk_.place()};
    return true;
}

KeyWalk::State KeyWalk::look(FoundPage &page) {
    if (count_ == 0)
        return State::done;
    std::pop_heap(entries_, entries_ + count_, is_older);
    const Entry &newest = entries_[--count_];
    TupleTableSlot *saga = walk_.row_at(newest.row);
    if (saga != nullptr && filter_.accepts(saga))
        page.add(newest.place);
    return page.is_full() ? State::done : State::looking;
}

} // namespace stacksaga
