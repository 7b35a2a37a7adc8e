// Which node gets which slot. Pure and deterministic: the same members, owners and strategy give
// the same assignment on every machine, so that several coordinators propose the same, and a node
// that leaves hands its slots to the nodes that they would choose.
#pragma once

#include "core/common/scratch.hpp"
#include "core/ring/murmur3.hpp"
#include "core/ring/ring_settings.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stacksaga::core {

/// A node that slots are assigned to.
struct Member {
    std::string_view name;
    double weight = 1; ///< finite and > 0
};

/// Slot without an owner among the members.
inline constexpr std::int32_t nobody = -1;

namespace assignment {

/// Points and distances on the hash ring wrap around at 2^64.
using Point = std::uint64_t;

struct RingPoint {
    Point at = 0;
    std::int32_t member = 0;

    auto operator<=>(const RingPoint &) const = default;
};

struct Rounding {
    bool holds_more = false; ///< than its share rounded down
    double remainder = 0;
    std::size_t member = 0;

    /// Whether this one is rounded up before the other.
    bool operator<(const Rounding &other) const {
        if (holds_more != other.holds_more)
            return holds_more;
        if (remainder != other.remainder)
            return remainder > other.remainder;
        return member < other.member;
    }
};

/// A slot that a member may give up.
struct Surplus {
    std::int32_t member = 0;
    Point distance = 0;
    std::int32_t slot = 0;

    auto operator<=>(const Surplus &) const = default;
};

/// The points of one member: one hash of its name, and from its two halves as many points as are
/// wanted, each mixed once more (Kirsch, Mitzenmacher 2006, "Less hashing, same performance").
class PointsOfMember {
public:
    explicit PointsOfMember(std::string_view name) : hash_(murmur3_x64_128(name)) {}

    Point operator[](std::uint32_t copy) const {
        return murmur3::mix64(hash_.h1 + copy * (hash_.h2 | 1));
    }

private:
    Hash128 hash_;
};

/// Where a slot lies on the hash ring: its number, hashed as eight little-endian bytes. Slots are
/// equal parts of the token ring in order; hashing scatters them, so that neighbours part company.
inline Point point_of_slot(std::int32_t slot) {
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<char>((static_cast<std::uint64_t>(slot) >> (8 * i)) & 0xff);
    return murmur3_x64_128({bytes.data(), bytes.size()}).h1;
}

/// The hash ring of the members that lack slots. Full members drop out as slots are taken.
///
/// Points are spread evenly, so they are sorted in linear time: each goes straight to the bucket of
/// its top bits, where a few others are. A point is looked up the same way.
class HashRing {
public:
    HashRing(std::span<const Member> members, std::span<std::int32_t> lacking,
             std::int32_t virtual_nodes, Scratch &scratch)
        : lacking_(lacking) {
        const auto lacking_members = static_cast<std::size_t>(
            std::count_if(lacking.begin(), lacking.end(), [](std::int32_t n) { return n > 0; }));
        const auto copies = static_cast<std::uint32_t>(virtual_nodes);
        const std::span<RingPoint> unsorted = scratch.take<RingPoint>(lacking_members * copies);
        std::size_t count = 0;
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (lacking[i] <= 0)
                continue;
            const PointsOfMember of_member(members[i].name);
            for (std::uint32_t copy = 0; copy < copies; ++copy)
                unsorted[count++] = {of_member[copy], static_cast<std::int32_t>(i)};
        }
        sort_into_buckets(unsorted, scratch);
        skip_ = scratch.take<std::uint32_t>(count);
        for (std::size_t i = 0; i < count; ++i)
            skip_[i] = static_cast<std::uint32_t>(i + 1);
    }

    static constexpr std::size_t scratch_bytes(std::size_t members, std::int32_t virtual_nodes) {
        const std::size_t points = members * static_cast<std::size_t>(virtual_nodes);
        return 2 * Scratch::bytes_of<RingPoint>(points) + Scratch::bytes_of<std::uint32_t>(points) +
               2 * Scratch::bytes_of<std::uint32_t>(bucket_count(points) + 1);
    }

    bool empty() const { return points_.empty(); }

    /// How far the nearest member lies clockwise of `from`.
    Point distance(Point from) const {
        const std::size_t i = first_from(from);
        return points_[i == points_.size() ? 0 : i].at - from;
    }

