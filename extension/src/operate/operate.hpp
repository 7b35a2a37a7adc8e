// What operators do to sagas, one (operate.cpp) or many (operate_many.cpp) at a time.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

enum class Action : uint8_t { cancel, suspend, resume, retry };

/// The action's name, as in cancel_saga().
std::string_view name_of(Action action);

struct Operation {
    Action action;
    std::string_view reason;
    int64 delay = 0; ///< of the attempts that it makes due, in microseconds
};

struct Operated {
    core::Status before;
    core::Status after;
};

/// Locks the saga, applies the action and records it. SG404 when there is no such saga, SG409 when
/// its status does not allow the action. Inside with_spi.
Operated operate(const pg_uuid_t &id, const Operation &operation);

} // namespace stacksaga
