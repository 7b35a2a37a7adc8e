#include "assignment.hpp"

#include "core/murmur3.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <tuple>

namespace stacksaga::coordinator {
namespace {

/// Points and distances on the hash ring wrap around at 2^64.
using Point = std::uint64_t;

/// The points of one member: one hash of its name, and from its two halves as many points as are
/// wanted, each mixed once more (Kirsch, Mitzenmacher 2006, "Less hashing, same performance").
class PointsOfMember {
public:
    explicit PointsOfMember(std::string_view name) : hash_(core::murmur3_x64_128(name)) {}

    [[nodiscard]] Point operator[](std::uint32_t copy) const {
        return core::murmur3::mix64(hash_.h1 + copy * (hash_.h2 | 1));
    }

private:
    core::Hash128 hash_;
};

/// Where a slot lies on the hash ring: its number, hashed as eight little-endian bytes. Slots are
/// equal parts of the token ring in order; hashing scatters them, so that neighbours part company.
Point point_of_slot(std::int32_t slot) {
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<char>((static_cast<std::uint64_t>(slot) >> (8 * i)) & 0xff);
    return core::murmur3_x64_128({bytes.data(), bytes.size()}).h1;
}

/// The hash ring of the members that lack slots. Full members drop out as slots are taken.
///
/// Points are spread evenly, so they are sorted in linear time: each goes straight to the bucket of
/// its top bits, where a few others are. A point is looked up the same way.
class HashRing {
public:
    HashRing(std::span<const Member> members, std::span<std::int32_t> lacking) : lacking_(lacking) {
        std::vector<Entry> points;
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (lacking[i] <= 0)
                continue;
            const PointsOfMember of_member(members[i].name);
            for (std::uint32_t copy = 0; copy < virtual_nodes; ++copy)
                points.push_back({of_member[copy], static_cast<std::int32_t>(i)});
        }
        sort_into_buckets(points);
        skip_.resize(points_.size());
        std::iota(skip_.begin(), skip_.end(), std::uint32_t{1});
    }

    [[nodiscard]] bool empty() const noexcept { return points_.empty(); }

