// The ways to the newest sagas that a filter accepts, by index: along the list, and along keys.
//
// The list is ordered by (created_at, saga_id) within each status and definition, and for an
// attribute within each of these as well, so its walk merges as many ranges as there are. A walk is
// done when it has found a page, or all there is; which of several is done first depends on what is
// rare, so they take turns.
#pragma once
#include "pg/index_walk.hpp"
#include "src/saga/find_filter.hpp"

namespace stacksaga {

/// The sagas that were found, in the order of the list; at most as many as asked for.
class FoundPage {
public:
    explicit FoundPage(size_t max_sagas);

    /// The next one of the list; the page is not full.
    void add(const ListPlace &place) { places_[count_++] = place; }
    bool is_full() const { return count_ == places_.size(); }
    std::span<const ListPlace> places() const { return places_.first(count_); }

private:
    std::span<ListPlace> places_;
    size_t count_ = 0;
};

/// Newest first along one or many ranges of an index.
class ListWalk {
public:
    /// All sagas, or those of the filter's statuses and definitions.
    static ListWalk of_sagas(const SagaFilter &filter, const pg::OpenIndex &index);
    /// Those that have the attribute. `primary_key`: of table saga.
    static ListWalk of_attribute(const SagaFilter &filter, const pg::OpenIndex &index, int64 hash,
                                 const pg::OpenIndex &primary_key);

    /// Looks at one saga; false when the walk is done.
    bool advance(FoundPage &page);
    void close();

private:
    struct Range {
        pg::IndexWalk walk;
        TupleTableSlot *row; ///< the next one
        ListPlace place;
    };

    ListWalk(const SagaFilter &filter, const pg::OpenIndex &index)
        : filter_(filter), index_(index) {}
    void add_ranges(std::span<const pg::KeyColumn> prefix);
    void add_ranges_of(std::span<const pg::KeyColumn> prefix, core::Status status);
    void add_range(std::span<const pg::KeyColumn> key);
    bool read(Range &range) const;
    void give_back(Range range);
    TupleTableSlot *saga_row(const Range &range);

    const SagaFilter &filter_;
    const pg::OpenIndex &index_;
    AttrNumber created_at_ = 0, saga_id_ = 0; ///< columns of the table that is walked
    std::optional<pg::IndexWalk> sagas_{};    ///< where the table is another one
    Range *ranges_ = nullptr;                 ///< a heap, the newest first
    size_t count_ = 0, capacity_ = 0;
};
static_assert(std::is_trivially_destructible_v<ListWalk>);

/// Along the keys that begin with the prefix. Their entries say which sagas are the newest; only
/// then are rows looked at.
class KeyWalk {
public:
    KeyWalk(const SagaFilter &filter, const pg::OpenIndex &index);

    enum class State : uint8 { reading, looking, done, given_up };
    /// Reads some entries, or looks at one saga.
    State advance(FoundPage &page);
    void close() { walk_.close(); }

private:
    struct Entry {
        ListPlace place;
        ItemPointerData row;
    };
    static bool is_older(const Entry &a, const Entry &b) { return b.place.is_newer_than(a.place); }

    State read();
    bool keep_entry();
    State look(FoundPage &page);

    const SagaFilter &filter_;
    pg::IndexWalk walk_;
    State state_ = State::reading;
    Entry *entries_ = nullptr; ///< once all are read a heap, the newest first
    size_t count_ = 0, capacity_ = 0;
};
static_assert(std::is_trivially_destructible_v<KeyWalk>);

} // namespace stacksaga
