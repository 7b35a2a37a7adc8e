#include "src/find/find_filter.hpp"

#include "core/saga/saga_state.hpp"

#include "src/common/limits.hpp"
#include "src/saga/attribute_rows.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

constexpr int32 sagas_max = 1000;

std::optional<core::Status> status_argument(const pg::Arguments &arguments) {
    const std::optional<std::string_view> name = arguments.optional_text(1);
    if (!name)
        return std::nullopt;
    const std::optional<core::Status> status = core::status_of(*name);
    if (!status)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"status\" is not a status"),
                        errdetail("The value is \"%s\".", clip(*name)),
                        errhint("Use pending, running, compensating, completed, failed, parked or "
                                "suspended.")));
    return status;
}

/// Without an id: all that were created before the instant.
std::optional<ListPlace> before_argument(const pg::Arguments &arguments) {
    if (arguments.is_null(4) && arguments.is_null(5))
        return std::nullopt;
    if (arguments.is_null(4))
        ereport(ERROR, (errcode(pg::sg400), errmsg("before_saga_id needs created_before"),
                        errdetail("The next page begins after (created_at, saga_id) of a row."),
                        errhint("Pass both of the last row of the page before.")));
    ListPlace place{.created_at = DatumGetTimestampTz(arguments.datum(4)), .saga_id = {}};
    if (!arguments.is_null(5))
        place.saga_id = *DatumGetUUIDP(arguments.datum(5));
    return place;
}

size_t max_sagas_argument(const pg::Arguments &arguments) {
    const int32 count = arguments.required_int4(6, "max_sagas");
    if (count < 1 || count > sagas_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_sagas\" is out of range"),
                        errdetail("The value is %d.", count),
                        errhint("Use 1 to %d, and created_before and before_saga_id for the next "
                                "page.",
                                sagas_max)));
    return static_cast<size_t>(count);
}

} // namespace

SagaFilter find_argument(const pg::Arguments &arguments) {
    SagaFilter filter{.saga = arguments.optional_text(0),
                      .status = status_argument(arguments),
                      .key_prefix = arguments.optional_text(2),
                      .attributes = std::nullopt,
                      .before = before_argument(arguments),
                      .max_sagas = max_sagas_argument(arguments)};
    if (filter.saga)
        check_name(*filter.saga, "saga");
    if (filter.key_prefix)
        check_length(*filter.key_prefix, "key_prefix", key_bytes_max);
    if (!arguments.is_null(3))
        filter.attributes = checked_attributes(arguments.datum(3));
    if (filter.attributes)
        filter.hashes = hashes_of(*filter.attributes);
    return filter;
}

bool SagaFilter::accepts(TupleTableSlot *row) const {
    if (status && pg::view_of_text(value_in(row, SagaColumn::status)) != core::name_of(*status))
        return false;
    const int32 definition_id = DatumGetInt32(value_in(row, SagaColumn::definition_id));
    if (saga &&
        std::find(definitions.begin(), definitions.end(), definition_id) == definitions.end())
        return false;
    if (key_prefix && (slot_attisnull(row, pg::column_number(SagaColumn::key)) ||
                       !pg::view_of_text(value_in(row, SagaColumn::key)).starts_with(*key_prefix)))
        return false;
    return !attributes ||
           (!slot_attisnull(row, pg::column_number(SagaColumn::attributes)) &&
            DatumGetBool(DirectFunctionCall2(jsonb_contains, value_in(row, SagaColumn::attributes),
                                             *attributes)));
}

} // namespace stacksaga