    /// Takes a slot at `from` for the first member clockwise that lacks one, and returns it.
    /// Requires that one does.
    std::int32_t take(Point from) {
        std::size_t i = living_from(first_from(from));
        if (i == points_.size())
            i = living_from(0);
        const std::int32_t member = points_[i].member;
        --lacking_[static_cast<std::size_t>(member)];
        return member;
    }

private:
    static constexpr std::size_t bucket_count(std::size_t points) {
        constexpr std::size_t in_a_bucket = 4;
        return std::bit_ceil(std::max<std::size_t>(points / in_a_bucket, 2));
    }

    std::size_t bucket_of(Point at) const { return static_cast<std::size_t>(at >> bucket_shift_); }

    void sort_into_buckets(std::span<const RingPoint> unsorted, Scratch &scratch) {
        const std::size_t buckets = bucket_count(unsorted.size());
        bucket_shift_ = 64 - std::countr_zero(buckets);
        const std::span<std::uint32_t> next = scratch.take<std::uint32_t>(buckets + 1);
        for (const RingPoint &point : unsorted)
            ++next[bucket_of(point.at) + 1];
        for (std::size_t bucket = 1; bucket <= buckets; ++bucket)
            next[bucket] += next[bucket - 1];
        starts_ = scratch.take<std::uint32_t>(buckets + 1);
        std::copy(next.begin(), next.end(), starts_.begin());
        points_ = scratch.take<RingPoint>(unsorted.size());
        for (const RingPoint &point : unsorted)
            points_[next[bucket_of(point.at)]++] = point;
        for (std::size_t bucket = 0; bucket < buckets; ++bucket)
            std::sort(points_.begin() + starts_[bucket], points_.begin() + starts_[bucket + 1]);
    }

    std::size_t first_from(Point from) const {
        std::size_t i = starts_[bucket_of(from)];
        while (i < points_.size() && points_[i].at < from)
            ++i;
        return i;
    }

    /// First entry at or after i whose member lacks a slot. Paths over full members are shortened
    /// as they are walked, so that a crowded ring costs no more than its size.
    std::size_t living_from(std::size_t i) {
        std::size_t living = i;
        while (living < points_.size() &&
               lacking_[static_cast<std::size_t>(points_[living].member)] == 0)
            living = skip_[living];
        while (i < living) {
            const std::size_t after = skip_[i];
            skip_[i] = static_cast<std::uint32_t>(living);
            i = after;
        }
        return living;
    }

    std::span<std::int32_t> lacking_;
    std::span<RingPoint> points_;     ///< ascending
    std::span<std::uint32_t> starts_; ///< of each bucket, and the end of the last
    int bucket_shift_ = 63;
    std::span<std::uint32_t> skip_;
};

/// Takes from each member the slots that it holds over its quota, nearest to a lacking member
/// first.
inline void release_surplus(std::span<std::int32_t> owners, std::span<std::int32_t> surplus,
                            const HashRing &ring, Scratch &scratch) {
    const std::span<Surplus> candidates = scratch.take<Surplus>(owners.size());
    std::size_t count = 0;
    for (std::size_t slot = 0; slot < owners.size(); ++slot) {
        const std::int32_t member = owners[slot];
        if (member == nobody || surplus[static_cast<std::size_t>(member)] <= 0)
            continue;
        const auto number = static_cast<std::int32_t>(slot);
        candidates[count++] = {member, ring.distance(point_of_slot(number)), number};
    }
    std::sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count));
    for (const Surplus &candidate : candidates.first(count)) {
        std::int32_t &left = surplus[static_cast<std::size_t>(candidate.member)];
        if (left > 0) {
            --left;
            owners[static_cast<std::size_t>(candidate.slot)] = nobody;
        }
    }
}

/// Where a member's slots lie.
struct Place {
    double middle = 0; ///< the mean of their numbers; behind all others without slots
    std::int32_t member = 0;

    bool operator<(const Place &other) const {
        return middle != other.middle ? middle < other.middle : member < other.member;
    }
};

/// Gives each member a run of `sizes[member]` slots, in the order of what they hold.
inline void assign_runs(std::span<std::int32_t> owners, std::span<const std::int32_t> held,
                        std::span<const std::int32_t> sizes, Scratch &scratch) {
    const std::span<Place> places = scratch.take<Place>(sizes.size());
    for (std::size_t i = 0; i < places.size(); ++i)
        places[i] = {held[i] > 0 ? 0.0 : static_cast<double>(owners.size()),
                     static_cast<std::int32_t>(i)};
    for (std::size_t slot = 0; slot < owners.size(); ++slot)
        if (owners[slot] != nobody) {
            const auto owner = static_cast<std::size_t>(owners[slot]);
            places[owner].middle += static_cast<double>(slot) / held[owner];
        }
    std::sort(places.begin(), places.end());
    std::size_t slot = 0;
    for (const Place &place : places)
        for (std::int32_t n = sizes[static_cast<std::size_t>(place.member)]; n > 0; --n)
            owners[slot++] = place.member;
}

} // namespace assignment

