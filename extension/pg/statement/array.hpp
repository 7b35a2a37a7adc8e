// Array arguments, as lists of elements.
#pragma once
#include "pg/statement/function.hpp"

namespace stacksaga::pg {

/// The elements of an array; all empty for an argument that was left out.
struct Elements {
    Datum *values = nullptr;
    bool *nulls = nullptr;
    int count = 0;

    bool has(int i) const { return values != nullptr && !nulls[i]; }
};

/// How many elements a call takes. A call holds what it has locked until it ends, and answers a
/// cancel between two elements only.
inline constexpr int array_elements_max = 10'000;

/// The elements of argument `i`, an array of `type` that is not NULL. SG400 names the argument when
/// it has more than one dimension, or more than `count_max` elements.
Elements array_argument(const Arguments &arguments, int i, const char *name, Oid type,
                        int count_max = array_elements_max);

/// The elements of an array of one dimension, of `type`.
Elements elements_of(ArrayType *array, Oid type);

/// SG400 unless `elements` has as many elements as the argument `other` has.
void require_same_length(const Elements &elements, const char *name, const Elements &others,
                         const char *other);

} // namespace stacksaga::pg
