// Windows of the log, cut by ticks and delivered by number.
//
// Messages between two ticks have numbers above the last one given out before the first tick, or
// were published by a transaction that was running then. So two ranges are read: the late messages,
// by the ids of those transactions, and then the new ones, by number. All late ones come first:
// they have smaller numbers.
#include "src/outbox/log/log_read.hpp"

#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"
#include "core/ring/token.hpp"

#include "pg/statement/function.hpp"
#include "src/common/sent_values.hpp"
#include "src/outbox/log/log_table.hpp"
#include "src/outbox/log/log_tick.hpp"

namespace stacksaga {

namespace {

using core::LogPosition;
using core::Tick;

/// Messages in a growing array.
struct MessageList {
    Message *items = nullptr;
    size_t count = 0;
    size_t capacity = 0;
    uint64 bytes = 0; ///< that the payloads have at least as text

    void add(const Message &m) {
        if (count == capacity) {
            capacity = std::max<size_t>(64, capacity * 2);
            auto *grown = static_cast<Message *>(
                palloc_extended(sizeof(Message) * capacity, MCXT_ALLOC_HUGE));
            std::copy(items, items + count, grown);
            if (items != nullptr)
                pfree(items);
            items = grown;
        }
        items[count++] = m;
        if (m.payload != 0)
            bytes += text_at_least(m.payload);
    }
    void clear() { count = bytes = 0; }
    std::span<Message> span() const { return {items, count}; }
};

/// Whether the subscription gets the message at all.
bool is_wanted(const LogFilter &filter, const LogRow &row) {
    if (filter.is_over || DatumGetInt32(row.value(LogColumn::ring_id)) != filter.ring_id ||
        !filter.wants(row.topic()))
        return false;
    if (filter.start == nullptr)
        return true;
    const core::LogEntry entry = row.entry();
    return entry.origin != filter.start_origin || !filter.start->sees(entry.xid);
}

/// The transactions that were running at `from` and have ended by `until`.
std::span<const uint64> ended_between(const Tick &from, const Tick &until) {
    if (from.origin != until.origin)
        return from.snapshot.running;
    auto *ended =
        static_cast<uint64 *>(palloc(sizeof(uint64) * (from.snapshot.running.size() + 1)));
    size_t count = 0;
    for (uint64 xid : from.snapshot.running)
        if (until.snapshot.sees(xid))
            ended[count++] = xid;
    return {ended, count};
}

/// How much a reading may take.
struct Room {
    size_t messages;
    uint64 bytes;
};

/// One reading of a share.
struct Reading {
    const LogFilter &filter;
    LogTables &tables;
    LogShare share;
    std::span<const Tick> ticks; ///< the first one is that of the earliest position
    LogPosition from;            ///< the earliest position
    core::Stripes stripes;

    /// Adds the row, if the subscription wants it and it is in one of the windows up to
    /// ticks[last].
    void collect(const LogRow &row, size_t last, MessageList &list) const {
        const core::LogEntry entry = row.entry();
        const size_t window = core::window_of(ticks.first(last + 1), entry);
        if (window == 0 || window > last)
            return;
        const auto token = core::Token::from_int64(row.int8(LogColumn::token));
        const int16 partition = partition_of(token, filter.partitions);
        const int64 previous = ticks[window - 1].tick;
        const LogPosition end{.tick = previous, .number = entry.number};
        if (!share.wants(partition, end) || !is_wanted(filter, row) || filter.was_read(token, end))
            return;
        Message m = row.copy();
        m.partition = partition;
        m.tick = ticks[window].tick;
        m.previous_tick = previous;
        list.add(m);
    }

    /// The windows up to ticks[last] as a whole; false when there are more late messages than there
    /// is room for, or more bytes.
    bool read_windows(size_t last, Room room, MessageList &list) const {
        for (uint64 xid : ended_between(ticks[0], ticks[last])) {
            tables.by_transaction(xid, stripes, 0, ticks[0].before, [&](const LogRow &row) {
                collect(row, last, list);
                return list.count <= room.messages && list.bytes <= room.bytes;
            });
            if (list.count > room.messages)
                return false;
        }
        tables.by_number(stripes, ticks[0].before, ticks[last].after, [&](const LogRow &row) {
            collect(row, last, list);
            return list.bytes <= room.bytes;
        });
        std::sort(list.items, list.items + list.count, by_place);
        return list.bytes <= room.bytes;
    }

