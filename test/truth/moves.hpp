// Everything that can happen next in a state: to the saga, to its services, by its operators.
#pragma once
#include "events.hpp"

namespace stacksaga::truth {

enum class What : Byte {
    run,   ///< detail: Ran
    claim, ///< a service claims it, or a worker publishes it
    done,  ///< detail of the answers: 0 the latest holder, 1 the one before
    retryable,
    non_retryable,
    unknown,
    release, ///< given back
    expire,
    lands,  ///< detail: 0 latest, 1 older, 2 and 3 one that nobody answers for, at A and F
    verify, ///< detail: VerifyAnswer; 8 more: the service refuses the key from now on
    deadline_passes,
    deadline_due,
    keys_forgotten,
    child_notice,  ///< the parent reads that its child has settled
    parent_notice, ///< the child reads that it is to compensate
    signal,
    operate, ///< detail: Operation
    resolve, ///< detail: Resolution
    by_hand, ///< an operator does the step, and says so
};

struct Move {
    What what;
    Byte which = 0;
    Byte step = 0;
    Direction direction = Direction::act;
    Byte detail = 0;
};

/// For people, with a service's letter: "claim(s1) by A".
std::string text_of(const Move &move, const State &before, const Plans &plans);

/// How often what is without bound in the world may happen in one history.
struct Bounds {
    int operations = 1;
    int losses = 2;
    int releases = 1;
};

/// Whether a worker, or a service that claims, makes the move.
bool is_by_worker(const Move &move);

/// Whether the move is an answer, as far as the order of two of them may not decide.
bool is_answer(const Move &move, const State &before);

/// At most so many can be thought of in one state.
class Moves {
public:
    void add(const Move &move) { moves_.at(size_++) = move; }
    [[nodiscard]] const Move *begin() const { return moves_.data(); }
    [[nodiscard]] const Move *end() const { return moves_.data() + size_; }

private:
    std::array<Move, 512> moves_; // NOLINT: written before it is read
    std::size_t size_ = 0;
};

/// An answer was taken wrongly, whatever the saga ends with.
struct WrongAnswer : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class World {
public:
    World(const Plans &plans, const Bounds &bounds, bool repeats_answers)
        : events_(plans), bounds_(bounds), repeats_answers_(repeats_answers) {}

    /// The state after the move; nothing where it cannot happen or changes nothing. Refused when
    /// the tables would refuse what the engine decides.
    [[nodiscard]] std::optional<State> after(const State &state, const Move &move) const;

    /// Calls `take(move, after)` for each move that can happen.
    template <class Take> void each(const State &state, Take &&take) const {
        for (const Move &move : candidates(state))
            if (std::optional<State> next = after(state, move))
                take(move, *next);
    }
    [[nodiscard]] Moves candidates(const State &state) const;
    [[nodiscard]] const Events &events() const { return events_; }
    [[nodiscard]] const Plans &plans() const { return events_.plans(); }

private:
    struct At; ///< a move with what it changes
    [[nodiscard]] bool apply(State &state, const Move &move) const;
    bool run(const At &at) const;
    bool claim(const At &at) const;
    bool answer(const At &at) const;
    bool lands(const At &at) const;
    bool verify(const At &at) const;
    bool resolve(const At &at) const;
    bool operate(const At &at) const;
    bool report(const At &at, int attempt, FailureClass c) const;
    bool give_back(const At &at, int attempt) const;

    Events events_;
    Bounds bounds_;
    bool repeats_answers_;
};

} // namespace stacksaga::truth
