// How long the text of a jsonb value is, without printing it: a number of ten bytes can have a text
// of 147,000, since a jsonb keeps neither the zeros at its end nor those behind its point.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// The bytes of `value` as jsonb_out() prints it.
uint64 json_text_bytes(const Jsonb *value);

/// At least that many, without reading strings.
uint64 json_text_at_most(const Jsonb *value);

/// The bytes of a number as numeric_out() prints it.
uint64 number_text_bytes(const void *numeric);

/// Whether json_text_bytes() is at most `limit`, without reading strings and small values where
/// their size alone answers it.
bool json_text_fits(const Jsonb *value, uint64 limit);

} // namespace stacksaga::pg
