// Handlers in a worker, which is killed again and again, and the server with it.
#pragma once

#include <cstdint>
#include <string>

namespace stacksaga::property::outbox {

/// Publishes for some seconds to subscriptions with handlers, in a database of its own, kills the
/// worker `kills` times, and then waits until all is settled. Returns what went wrong; empty
/// when all went well. `script` is outbox.sql.
std::string run_live(uint64_t seed, const std::string &script, int kills);

} // namespace stacksaga::property::outbox