    /// How far the nearest member lies clockwise of `from`.
    [[nodiscard]] Point distance(Point from) const {
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
    struct Entry {
        Point at;
        std::int32_t member;

        auto operator<=>(const Entry &) const = default;
    };

    [[nodiscard]] std::size_t bucket_of(Point at) const {
        return static_cast<std::size_t>(at >> bucket_shift_);
    }

    void sort_into_buckets(std::span<const Entry> points) {
        constexpr std::size_t in_a_bucket = 4;
        const std::size_t buckets =
            std::bit_ceil(std::max<std::size_t>(points.size() / in_a_bucket, 2));
        bucket_shift_ = 64 - std::countr_zero(buckets);
        std::vector<std::uint32_t> next(buckets + 1);
        for (const Entry &point : points)
            ++next[bucket_of(point.at) + 1];
        std::partial_sum(next.begin(), next.end(), next.begin());
        starts_ = next;
        points_.resize(points.size());
        for (const Entry &point : points)
            points_[next[bucket_of(point.at)]++] = point;
        for (std::size_t bucket = 0; bucket < buckets; ++bucket)
            std::sort(points_.begin() + starts_[bucket], points_.begin() + starts_[bucket + 1]);
    }

    [[nodiscard]] std::size_t first_from(Point from) const {
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
    std::vector<Entry> points_;         ///< ascending
    std::vector<std::uint32_t> starts_; ///< of each bucket, and the end of the last
    int bucket_shift_ = 63;
    std::vector<std::uint32_t> skip_;
};

/// Takes from each member the slots that it holds over its quota, nearest to a lacking member
/// first.
void release_surplus(std::vector<std::int32_t> &owners, std::span<std::int32_t> surplus,
                     const HashRing &ring) {
    struct Candidate {
        std::int32_t member;
        Point distance;
        std::int32_t slot;

        auto operator<=>(const Candidate &) const = default;
    };
    std::vector<Candidate> candidates;
    for (std::size_t slot = 0; slot < owners.size(); ++slot) {
        const std::int32_t member = owners[slot];
        if (member == nobody || surplus[static_cast<std::size_t>(member)] <= 0)
            continue;
        const auto number = static_cast<std::int32_t>(slot);
        candidates.push_back({member, ring.distance(point_of_slot(number)), number});
    }
    std::ranges::sort(candidates);
    for (const Candidate &candidate : candidates) {
        auto &left = surplus[static_cast<std::size_t>(candidate.member)];
        if (left > 0) {
            --left;
            owners[static_cast<std::size_t>(candidate.slot)] = nobody;
        }
    }
}

std::vector<std::int32_t> assign_consistent(std::span<const Member> members,
                                            std::span<const std::int32_t> owners) {
    std::vector<std::int32_t> held(members.size());
    for (const std::int32_t owner : owners) {
        if (owner != nobody)
            ++held[static_cast<std::size_t>(owner)];
    }
    std::vector<std::int32_t> lacking =
        quotas(members, held, static_cast<std::int32_t>(owners.size()));
    std::vector<std::int32_t> surplus(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        const std::int32_t quota = lacking[i];
        lacking[i] = std::max(quota - held[i], 0);
        surplus[i] = std::max(held[i] - quota, 0);
    }

    std::vector<std::int32_t> next(owners.begin(), owners.end());
    HashRing ring(members, lacking);
    if (ring.empty())
        return next; // quotas add up to the slots: nobody lacks any, so nobody has too many
    release_surplus(next, surplus, ring);
    for (std::size_t slot = 0; slot < next.size(); ++slot) {
        if (next[slot] == nobody)
            next[slot] = ring.take(point_of_slot(static_cast<std::int32_t>(slot)));
    }
    return next;
}

std::vector<std::int32_t> assign_contiguous(std::span<const Member> members, std::size_t slots) {
    std::vector<std::int32_t> next;
    next.reserve(slots);
    const auto runs = quotas(members, {}, static_cast<std::int32_t>(slots));
    for (std::size_t i = 0; i < runs.size(); ++i)
        next.insert(next.end(), static_cast<std::size_t>(runs[i]), static_cast<std::int32_t>(i));
    return next;
}

} // namespace

std::vector<std::int32_t> quotas(std::span<const Member> members,
                                 std::span<const std::int32_t> held, std::int32_t slots) {
    // Weights are taken relative to the largest, so that no sum overflows.
    const double largest = std::ranges::max_element(members, {}, &Member::weight)->weight;
    double total = 0;
    for (const Member &member : members)
        total += member.weight / largest;

    struct Rounding {
        bool holds_more; // than the lower number
        double remainder;
        std::size_t member;
    };
    std::vector<std::int32_t> result(members.size());
    std::vector<Rounding> order(members.size());
    std::int32_t left = slots;
    for (std::size_t i = 0; i < members.size(); ++i) {
        const double share = slots * (members[i].weight / largest) / total;
        result[i] = static_cast<std::int32_t>(share);
        left -= result[i];
        const double remainder = share - result[i];
        order[i] = {remainder > 0 && !held.empty() && held[i] > result[i], remainder, i};
    }
    std::ranges::sort(order, [](const Rounding &a, const Rounding &b) {
        return std::tuple(b.holds_more, b.remainder, a.member) <
               std::tuple(a.holds_more, a.remainder, b.member);
    });
    for (std::size_t i = 0; i < order.size() && left > 0; ++i, --left)
        ++result[order[i].member];
    return result;
}

std::vector<std::int32_t> assign(std::span<const Member> members,
                                 std::span<const std::int32_t> owners, Strategy strategy) {
    return strategy == Strategy::contiguous ? assign_contiguous(members, owners.size())
                                            : assign_consistent(members, owners);
}

} // namespace stacksaga::coordinator
