// Signals that have arrived for a saga, and the steps that take them.
#include "core/saga/saga.hpp"

namespace stacksaga::core {

namespace {

void require_signals(SagaState &saga) {
    if (saga.has_signals_loaded)
        return;
    saga.signals.clear();
    saga.source->load_signals(saga);
    saga.has_signals_loaded = true;
}

} // namespace

bool awaits_signal(SagaState &saga, std::string_view name) {
    if (is_final(saga.row.status) || !saga.acts())
        return false;
    require_signals(saga);
    std::ptrdiff_t left = std::count_if(
        saga.definition->steps.begin(), saga.definition->steps.end(), [&](const Step &s) {
            const std::optional<Work> work = find_work(saga, s.no, Direction::act);
            return s.waits_for() == StepWait::signal && s.signal == name &&
                   !(work ? work->falling_back : is_in_doubt(saga, s.no)) && !has_acted(saga, s.no);
        });
    for (const Signal &signal : saga.signals)
        left -= !signal.is_taken && signal.name == name ? 1 : 0;
    return left > 0;
}

std::optional<Value> take_signal(SagaState &saga, const Step &step) {
    require_signals(saga);
    for (Signal &signal : saga.signals) {
        if (signal.is_taken || signal.name != step.signal)
            continue;
        signal.is_taken = true;
        saga.changes.taken.push(saga.memory, {.no = signal.no, .step_no = step.no});
        return signal.payload;
    }
    return std::nullopt;
}

} // namespace stacksaga::core
