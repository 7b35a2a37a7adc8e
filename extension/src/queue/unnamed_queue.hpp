// Sessions that claim from a queue which no definition names, for doctor(): their services wait for
// ever, mostly because the name is misspelt.
//
// Such a session keeps a shared lock on a tag that stands for the queue, until the session ends. No
// row is written, and claims from queues that a definition names are not slowed down.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// A claim found nothing. Looks at most once a minute whether a definition names the queue. In a
/// scope of SPI.
void note_empty_claim(int32 ring_id, std::string_view queue, TimestampTz now);

} // namespace stacksaga
