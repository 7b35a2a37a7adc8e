#include "src/handler/running_handler.hpp"

#include "src/common/limits.hpp"

namespace stacksaga {

constinit RunningHandler running_handler{};

const char *RunningHandler::describe() {
    const char *name = printable(running_handler.name_);
    return running_handler.is_of_step_
               ? psprintf("step \"%s\" of saga %s", name, uuid_text(running_handler.saga_id_))
               : psprintf("subscription \"%s\"", name);
}

void RunningHandler::run_as(Oid definer) {
    subtransaction_ = GetCurrentSubTransactionId();
    acting_handler = {.definer = definer, .describe = describe};
}

} // namespace stacksaga