    /// Messages of the next window. Returns the number up to which it was read; 0: to its end.
    int64 read_window(Room room, MessageList &list) const {
        int64 complete = 0; // 0: without a bound
        for (uint64 xid : ended_between(ticks[0], ticks[1])) {
            const size_t begun = list.count;
            const uint64 bytes_begun = list.bytes;
            tables.by_transaction(
                xid, stripes, from.number, ticks[0].before, [&](const LogRow &row) {
                    collect(row, 1, list);
                    if (list.count - begun < room.messages &&
                        list.bytes - bytes_begun <= room.bytes)
                        return true;
                    complete = complete == 0 ? row.number() : std::min(complete, row.number());
                    return false;
                });
        }
        std::sort(list.items, list.items + list.count, by_place);
        if (complete != 0)
            while (list.items[list.count - 1].number > complete)
                --list.count;
        if (list.count >= room.messages) {
            list.count = room.messages;
            return list.items[room.messages - 1].number;
        }
        if (complete != 0)
            return complete;
        // A turn must end also where the subscription wants none of the messages.
        const size_t rows_max = std::max<size_t>(10000, room.messages * 16);
        size_t rows = 0;
        int64 reached = 0;
        tables.by_number(stripes, std::max(ticks[0].before, from.number), ticks[1].after,
                         [&](const LogRow &row) {
                             collect(row, 1, list);
                             if (list.count < room.messages && list.bytes <= room.bytes &&
                                 ++rows < rows_max)
                                 return true;
                             reached = row.number();
                             return false;
                         });
        return reached;
    }
};

Reading reading_of(const LogFilter &filter, LogTables &tables, const LogShare &share,
                   std::span<const Tick> ticks) {
    return {.filter = filter,
            .tables = tables,
            .share = share,
            .ticks = ticks,
            .from = share.begin(),
            .stripes = share.stripes(filter.partitions)};
}

/// How many windows can be read as a whole for `room` messages: those of about as many numbers as
/// fill all shares of that size so far.
size_t windows_for(std::span<const Tick> ticks, const Reading &reading, size_t room) {
    const int64 numbers = static_cast<int64>(room) * core::log_stripes / reading.stripes.count();
    size_t last = 1;
    while (last + 1 < ticks.size() && ticks[last + 1].after - ticks[0].before <= numbers)
        ++last;
    return last;
}

LogPart read_part(const Reading &reading, Room room) {
    const std::span<const Tick> ticks = reading.ticks;
    MessageList list;
    LogPart part{};
    size_t last = windows_for(ticks, reading, room.messages);
    for (; last > 1 && !reading.read_windows(last, room, list); last /= 2)
        list.clear();
    if (last > 1) {
        part.end = {.tick = ticks[last].tick, .number = 0};
        if (list.count > room.messages) {
            const Message &cut = list.items[room.messages - 1];
            auto window = std::find_if(ticks.begin(), ticks.end(),
                                       [&](const Tick &t) { return t.tick == cut.tick; });
            part.end = {.tick = (window - 1)->tick, .number = cut.number};
            part.window = cut.tick;
            list.count = room.messages;
            part.more = true;
        }
    } else {
        const int64 reached = reading.read_window(room, list);
        part.end = reached == 0 ? LogPosition{.tick = ticks[1].tick, .number = 0}
                                : LogPosition{.tick = ticks[0].tick, .number = reached};
        part.window = reached == 0 ? 0 : ticks[1].tick;
        part.more = reached != 0;
    }
    part.messages = list.span();
    part.more = part.more || last + 1 < ticks.size();
    const int64 end = part.end.number > ticks[0].before ? part.end.number : ticks[last].after;
    part.distance = end - std::max(ticks[0].before, reading.from.number) + static_cast<int64>(last);
    return part;
}

} // namespace

std::optional<std::string_view> Message::key_text() const {
    if (key == 0)
        return std::nullopt;
    return pg::view_of_text(key);
}

LogPart LogPart::of_partition(int16 partition, LogPosition from, int32 room) const {
    LogPart part{.messages = {},
                 .end = std::max(from, end),
                 .window = from > end ? 0 : window,
                 .more = more,
                 .distance = distance};
    MessageList list;
    for (const Message &m : messages) {
        if (m.partition != partition || m.end() <= from)
            continue;
        if (list.count == static_cast<size_t>(room)) {
            const Message &last = list.items[list.count - 1];
            part.end = last.end();
            part.window = last.tick;
            part.more = true;
            break;
        }
        list.add(m);
    }
    part.messages = list.span();
    return part;
}

std::optional<LogPart> read_log(const LogFilter &filter, LoadedTicks &loaded, const LogShare &share,
                                int32 room, uint64 bytes) {
    const LogPosition from = share.begin();
    const std::span<const Tick> ticks = loaded.from(from.tick);
    if (ticks.empty())
        return std::nullopt;
    // The first tick may stand for others that are deleted, where a position has moved on.
    if (ticks.size() > 1 && std::any_of(share.from.begin(), share.from.end(), [&](LogPosition p) {
            return p.tick != from.tick && p.tick < ticks[1].tick;
        }))
        return std::nullopt;
    if (ticks.size() < 2)
        return LogPart{.messages = {}, .end = from, .window = 0, .more = false, .distance = 0};
    LogTables tables;
    LogPart part = read_part(reading_of(filter, tables, share, ticks),
                             {.messages = static_cast<size_t>(room), .bytes = bytes});
    tables.close();
    part.more = part.more || ticks.size() >= ticks_at_once; // there may be more of them
    return part;
}

LogPart read_log_again(const LogFilter &filter, int16 partition, LogPosition from,
                       LogPosition until) {
    const std::span<const Tick> ticks = load_ticks(from.tick);
    size_t last = 0;
    while (last + 1 < ticks.size() && ticks[last].tick < until.tick)
        ++last;
    if (until.number > 0 && last + 1 < ticks.size())
        ++last; // into the window behind the last tick
    MessageList list;
    if (last > 0) {
        LogTables tables;
        reading_of(filter, tables, {.first = partition, .from = {&from, 1}}, ticks)
            .read_windows(last,
                          {.messages = std::numeric_limits<size_t>::max(), .bytes = PG_UINT64_MAX},
                          list);
        tables.close();
    }
    auto is_behind = [&](const Message &m) {
        return until.number > 0 && m.tick == ticks[last].tick && m.number > until.number;
    };
    while (list.count > 0 && is_behind(list.items[list.count - 1]))
        --list.count;
    return {.messages = list.span(), .end = until, .window = 0, .more = false, .distance = 0};
}

bool have_published(std::span<const uint64> xids) {
    if (xids.empty())
        return false;
    LogTables tables;
    const bool found = std::any_of(xids.begin(), xids.end(),
                                   [&](uint64 xid) { return tables.holds_transaction(xid); });
    tables.close();
    return found;
}

std::optional<TimestampTz> first_behind_ticks(const LogFilter &filter, int64 rows_max) {
    const std::span<const Tick> ticks = find_ticks(last_tick());
    if (ticks.empty())
        return std::nullopt;
    const Tick &last = ticks.back();
    constexpr core::Stripes all{.first = 0, .last = core::log_stripes - 1};
    std::optional<TimestampTz> since;
    LogTables tables;
    const auto find = [&](const LogRow &row) {
        if (last.sees(row.entry()) || !is_wanted(filter, row))
            return --rows_max > 0;
        since = std::min(since.value_or(DT_NOEND),
                         DatumGetTimestampTz(row.value(LogColumn::published_at)));
        return false;
    };
    for (uint64 xid : last.snapshot.running)
        tables.by_transaction(xid, all, 0, last.before, find);
    tables.by_number(all, last.before, std::numeric_limits<int64>::max(), find);
    tables.close();
    return since;
}

std::optional<Backlog> count_backlog(const LogFilter &filter, int16 partition, LogPosition from,
                                     std::span<const int64> but_not) {
    const std::span<const Tick> ticks = find_ticks(from.tick);
    if (ticks.empty())
        return std::nullopt;
    Backlog backlog{.messages = 0, .oldest = DT_NOEND};
    auto count = [&](const LogRow &row) {
        const core::LogEntry entry = row.entry();
        const auto token = core::Token::from_int64(row.int8(LogColumn::token));
        const bool is_delivered =
            ticks[0].sees(entry) ||
            (ticks.size() > 1 && ticks[1].sees(entry) && entry.number <= from.number);
        const size_t window = core::window_of(ticks, entry);
        const bool was_read =
            window > 0 && window < ticks.size() &&
            filter.was_read(token, {.tick = ticks[window - 1].tick, .number = entry.number});
        if (!is_delivered && partition_of(token, filter.partitions) == partition &&
            is_wanted(filter, row) && !was_read &&
            !std::binary_search(but_not.begin(), but_not.end(), entry.number)) {
            ++backlog.messages;
            backlog.oldest =
                std::min(backlog.oldest, DatumGetTimestampTz(row.value(LogColumn::published_at)));
        }
        return true;
    };
    const core::Stripes stripes = core::stripes_of(partition, partition, filter.partitions);
    LogTables tables;
    for (uint64 xid : ticks[0].snapshot.running)
        tables.by_transaction(xid, stripes, 0, ticks[0].before, count);
    tables.by_number(stripes, ticks[0].before, std::numeric_limits<int64>::max(), count);
    tables.close();
    return backlog;
}

} // namespace stacksaga
