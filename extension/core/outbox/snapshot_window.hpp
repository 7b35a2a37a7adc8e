// Which messages of the outbox log a tick sees, and so which window they are delivered in.
//
// A tick is a snapshot of the log. The window of a tick is what it sees and the tick before it does
// not: every committed message is in exactly one window, whenever its transaction began, and a
// transaction that is still running holds nobody up (the batches of PgQ, by Marko Kreen). Inside a
// window messages are delivered by number.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace stacksaga::core {

/// A snapshot's knowledge of 64-bit transaction ids: all below `xmin` had ended, none from `xmax`
/// on had begun, and `running` (ascending, all within [xmin, xmax)) were in progress.
struct Snapshot {
    std::uint64_t xmin = 0;
    std::uint64_t xmax = 0;
    std::span<const std::uint64_t> running{};

    /// Whether the transaction had ended. Of one that rolled back no row is left to ask for.
    constexpr bool sees(std::uint64_t xid) const {
        if (xid < xmin)
            return true;
        if (xid >= xmax)
            return false;
        return !std::binary_search(running.begin(), running.end(), xid);
    }
};

/// The most ids that parse_snapshot() finds in `text`: the commas, and two more.
constexpr std::size_t snapshot_ids_max(std::string_view text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 2;
}

/// Reads "xmin:xmax:running,running...", as pg_snapshot prints it, into `ids`, which the result
/// refers to and which has room for snapshot_ids_max(text). Nothing when the text is another one.
constexpr std::optional<Snapshot> parse_snapshot(std::string_view text,
                                                 std::span<std::uint64_t> ids) {
    std::uint64_t head[2] = {};
    const char *at = text.data();
    const char *end = at + text.size();
    auto number = [&](std::uint64_t &value) {
        auto [next, error] = std::from_chars(at, end, value);
        at = next;
        return error == std::errc{};
    };
    for (std::uint64_t &value : head) {
        if (!number(value) || at == end || *at != ':')
            return std::nullopt;
        ++at;
    }
    std::size_t count = 0;
    while (at != end) {
        if (count == ids.size() || !number(ids[count++]))
            return std::nullopt;
        if (at == end)
            break;
        if (*at++ != ',' || at == end)
            return std::nullopt;
    }
    auto running = ids.first(count);
    if (!std::is_sorted(running.begin(), running.end()))
        return std::nullopt;
    return Snapshot{head[0], head[1], running};
}

/// The same snapshot for whom the transaction `xid` has not ended: its own one, which a snapshot
/// leaves out of the list of those in progress. `ids` has room for one more than `running` has.
constexpr Snapshot with_running(const Snapshot &snapshot, std::uint64_t xid,
                                std::span<std::uint64_t> ids) {
    if (!snapshot.sees(xid))
        return snapshot;
    auto end = std::copy(snapshot.running.begin(), snapshot.running.end(), ids.begin());
    *end++ = xid;
    std::sort(ids.begin(), end);
    return {std::min(snapshot.xmin, xid), snapshot.xmax,
            ids.first(static_cast<std::size_t>(end - ids.begin()))};
}

/// A message as the log has it, as far as windows are concerned.
struct LogEntry {
    std::uint64_t xid;   ///< of the transaction that published it
    std::int64_t number; ///< from a sequence; larger than that of all published before it
    std::int64_t origin; ///< the cluster where `xid` means something: its system identifier
};

/// Numbers up to `before` had been given out before the snapshot was taken, and none above `after`
/// when it had been: what the tick sees has numbers up to `after`, and what it does not see has
/// either one above `before` or a transaction in `running`. (A transaction has an id before it
/// takes a number.)
struct Tick {
    std::int64_t tick = 0;
    std::int64_t before = 0;
    std::int64_t after = 0;
    std::int64_t origin = 0;
    Snapshot snapshot{};

    /// Another cluster's transaction ids mean nothing: what a dump brought along is older than all
    /// that this cluster publishes, and its numbers say so.
    constexpr bool sees(const LogEntry &entry) const {
        if (entry.number > after)
            return false;
        return entry.origin != origin || snapshot.sees(entry.xid);
    }
};

/// The index of the first of `ticks` (ascending) that sees the entry; ticks.size() when none does.
/// Every later tick sees all that an earlier one sees.
constexpr std::size_t window_of(std::span<const Tick> ticks, const LogEntry &entry) {
    auto found = std::partition_point(ticks.begin(), ticks.end(),
                                      [&](const Tick &t) { return !t.sees(entry); });
    return static_cast<std::size_t>(found - ticks.begin());
}

/// How far a subscription has come in one partition: it has all that `tick` sees, and of the window
/// after it what has a number up to `number`.
struct LogPosition {
    std::int64_t tick = 0; ///< 0: the beginning of the log, which sees nothing
    std::int64_t number = 0;
    friend constexpr auto operator<=>(const LogPosition &, const LogPosition &) = default;
};

} // namespace stacksaga::core
