// The ring cut into ranges: equal parts of any number, and slots, the equal parts that are assigned
// to nodes. Ranges are inclusive at both ends and never wrap around. All arithmetic is on
// positions (unsigned, 0..2^64-1) or 128 bits wide, so nothing here can overflow.
#pragma once

#include "core/ring/token.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stacksaga::core {

__extension__ typedef unsigned __int128 uint128;

/// The places from `first` to `last`, both included; `first` <= `last`.
struct Range {
    Token first;
    Token last;

    constexpr bool contains(Token token) const { return first <= token && token <= last; }
    /// How many places it has, 1..2^64.
    constexpr uint128 size() const {
        return uint128{last.position()} - uint128{first.position()} + 1;
    }
    friend constexpr bool operator==(const Range &, const Range &) = default;
};

inline constexpr Range whole_ring{Token::first_of_ring(), Token::last_of_ring()};

/// True when `b` begins right behind the end of `a`.
constexpr bool is_adjacent(const Range &a, const Range &b) {
    return a.last != Token::last_of_ring() && a.last.position() + 1 == b.first.position();
}

// ---------------------------------------------------------------------------- equal parts

/// Whether `range` can be cut into `parts` parts of at least one place each.
constexpr bool is_splittable(const Range &range, std::int64_t parts) {
    return parts >= 1 && static_cast<uint128>(parts) <= range.size();
}

/// Part number `part` (from 0) of `range` cut into `parts`: every part has size / parts places, and
/// the first size % parts of them one more. Needs is_splittable() and 0 <= part < parts.
constexpr Range part_of_range(const Range &range, std::int64_t part, std::int64_t parts) {
    const auto index = static_cast<uint128>(part);
    const uint128 size = range.size() / static_cast<uint128>(parts);
    const uint128 larger = range.size() % static_cast<uint128>(parts);
    const uint128 offset = index * size + std::min(index, larger);
    const uint128 count = size + (index < larger ? 1 : 0);
    const uint128 first = uint128{range.first.position()} + offset;
    return {Token::from_position(static_cast<std::uint64_t>(first)),
            Token::from_position(static_cast<std::uint64_t>(first + count - 1))};
}

constexpr Range part_of_ring(std::int64_t part, std::int64_t parts) {
    return part_of_range(whole_ring, part, parts);
}

// ---------------------------------------------------------------------------- slots

/// The numbers of slots that a ring may have: powers of two between these.
inline constexpr int ring_slots_min = 64;
inline constexpr int ring_slots_max = 4096;

/// Whether the ring can be cut into `slots` equal slots: a power of two, 1..2^30.
constexpr bool is_slot_count(std::int64_t slots) {
    return slots >= 1 && slots <= (std::int64_t{1} << 30) &&
           std::has_single_bit(static_cast<std::uint64_t>(slots));
}

/// Whether a ring may be created with this number of slots.
constexpr bool is_ring_slot_count(std::int64_t slots) {
    return is_slot_count(slots) && slots >= ring_slots_min && slots <= ring_slots_max;
}

/// The slot that holds `token`, 0..slots-1: the top bits of its position. Needs is_slot_count().
constexpr int slot_of(Token token, int slots) {
    const int bits = std::countr_zero(static_cast<unsigned>(slots));
    return static_cast<int>((uint128{token.position()} << bits) >> 64);
}

/// The places of slots `first`..`last`, adjacent ones. Needs 0 <= first <= last < slots.
constexpr Range range_of_slots(int first, int last, int slots) {
    const int shift = 64 - std::countr_zero(static_cast<unsigned>(slots));
    const uint128 begin = static_cast<uint128>(first) << shift;
    const uint128 end = (static_cast<uint128>(last) + 1) << shift;
    return {Token::from_position(static_cast<std::uint64_t>(begin)),
            Token::from_position(static_cast<std::uint64_t>(end - 1))};
}

constexpr Range slot_range(int slot, int slots) {
    return range_of_slots(slot, slot, slots);
}

