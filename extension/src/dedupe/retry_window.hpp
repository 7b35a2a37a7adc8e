// Whether the dedupe window outlasts the retries that could repeat an effect.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Returns `version` of `saga`, unless retrying one of its steps or compensations may take longer
/// than stacksaga.dedupe_retention: SG400 with both numbers. A deadline bounds actions. Steps with
/// the effect "idempotent" need nothing to be remembered; attempts without limit (max_attempts 0)
/// have no number to compare. Inside pg::with_spi, as the extension's owner.
int32 require_short_retries(std::string_view saga, int32 version);

} // namespace stacksaga
