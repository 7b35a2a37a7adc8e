#include "explore.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

namespace stacksaga::truth {

namespace {

struct Key {
    std::uint64_t a;
    std::uint64_t b;
    friend bool operator==(const Key &, const Key &) = default;
};

/// As MurmurHash3 ends: every bit of the sum counts in every bit of the result.
std::uint64_t mix(std::uint64_t x, std::uint64_t y) {
    std::uint64_t h = (x ^ y) * 0xff51afd7ed558ccdU;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53U;
    return h ^ (h >> 29);
}

void mix_in(Key &key, const void *begin, std::size_t size) {
    const auto *bytes = static_cast<const std::byte *>(begin);
    for (std::size_t i = 0; i < size; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + i, std::min<std::size_t>(8, size - i));
        key.a = mix(key.a, word);
        key.b = mix(key.b + 0xa4093822299f31d0U, word);
    }
}

/// 128 bits: that two of a billion states share them is less likely than a fault of the memory.
/// Of a child that was never started there is nothing to count.
Key key_of(const State &state) {
    Key key{.a = 0x243f6a8885a308d3U, .b = 0x13198a2e03707344U};
    const std::size_t sagas = state.saga[1].exists != 0 ? 2 : 1;
    mix_in(key, state.saga, sagas * sizeof(state.saga[0]));
    mix_in(key, state.truth, sagas * sizeof(state.truth[0]));
    const std::uint64_t counts = state.operations + 256U * state.losses + 65536U * state.releases;
    mix_in(key, &counts, sizeof(counts));
    return key;
}

/// A set of states by their keys.
class Seen {
public:
    /// False: it was there.
    bool insert(const Key &key) {
        if (2 * (size_ + 1) > keys_.size())
            grow();
        return place(key);
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool has(const Key &key) const {
        if (keys_.empty())
            return false;
        for (std::size_t i = key.a & (keys_.size() - 1); used_[i] != 0;
             i = (i + 1) & (keys_.size() - 1))
            if (keys_[i] == key)
                return true;
        return false;
    }

private:
    bool place(const Key &key) {
        std::size_t i = key.a & (keys_.size() - 1);
        for (; used_[i] != 0; i = (i + 1) & (keys_.size() - 1))
            if (keys_[i] == key)
                return false;
        keys_[i] = key;
        used_[i] = 1;
        ++size_;
        return true;
    }
    void grow() {
        std::vector<Key> keys = std::move(keys_);
        std::vector<char> used = std::move(used_);
        keys_.assign(std::max<std::size_t>(1024, 2 * keys.size()), {});
        used_.assign(keys_.size(), 0);
        size_ = 0;
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (used[i] != 0)
                place(keys[i]);
    }
    std::vector<Key> keys_;
    std::vector<char> used_;
    std::size_t size_ = 0;
};

constexpr Bounds without_bounds{.operations = 255, .losses = 255, .releases = 0};

State first_state(const Plans &plans) {
    State state{};
    start(plans, state, 0);
    return state;
}

/// Whether a parked saga can be brought to a right end at all.
class Ways {
public:
    explicit Ways(const Plans &plans) : world_(plans, without_bounds, false) {}

    bool leads(const State &from, Goal goal) {
        Known &known = known_[static_cast<std::size_t>(goal)];
        const State begin = forget_counts(from);
        if (known.leads.has(key_of(begin)))
            return true;
        if (known.leads_nowhere.has(key_of(begin)))
            return false;
        if (known.nowhere_count >= nowhere_max || search(begin, goal, known))
            return true;
        ++known.nowhere_count;
        known.leads_nowhere.insert(key_of(begin));
        return false;
    }
    [[nodiscard]] long searches() const { return searches_; }

private:
    struct Known {
        Seen leads;
        Seen leads_nowhere;
        int nowhere_count = 0;
    };
    /// Of one shape so many are enough to show.
    static constexpr int nowhere_max = 2;
    struct Reached {
        State state;
        std::size_t from;
    };
    static constexpr std::size_t reached_max = 400'000;
    static constexpr std::size_t cost_max = 64;
    using ByCost = std::array<std::vector<std::size_t>, cost_max + 1>;

    static State forget_counts(State state) {
        state.operations = 1; // a person may have said anything
        state.losses = state.releases = 0;
        return state;
    }

    /// What goes well is tried first; a way does not need what only gets in it.
    static std::size_t cost_of(const Move &move) {
        switch (move.what) {
        case What::run:
            return move.detail == 0 ? 1 : 6;
        case What::verify:
            return static_cast<VerifyAnswer>(move.detail & 7) == VerifyAnswer::unknown ? 4 : 1;
        case What::retryable:
        case What::non_retryable:
            return 4;
        case What::release:
            return 0;
        case What::operate:
            return static_cast<Operation>(move.detail) == Operation::suspend ? 0 : 2;
        case What::resolve:
        case What::by_hand:
        case What::expire:
            return 2;
        case What::unknown:
        case What::deadline_passes:
            return 0; // not at all
        default:
            return 1;
        }
    }

