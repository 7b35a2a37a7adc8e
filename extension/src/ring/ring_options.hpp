// The settings of a ring as the database keeps them.
#pragma once
#include "core/ring/ring_settings.hpp"

#include "src/ring/rings.hpp"

namespace stacksaga {

/// Inside with_spi.
core::RingSettings read_settings(const Ring &ring);

} // namespace stacksaga
