#include "src/handler/running_handler.hpp"

#include "src/common/limits.hpp"

namespace stacksaga {

constinit RunningHandler running_handler{};

const char *RunningHandler::describe() {
    const std::string_view name = running_handler.name_;
    const auto length = static_cast<int>(name.size());
    return running_handler.is_of_step_ ? psprintf("step \"%.*s\" of saga %s", length, name.data(),
                                                  uuid_text(running_handler.saga_id_))
                                       : psprintf("subscription \"%.*s\"", length, name.data());
}

void RunningHandler::run_as(Oid definer) {
    acting_handler = {.definer = definer, .describe = describe};
}

} // namespace stacksaga
