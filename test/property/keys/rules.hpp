// What each call answers over the row that it finds, and the row that it leaves.
#pragma once

#include "model.hpp"

namespace stacksaga::property::keys {

Expected begin_key(const Call &call, const std::optional<Row> &found);
/// Of any call. A sweep has no rule here: it is checked by what it removes.
Expected apply_rules(const Call &call, const std::optional<Row> &found);

} // namespace stacksaga::property::keys
