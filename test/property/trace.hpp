// What was seen of one generated saga, and what the database holds of it in the end.
#pragma once

#include "model.hpp"
#include "plan.hpp"

#include <optional>
#include <string>
#include <vector>

namespace stacksaga::property {

enum class EventKind : uint8_t { call, verify, claim, answer, extend, operation };

struct Event {
    EventKind kind;
    int tick;
    int step;
    Direction direction;
    int attempt;
    int64_t lease = 0;
    bool falls_back = false; ///< of a call or claim: it is the fallback's
    Operation operation{};
    Word word = Word::done;  ///< of an answer
    int output = 0;          ///< of an answer
    std::string text{};      ///< of a call or claim: the results; of an answer: its reply
    bool is_accepted = true; ///< of an answer: not refused
};

struct Trace {
    const Definition *definition;
    Plan plan;
    Model model;
    std::vector<Event> events{};
    int answers_to_come = 0; ///< and operations
    int rescues = 0;
    std::optional<std::string> disagreement{};   ///< the first one of model and engine
    std::optional<std::string> broken_promise{}; ///< the first one; checked in the end

    Trace(const Definition &d, uint64_t seed, int number)
        : definition(&d), plan(seed, number), model(d, plan) {}
    Trace(const Trace &) = delete; // the model refers to the plan
    Trace &operator=(const Trace &) = delete;

    [[nodiscard]] bool is_over() const {
        return disagreement || (answers_to_come == 0 && model.is_at_rest());
    }
    void object(std::string what) {
        if (!disagreement)
            disagreement = std::move(what);
    }
};

/// The marker of a completed step, or an effect in the ledger of the test.
struct Mark {
    int step;
    Direction direction;
    int attempt;
};

/// What the database holds in the end.
struct Facts {
    std::string status;
    bool names_parked_step = false;
    bool has_error = false;
    std::vector<Mark> markers{};
    std::vector<Mark> ledger{};
    int work_left = 0; ///< rows that will be due one day
};

/// The promises, checked against what was seen and without the model: the first one that is broken.
/// Of a trace that was cut short by a disagreement only those that hold at any time.
std::optional<std::string> broken_promise(const Trace &trace, const Facts &facts);

/// The trace as text: the definition, the outcomes and the events.
std::string format_trace(const Trace &trace);

} // namespace stacksaga::property
