// The slots that a node may work on now.
#pragma once

namespace stacksaga {

/// A query of the slots that an incarnation holds at an instant. In a ring that pauses a slot
/// counts while a window is open that does not give it to another: core::is_open() as SQL.
#define SLOTS_HELD(ring_id, incarnation, now)                                                      \
    "SELECT s.slot, s.epoch FROM stacksaga.slot s"                                                 \
    " WHERE s.ring_id = " ring_id " AND s.owner = " incarnation                                    \
    "   AND (NOT EXISTS (SELECT FROM stacksaga.ring_setting r"                                     \
    "                     WHERE r.ring_id = " ring_id " AND r.setting = 'on_missing_window'"       \
    "                       AND r.value = 'pause')"                                                \
    "        OR EXISTS (SELECT FROM stacksaga.token_window w"                                      \
    "                    WHERE w.ring_id = " ring_id " AND w.agent = ''"                           \
    "                      AND w.window_start <= " now " AND w.window_end > " now ")"              \
    "           AND (s.next_owner IS NULL OR s.next_owner = " incarnation                          \
    "                OR s.next_from > " now "))"

} // namespace stacksaga
