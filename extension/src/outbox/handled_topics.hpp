// Topics that workers have something to do for: those of subscriptions with a handler or a
// fallback.
//
// A message that only services receive wakes no worker: receive_messages() makes the tick that it
// needs, and a worker that looks by itself makes one each poll_interval.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// A message of this topic was appended: wakes workers at the commit if they have something to do
/// for it. A subscription that another session commits before this transaction counts.
void wake_workers_for_topic(std::string_view topic);

/// A subscription has been created, altered or dropped: every session looks again after the commit.
void announce_handled_topics();

} // namespace stacksaga
