// What people ask about a definition: saga_diagram() by its id.
#include "pg/function.hpp"
#include "pg/scope.hpp"
#include "src/definition.hpp"
#include "src/limits.hpp"

namespace stacksaga {

// definition_id(saga, version) -> integer
STACKSAGA_FUNCTION(definition_id) {
    pg::Arguments args(fcinfo);
    std::string_view saga = args.required_text(0, "saga");
    std::optional<int32> version;
    if (!args.is_null(1))
        version = args.required_int4(1, "version");
    PG_RETURN_INT32(pg::with_spi([&] { return find_definition(saga, version).id; }));
}

} // namespace stacksaga
