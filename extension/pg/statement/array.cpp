#include "pg/statement/array.hpp"

namespace stacksaga::pg {

Elements array_argument(const Arguments &arguments, int i, const char *name, Oid type,
                        int count_max) {
    ArrayType *array = DatumGetArrayTypeP(arguments.datum(i));
    if (ARR_NDIM(array) > 1)
        ereport(ERROR, (errcode(sg400), errmsg("argument \"%s\" is not valid", name),
                        errdetail("It has %d dimensions.", ARR_NDIM(array)),
                        errhint("Pass an array of one dimension.")));
    const int count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
    if (count > count_max)
        ereport(ERROR, (errcode(sg400), errmsg("argument \"%s\" has too many elements", name),
                        errdetail("It has %d elements.", count),
                        errhint("Pass at most %d elements in a call.", count_max)));
    return elements_of(array, type);
}

Elements elements_of(ArrayType *array, Oid type) {
    int16 length;
    bool by_value;
    char alignment;
    get_typlenbyvalalign(type, &length, &by_value, &alignment);
    Elements e;
    deconstruct_array(array, type, length, by_value, alignment, &e.values, &e.nulls, &e.count);
    return e;
}

void require_same_length(const Elements &elements, const char *name, const Elements &others,
                         const char *other) {
    if (elements.count != others.count)
        ereport(ERROR,
                (errcode(sg400), errmsg("argument \"%s\" is not valid", name),
                 errdetail("It has %d elements, %s has %d.", elements.count, other, others.count),
                 errhint("Pass arrays of the same length, one element for each.")));
}

} // namespace stacksaga::pg