/// Writes into `result` how many slots each member is to hold: its weight's share of `slots`,
/// rounded down or up, `slots` in sum. Rounded up are first those that hold more than the lower
/// number already (nothing has to move), then the larger remainder, then the order of the members.
/// `held[i]` is what member i holds now; empty means nothing. Requires at least one member.
inline void quotas(std::span<const Member> members, std::span<const std::int32_t> held,
                   std::int32_t slots, Scratch &scratch, std::span<std::int32_t> result) {
    // Weights are taken relative to the largest, so that no sum overflows.
    double largest = 0, total = 0;
    for (const Member &member : members)
        largest = std::max(largest, member.weight);
    for (const Member &member : members)
        total += member.weight / largest;

    using assignment::Rounding;
    const std::span<Rounding> order = scratch.take<Rounding>(members.size());
    std::int32_t left = slots;
    for (std::size_t i = 0; i < members.size(); ++i) {
        const double share = slots * (members[i].weight / largest) / total;
        result[i] = static_cast<std::int32_t>(share);
        left -= result[i];
        const double remainder = share - result[i];
        order[i] = {remainder > 0 && !held.empty() && held[i] > result[i], remainder, i};
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size() && left > 0; ++i, --left)
        ++result[order[i].member];
}

constexpr std::size_t quotas_scratch_bytes(std::size_t members) {
    return Scratch::bytes_of<assignment::Rounding>(members);
}

/// Assigns slots to members (sorted by name, names unique, at least one). `owners[slot]` is the
/// index of the member that owns the slot now, or `nobody`; afterwards that of its next owner.
///
/// consistent: every member ends within one slot of its weight's share, and as few slots move as
/// that allows. A member that holds too much gives up the slots whose point is nearest before a
/// point of a member that lacks some; a free slot goes to the first member that lacks some,
/// clockwise from the slot's point. Points are made from Murmur3 hashes, `virtual_nodes` per
/// member. (Karger et al. 1997, "Consistent hashing and random trees"; Mirrokni, Thorup,
/// Zadimoghaddam 2016, "Consistent hashing with bounded loads".)
///
/// contiguous: equal runs of slots, by weight where weights differ. The runs are in the order of
/// the places that the members hold now, so that next to nothing moves when one comes, goes or is
/// replaced; those that hold nothing follow in the order of their names.
///
/// Cost: O(members log members + slots), plus what the points of the members that lack slots cost,
/// linear in their number on average. Takes assign_scratch_bytes() of `scratch`.
inline void assign(std::span<const Member> members, std::span<std::int32_t> owners,
                   AssignmentRule rule, Scratch scratch) {
    const auto slots = static_cast<std::int32_t>(owners.size());
    const std::span<std::int32_t> lacking = scratch.take<std::int32_t>(members.size());
    const std::span<std::int32_t> held = scratch.take<std::int32_t>(members.size());
    for (const std::int32_t owner : owners) {
        if (owner != nobody)
            ++held[static_cast<std::size_t>(owner)];
    }
    quotas(members, held, slots, scratch, lacking);
    if (rule.strategy == Strategy::contiguous) {
        assignment::assign_runs(owners, held, lacking, scratch);
        return;
    }
    const std::span<std::int32_t> surplus = scratch.take<std::int32_t>(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        const std::int32_t quota = lacking[i];
        lacking[i] = std::max(quota - held[i], 0);
        surplus[i] = std::max(held[i] - quota, 0);
    }
    assignment::HashRing ring(members, lacking, rule.virtual_nodes, scratch);
    if (ring.empty())
        return; // quotas add up to the slots: nobody lacks any, so nobody has too many
    assignment::release_surplus(owners, surplus, ring, scratch);
    for (std::size_t slot = 0; slot < owners.size(); ++slot) {
        if (owners[slot] == nobody)
            owners[slot] = ring.take(assignment::point_of_slot(static_cast<std::int32_t>(slot)));
    }
}

constexpr std::size_t assign_scratch_bytes(std::size_t members, std::size_t slots,
                                           AssignmentRule rule) {
    return 3 * Scratch::bytes_of<std::int32_t>(members) + quotas_scratch_bytes(members) +
           assignment::HashRing::scratch_bytes(members, rule.virtual_nodes) +
           Scratch::bytes_of<assignment::Surplus>(slots);
}

} // namespace stacksaga::core
