// Sessions that claim from a queue which no definition names: for doctor(), since their services
// wait for ever, of a misspelt name most often.
//
// Such a session keeps a shared lock on a tag that stands for the queue, which is gone with it. No
// row is written, and who claims from a queue that a definition names is not slowed down.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// A claim found nothing. Looks at most once a minute whether a definition names the queue. In a
/// scope of SPI.
void note_empty_claim(int32 ring_id, std::string_view queue, TimestampTz now);

} // namespace stacksaga