    /// Cheap first. Every state on a way that is found has one, too.
    bool search(const State &begin, Goal goal, Known &known) {
        ++searches_;
        std::vector<Reached> reached{{.state = begin, .from = 0}};
        ByCost open;
        open[0].push_back(0);
        Seen seen;
        seen.insert(key_of(begin));
        for (std::size_t cost = 0; cost <= cost_max; ++cost)
            for (std::size_t k = 0; k < open.at(cost).size(); ++k) {
                const std::size_t here = open.at(cost)[k];
                const State state = reached[here].state;
                for (const Move &move : world_.candidates(state)) {
                    const std::size_t more = cost_of(move);
                    if (more == 0 || cost + more > cost_max)
                        continue;
                    const std::optional<State> next = after(state, move);
                    if (!next)
                        continue;
                    const State to = forget_counts(*next);
                    const Key key = key_of(to);
                    if (is_right_end(world_.plans(), to, goal) || known.leads.has(key)) {
                        known.leads.insert(key);
                        for (std::size_t at = here;; at = reached[at].from) {
                            known.leads.insert(key_of(reached[at].state));
                            if (at == 0)
                                return true;
                        }
                    }
                    if (core::is_final(static_cast<Status>(to.saga[0].status)) ||
                        judge(world_.plans(), to) != nullptr || !seen.insert(key))
                        continue;
                    if (reached.size() >= reached_max)
                        return false;
                    reached.push_back({.state = to, .from = here});
                    open.at(cost + more).push_back(reached.size() - 1);
                }
            }
        return false;
    }

    std::optional<State> after(const State &state, const Move &move) const {
        try {
            return world_.after(state, move);
        } catch (const std::exception &) { // more attempts than the model follows
            return std::nullopt;
        }
    }

    World world_;
    std::array<Known, 3> known_;
    long searches_ = 0;
};

/// Two answers of different steps, given in both orders.
class Swaps {
public:
    explicit Swaps(const Plans &plans) : world_(plans, without_bounds, false) {}

    /// What differs, or "".
    std::string differing(const State &state, const Move &a, const Move &b) {
        const std::optional<State> first = both(state, a, b);
        const std::optional<State> second = both(state, b, a);
        if (!first || !second)
            return "";
        ++swaps_;
        const bool is_one_undone = is_undone(first->saga[a.which]);
        if (is_one_undone == is_undone(second->saga[a.which]))
            return "";
        const Plans &plans = world_.plans();
        return text_of(is_one_undone ? a : b, state, plans) + ", then " +
               text_of(is_one_undone ? b : a, state, plans) +
               ": undone; in the other order it is not";
    }
    [[nodiscard]] long swaps() const { return swaps_; }

private:
    std::optional<State> both(const State &state, const Move &a, const Move &b) const {
        try {
            const std::optional<State> after_a = world_.after(state, a);
            if (!after_a)
                return std::nullopt;
            return world_.after(*after_a, b);
        } catch (const std::exception &) {
            return std::nullopt;
        }
    }

    World world_;
    long swaps_ = 0;
};

struct Node {
    std::uint32_t parent;
    std::uint32_t depth;
    Move move;
};

class Exploration {
public:
    Exploration(const Family &family, const Settings &settings, Violations &found)
        : family_(family), settings_(settings), found_(found), saga_(family.saga, false),
          child_(family.child ? std::make_unique<Plan>(*family.child, true) : nullptr),
          plans_{{&saga_, child_.get()}}, world_(plans_, settings.bounds, true), ways_(plans_),
          swaps_(plans_) {}

    Counts run() {
        const State first = first_state(plans_);
        nodes_.push_back({});
        open_.push_back(first);
        seen_.insert(key_of(first));
        bool is_cut = false;
        for (std::uint32_t here = 0; here < nodes_.size() && !is_cut; ++here) {
            const State state = open_.front();
            open_.pop_front();
            if (is_wrong(state, here))
                continue; // what follows from it would be wrong again
            expand(state, here);
            is_cut = nodes_.size() > settings_.states_max;
        }
        return {.shapes = 1,
                .states = static_cast<long>(nodes_.size()),
                .cut = is_cut ? 1 : 0,
                .swaps = swaps_.swaps(),
                .ways = ways_.searches()};
    }

