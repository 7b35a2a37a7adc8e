// What reset_instants(), a function in SQL, leaves to the library.
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"

namespace stacksaga {

// record_reset(reason, detail) -> void
STACKSAGA_FUNCTION(record_reset) {
    const pg::Arguments args(fcinfo);
    const std::string_view reason = required_reason(args, 0);
    if (!args.is_null(1))
        pg::with_spi([&] {
            record_action({.action = "reset",
                           .object = "instants",
                           .reason = reason,
                           .detail = args.required_text(1, "detail")});
            wake_workers_at_commit();
        });
    PG_RETURN_VOID();
}

} // namespace stacksaga
