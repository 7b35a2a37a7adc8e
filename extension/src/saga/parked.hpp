// The list of parked sagas.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Writes that the saga is parked from now on, or is not any more.
void note_parked(const pg_uuid_t &saga_id, int64 saga_token, bool is_parked);

} // namespace stacksaga
