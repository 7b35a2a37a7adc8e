// The traits by which a saga is ordered, limited and found: its priority, its group, its
// attributes. They are not part of its identity, and its children inherit them.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"

namespace stacksaga {

struct Saga;

inline constexpr int32 first_priority = 1, default_priority = 3, last_priority = 5;
inline constexpr int attributes_max = 16;
inline constexpr int attribute_name_bytes_max = 63;
inline constexpr int attribute_value_bytes_max = 255; ///< of a string, or of a number as text

struct SagaTraits {
    int16 priority = default_priority;
    std::optional<std::string_view> group_key{};
    std::optional<Datum> attributes{}; ///< jsonb, an object that is not empty
};

/// SG400 unless it is one of the priorities.
int16 priority_argument(const pg::Arguments &arguments, int i);

/// SG400 unless it is 1 to key_bytes_max bytes long. `element` counts from 1; 0: not an element of
/// an array.
void check_group_key(std::string_view group_key, const char *argument, int element = 0);

/// A jsonb that is not NULL, as attributes: nothing for an empty object. SG400 unless it is a flat
/// object of few strings, numbers and booleans.
std::optional<Datum> checked_attributes(Datum value, int element = 0);

// A saga is found by its attributes through rows of their own: one for each attribute.

/// A name and its value, hashed: equal for values that are equal in jsonb. In ascending order, and
/// each once.
std::span<const int64> hashes_of(Datum attributes);

/// Adds the rows of a saga that was just inserted. Inside with_spi.
void insert_attribute_rows(const Saga &saga);

/// Changes the rows of a saga with attributes to its new status. Inside with_spi.
void change_attribute_rows(const pg_uuid_t &saga_id, core::Status status);

} // namespace stacksaga
