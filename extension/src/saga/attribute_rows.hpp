// The rows by which sagas are found by their attributes: one for each attribute, and none for a
// saga without any.
#pragma once
#include "core/saga/saga_state.hpp"

#include "src/saga/store.hpp"

namespace stacksaga {

/// A name and its value, hashed: equal for values that are equal in jsonb. In ascending order, and
/// each once.
std::span<const int64> hashes_of(Datum attributes);

/// Adds the rows of a saga that was just inserted. Inside with_spi.
void insert_attribute_rows(const Saga &saga);

/// The status of a saga with attributes has changed.
void change_attribute_rows(const pg_uuid_t &saga_id, core::Status status);

} // namespace stacksaga
