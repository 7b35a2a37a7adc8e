// A step whose call is a message: published as a command, answered with complete_step() or
// fail_step() under the lease that the message carries.
#pragma once
#include "core/saga/saga_state.hpp"

#include "src/saga/store.hpp"

namespace stacksaga {

/// The topic that its call is published to.
std::string_view topic_of(const Step &step, core::Direction direction, bool falling_back);

/// Publishes the call of a due step, or of its compensation or fallback, in the transaction that
/// claims it, and waits for the answer until the step's timeout. Every attempt is a message of its
/// own with the same idempotency key. Inside with_spi, with the saga locked.
void run_message_step(Saga &saga, const Step &step, const Work &work, std::string_view worker);

} // namespace stacksaga
