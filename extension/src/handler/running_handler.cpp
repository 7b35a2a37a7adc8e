#include "src/handler/running_handler.hpp"

namespace stacksaga {

constinit RunningHandler running_handler{};

} // namespace stacksaga
