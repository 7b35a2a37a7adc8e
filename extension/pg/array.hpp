// Array arguments, as lists of elements.
#pragma once
#include "pg/function.hpp"

namespace stacksaga::pg {

/// The elements of an array; all empty for an argument that was left out.
struct Elements {
    Datum *values = nullptr;
    bool *nulls = nullptr;
    int count = 0;

    bool has(int i) const { return values != nullptr && !nulls[i]; }
};

/// The elements of argument `i`, an array of `type` that is not NULL. SG400 names the argument when
/// it has more than one dimension.
Elements array_argument(const Arguments &arguments, int i, const char *name, Oid type);

/// SG400 unless `elements` has as many elements as the argument `other` has.
void require_same_length(const Elements &elements, const char *name, const Elements &others,
                         const char *other);

} // namespace stacksaga::pg
