// The record of what operators and services do to one saga: rows of saga_action.
#pragma once
#include "core/saga/saga_state.hpp"

#include "src/saga/store.hpp"

namespace stacksaga {

/// One action on a saga.
struct ActionRecord {
    std::string_view action;
    core::Status status_before;
    std::optional<std::string_view> reason;
    std::optional<int16> step_no{};
    std::optional<std::string_view> outcome{};
};

/// Records an action on a saga that is locked, with the acting role. Inside with_spi.
void write_action(const Saga &saga, const ActionRecord &r);

} // namespace stacksaga