    Counts walk(std::uint64_t seed, int length) {
        std::mt19937_64 random(seed);
        State state = first_state(plans_);
        nodes_.push_back({});
        std::uint32_t here = 0;
        for (int i = 0; i < length && !is_wrong(state, here); ++i) {
            std::vector<std::pair<Move, State>> next;
            for (const Move &move : world_.candidates(state))
                if (const std::optional<State> to = after(state, move, here))
                    next.emplace_back(move, *to);
            if (next.empty())
                break;
            const auto &[move, to] =
                next[std::uniform_int_distribution<std::size_t>(0, next.size() - 1)(random)];
            nodes_.push_back({.parent = here, .depth = nodes_[here].depth + 1, .move = move});
            here = static_cast<std::uint32_t>(nodes_.size() - 1);
            state = to;
        }
        return {.shapes = 1,
                .states = static_cast<long>(nodes_.size()),
                .swaps = 0,
                .ways = ways_.searches()};
    }

private:
    bool is_wrong(const State &state, std::uint32_t here) {
        if (const char *wrong = judge(plans_, state)) {
            report(wrong, here, {});
            return true;
        }
        if (settings_.looks_for_ways)
            for (const Goal goal : goals_of(plans_, state))
                if (!ways_.leads(state, goal)) {
                    report(goal == Goal::completed ? "N parked without a way to completed"
                           : goal == Goal::failed  ? "N parked without a way to failed"
                                                   : "N parked without a way to a right end",
                           here, {});
                    return true;
                }
        return false;
    }

    void expand(const State &state, std::uint32_t here) {
        std::vector<Move> answers;
        bool is_stuck = is_left_to_workers(plans_, state);
        for (const Move &move : world_.candidates(state)) {
            const std::optional<State> next = after(state, move, here);
            if (!next)
                continue;
            is_stuck &= !is_by_worker(move);
            if (is_answer(move, state))
                answers.push_back(move);
            if (!seen_.insert(key_of(*next)))
                continue;
            nodes_.push_back({.parent = here, .depth = nodes_[here].depth + 1, .move = move});
            open_.push_back(*next);
        }
        if (is_stuck)
            report("N nothing can be done of what is due", here, {});
        if (!settings_.swaps_answers)
            return;
        for (std::size_t a = 0; a < answers.size(); ++a)
            for (std::size_t b = a + 1; b < answers.size(); ++b)
                if (answers[a].which == answers[b].which && answers[a].step != answers[b].step)
                    if (std::string differs = swaps_.differing(state, answers[a], answers[b]);
                        !differs.empty())
                        report("O the order of two answers decides", here, std::move(differs));
    }

    std::optional<State> after(const State &state, const Move &move, std::uint32_t here) {
        try {
            return world_.after(state, move);
        } catch (const std::length_error &) {
            return std::nullopt;
        } catch (const std::exception &wrong) {
            report(wrong.what(), here, text_of(move, state, plans_));
            return std::nullopt;
        }
    }

    void report(const std::string &what, std::uint32_t here, std::string last) {
        const auto place = found_.find(what);
        if (place != found_.end() && reported_.contains(what) &&
            place->second.length <= nodes_[here].depth)
            return;
        Violation violation{.length = nodes_[here].depth + (last.empty() ? 0U : 1U),
                            .shape = family_.text(),
                            .history = history_of(here),
                            .shapes = reported_.insert({what, true}).second ? 1 : 0};
        if (!last.empty())
            violation.history.push_back(std::move(last));
        add(found_, what, std::move(violation));
    }

    std::vector<std::string> history_of(std::uint32_t here) const {
        std::vector<Move> moves;
        for (; here != 0; here = nodes_[here].parent)
            moves.push_back(nodes_[here].move);
        std::vector<std::string> history;
        State state = first_state(plans_);
        for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
            history.push_back(text_of(*move, state, plans_));
            state = world_.after(state, *move).value();
        }
        return history;
    }

    const Family &family_;
    const Settings &settings_;
    Violations &found_;
    Plan saga_;
    std::unique_ptr<Plan> child_;
    Plans plans_;
    World world_;
    Ways ways_;
    Swaps swaps_;
    std::vector<Node> nodes_;
    std::deque<State> open_;
    Seen seen_;
    std::map<std::string, bool> reported_;
};

} // namespace

Counts &Counts::operator+=(const Counts &other) {
    shapes += other.shapes;
    states += other.states;
    cut += other.cut;
    swaps += other.swaps;
    ways += other.ways;
    return *this;
}

std::string Family::text() const {
    return child ? saga.text() + " with the child " + child->text() : saga.text();
}

void add(Violations &found, const std::string &what, Violation violation) {
    const auto [place, is_new] = found.try_emplace(what, violation);
    if (is_new)
        return;
    violation.shapes += place->second.shapes;
    if (violation.length < place->second.length)
        place->second = std::move(violation);
    else
        place->second.shapes = violation.shapes;
}

Counts explore(const Family &family, const Settings &settings, Violations &found) {
    return Exploration(family, settings, found).run();
}

Counts walk(const Family &family, const Settings &settings, std::uint64_t seed, int length,
            Violations &found) {
    return Exploration(family, settings, found).walk(seed, length);
}

} // namespace stacksaga::truth
