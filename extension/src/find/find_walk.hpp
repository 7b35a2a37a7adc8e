// The filter of find_sagas(), and the ways to the newest sagas that it accepts, by index: along the
// list, and along keys.
//
// The list is ordered by (created_at, saga_id) within each status and definition, and for an
// attribute within each of these as well, so its walk merges as many ranges as there are. A walk is
// done when it has found a page, or all sagas; which of several is done first depends on which
// value of the filter is rare, so they take turns.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"
#include "pg/table/index_walk.hpp"

namespace stacksaga {

/// A saga's place in the list: newest first, then by descending id.
struct ListPlace {
    TimestampTz created_at;
    pg_uuid_t saga_id;

    bool is(const ListPlace &other) const {
        return created_at == other.created_at &&
               memcmp(saga_id.data, other.saga_id.data, UUID_LEN) == 0;
    }
    /// Whether this saga comes before the other one in the list.
    bool is_newer_than(const ListPlace &other) const {
        if (created_at != other.created_at)
            return created_at > other.created_at;
        return memcmp(saga_id.data, other.saga_id.data, UUID_LEN) > 0;
    }
};

struct SagaFilter {
    std::optional<std::string_view> saga;
    std::span<const int32> definitions{}; ///< all versions of that saga
    std::optional<core::Status> status;
    std::optional<std::string_view> key_prefix;
    std::optional<Datum> attributes; ///< jsonb
    std::span<const int64> hashes{}; ///< of the attributes
    std::optional<ListPlace> before; ///< the last row of the page before
    size_t max_sagas;

    bool accepts(TupleTableSlot *saga) const;
    /// Whether it accepts all sagas whose keys have the prefix.
    bool accepts_each_key() const { return !saga && !status && !attributes; }
};

/// SG400 for invalid arguments. The caller looks up `definitions`.
SagaFilter find_argument(const pg::Arguments &arguments);

/// The sagas that were found, in the order of the list, up to the size of a page.
class FoundPage {
public:
    explicit FoundPage(size_t max_sagas);

    /// Adds the next one of the list; the page is not full.
    void add(const ListPlace &place) { places_[count_++] = place; }
    bool is_full() const { return count_ == places_.size(); }
    std::span<const ListPlace> places() const { return places_.first(count_); }

private:
    std::span<ListPlace> places_;
    size_t count_ = 0;
};

/// Where the rows of some sagas are.
class RowSet {
public:
    /// Makes room for this number of sagas.
    explicit RowSet(size_t count);
    void add(const ItemPointerData &row);
    bool has(const ItemPointerData &row) const;

private:
    static uint64 number_of(const ItemPointerData &row);
    uint64 *find(uint64 number) const;

    uint64 *numbers_; ///< 0: free
    size_t mask_;
};

/// Newest first along one or many ranges of an index.
class ListWalk {
public:
    /// All sagas, or those of the filter's statuses and definitions.
    static ListWalk of_sagas(const SagaFilter &filter, const pg::OpenIndex &index);
    /// Those that have the attribute. `primary_key`: of table saga.
    static ListWalk of_attribute(const SagaFilter &filter, const pg::OpenIndex &index, int64 hash,
                                 const pg::OpenIndex &primary_key);

    /// Looks at one saga, but reads its row only when it is one of `only`; false when the walk is
    /// done.
    bool advance(FoundPage &page, const RowSet *only);
    void close();

private:
    struct Range {
        pg::IndexWalk walk;
        AttrNumber column; ///< of the index: created_at, and saga_id behind it
        ListPlace place;   ///< of the next entry, where several ranges are merged
    };

    ListWalk(const SagaFilter &filter, const pg::OpenIndex &index)
        : filter_(filter), index_(index) {}
    void add_ranges(std::span<const pg::KeyColumn> prefix);
    void add_ranges_of(std::span<const pg::KeyColumn> prefix, core::Status status);
    void add_range(std::span<const pg::KeyColumn> key);
    bool read(Range &range) const;
    static ListPlace place_of(const Range &range);
    void give_back(Range range);
    bool is_accepted(Range &range, const RowSet *only);

    const SagaFilter &filter_;
    const pg::OpenIndex &index_;
    std::optional<pg::IndexWalk> sagas_{}; ///< where the table is another one
    bool is_merge_ = true;
    Range *ranges_ = nullptr; ///< a heap, the newest first
    size_t count_ = 0, capacity_ = 0;
};
static_assert(std::is_trivially_destructible_v<ListWalk>);

/// Along the keys that begin with the prefix. The entries show which sagas are the newest, and only
/// their rows are looked at. Of very many entries the walk keeps the newest, and reads the others
/// again when those do not fill the page.
class KeyWalk {
public:
    KeyWalk(const SagaFilter &filter, const pg::OpenIndex &index);

    enum class State : uint8 { reading, looking, done };
    /// Reads some entries, in some turns none, or looks at one saga.
    State advance(FoundPage &page);
    /// The rows of all sagas that have the prefix, once that is known and helps: when not each of
    /// them is accepted.
    const RowSet *rows();
    void close() { walk_.close(); }

private:
    struct Entry {
        ListPlace place;
        ItemPointerData row;
    };
    static bool is_older(const Entry &a, const Entry &b) { return b.place.is_newer_than(a.place); }
    static bool is_newer(const Entry &a, const Entry &b) { return a.place.is_newer_than(b.place); }

    State read();
    bool keep_entry(const pg::LeafEntry &entry);
    void reserve(size_t more);
    State finish();
    void drop_oldest();
    State look(FoundPage &page);
    State read_older();

    const SagaFilter &filter_;
    const pg::OpenIndex &index_;
    pg::KeyColumn begin_;
    pg::IndexWalk walk_; ///< to the first key, and to rows
    std::optional<pg::LeafWalk> leaves_{};
    int turn_ = 0;
    State state_ = State::reading;
    size_t kept_max_;          ///< of the newest entries, twice as many for a while
    Entry *entries_ = nullptr; ///< once all are read a heap, the newest first
    size_t count_ = 0, capacity_ = 0;
    std::optional<ListPlace> from_{}; ///< newer entries have been looked at
    std::optional<ListPlace> cut_{};  ///< older entries have been dropped
    std::optional<RowSet> rows_{};
};
static_assert(std::is_trivially_destructible_v<KeyWalk>);

} // namespace stacksaga