/// Calls `emit(first_slot, last_slot)` for every run of neighbours in `slots_held`, which is
/// ascending and without duplicates.
template <class Emit> constexpr void for_each_run(std::span<const int> slots_held, Emit &&emit) {
    for (std::size_t begin = 0, end = 0; begin < slots_held.size(); begin = end) {
        end = begin + 1;
        while (end < slots_held.size() && slots_held[end] == slots_held[end - 1] + 1)
            ++end;
        emit(slots_held[begin], slots_held[end - 1]);
    }
}

// ---------------------------------------------------------------------------- tiling

/// The fault of a list of ranges that should tile the ring at slot borders.
enum class TilingRule {
    ok,
    reversed,       ///< a range ends before it starts
    start_off_cut,  ///< a range does not start where a slot starts
    end_off_cut,    ///< a range does not end where a slot ends
    overlap,        ///< two ranges hold the same place
    not_assignable, ///< a range holds a place that is not the publisher's to assign
    gap,            ///< a place that is to be assigned is in no range
};

/// `range` is the index of the range that breaks the rule, or -1 for a gap; `other` is the earlier
/// range of an overlap, else -1; `where` is the first place at which the rule is broken.
struct TilingFault {
    TilingRule rule = TilingRule::ok;
    std::int64_t range = -1;
    std::int64_t other = -1;
    Token where = Token::first_of_ring();
    friend constexpr bool operator==(const TilingFault &, const TilingFault &) = default;
};

/// The rule in words, to go behind "at <where>".
constexpr std::string_view describe(TilingRule rule) {
    switch (rule) {
    case TilingRule::ok:
        return "the ranges tile the ring";
    case TilingRule::reversed:
        return "a range ends before it starts";
    case TilingRule::start_off_cut:
        return "a range does not start where a slot starts";
    case TilingRule::end_off_cut:
        return "a range does not end where a slot ends";
    case TilingRule::overlap:
        return "two ranges overlap";
    case TilingRule::not_assignable:
        return "a range holds a slot that is not the publisher's to assign";
    case TilingRule::gap:
        return "no range holds a slot that must be assigned";
    }
    return "unknown rule";
}

/// Entries of the slot table of cut_at_slots() that are not the index of a range.
inline constexpr std::int32_t slot_is_free = -1;  ///< to be assigned, and not assigned yet
inline constexpr std::int32_t slot_not_ours = -2; ///< not the publisher's to assign

/// Whether ranges are well formed and cut at slot borders; the first fault otherwise.
constexpr TilingFault check_cut(const Range &range, std::int64_t index, int slots) {
    if (range.last < range.first)
        return {TilingRule::reversed, index, -1, range.first};
    if (slot_range(slot_of(range.first, slots), slots).first != range.first)
        return {TilingRule::start_off_cut, index, -1, range.first};
    if (slot_range(slot_of(range.last, slots), slots).last != range.last)
        return {TilingRule::end_off_cut, index, -1, range.last};
    return {};
}

/// Checks that `ranges`, in any order, hold every free slot exactly once and nothing else, and
/// writes into `table[slot]` which range holds the slot. `table` has one entry per slot of the
/// ring (is_slot_count()) and says on entry what is to be assigned: slot_is_free or slot_not_ours.
/// Its content is of no use when a fault is returned.
constexpr TilingFault cut_at_slots(std::span<const Range> ranges, std::span<std::int32_t> table) {
    const int slots = static_cast<int>(table.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const auto index = static_cast<std::int32_t>(i);
        const TilingFault fault = check_cut(ranges[i], index, slots);
        if (fault.rule != TilingRule::ok)
            return fault;
        const int last = slot_of(ranges[i].last, slots);
        for (int slot = slot_of(ranges[i].first, slots); slot <= last; ++slot) {
            std::int32_t &holder = table[static_cast<std::size_t>(slot)];
            const Token where = slot_range(slot, slots).first;
            if (holder == slot_not_ours)
                return {TilingRule::not_assignable, index, -1, where};
            if (holder != slot_is_free)
                return {TilingRule::overlap, index, holder, where};
            holder = index;
        }
    }
    for (int slot = 0; slot < slots; ++slot)
        if (table[static_cast<std::size_t>(slot)] == slot_is_free)
            return {TilingRule::gap, -1, -1, slot_range(slot, slots).first};
    return {};
}

} // namespace stacksaga::core
