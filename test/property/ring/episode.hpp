// One generated episode: a ring whose nodes come and go, windows that are published for it, and
// workers whose transactions hold its slots meanwhile. Each call is passed to the model.
#pragma once

#include "check.hpp"

#include "../connection.hpp"
#include "../random.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace stacksaga::property::ring {

constexpr int workers_max = 4;

/// The sessions of a database in which episodes run: one that calls what nodes and coordinators
/// call, and some that work in slots.
struct Sessions {
    Connection caller;
    Connection observer;
    std::vector<std::unique_ptr<Connection>> workers;

    explicit Sessions(const std::string &conninfo);
};

/// The first token of a slot.
long long slot_start(int slot);

class Episode {
public:
    Episode(Sessions &sessions, uint64_t seed, int number);

    /// Returns what went wrong; nothing when all went well.
    std::optional<std::string> run();
    [[nodiscard]] const std::string &trace() const { return trace_; }

private:
    /// The transaction of a session that works in slots.
    struct Worker {
        Connection *session;
        bool is_open = false;
        SlotSet locked{};
        std::map<int, long long> works{}; ///< slot and the incarnation that may work there
    };
    /// A holder of a name, now or before.
    struct Holder {
        std::string node;
        long long incarnation;
    };
    struct Publication {
        int start = 0;
        std::string agent;
        std::map<int, std::string> assignment;
        std::vector<std::string> nodes;
        std::vector<long long> starts, ends;
        std::string sqlstate; ///< of what is not valid in it
    };

    void set_up();
    void operate();
    void drain();
    void let_all_recover();

    void register_node();
    void register_as(const std::string &name, const std::string &kind);
    void refuse_registration();
    void beat(const Holder &holder);
    void confirm(const Holder &holder);
    void drain_node(const Holder &holder);
    void leave(const Holder &holder);
    void publish();
    Publication make_window(int start, const std::string &agent, const SlotSet &slots);
    void spoil(Publication &window);
    void publish(const Publication &window);
    void alter();
    void begin_transaction();
    void end_transaction(bool commits);
    void beat_together();
    void race_for_slots();
    void confirm_and_beat(const std::string &node);

    void work();
    void end_work(Worker &worker, int dice);
    void end_all_work();
    void claim(const Node &node);
    void read_views();
    void read_ranges(const Node &node);

    using Check = std::function<void(const Change &)>;
    /// Makes a call whose nodes, windows and settings should be those of `expected` after it, and
    /// checks the slots. Nothing changes when it should be refused.
    Reply perform(const std::string &sql, const std::string &sqlstate, Ring expected,
                  const Check &check);
    /// The SQLSTATE of a call of a holder of a name.
    [[nodiscard]] std::string refusal_of(const Holder &holder) const;
    void check_nodes(Ring &expected, const Ring &after) const;
    Ring read(Connection &session);
    void set_clock(Connection &session);
    void note(const std::string &text);

    [[nodiscard]] int now() const { return hour_ * hours + 1; }
    [[nodiscard]] SlotSet busy() const;
    /// What other sessions than the caller see.
    [[nodiscard]] const Ring &committed() const { return committed_ ? *committed_ : ring_; }
    [[nodiscard]] std::string instant(int at) const;
    [[nodiscard]] std::string name(const std::string &node) const;
    /// The holder of one of the names that the end uses.
    [[nodiscard]] Holder present(const std::string &node) const;
    const Node *any_node(const std::string &kind);
    Holder any_holder();

    Sessions &sessions_;
    int number_;
    Random random_;
    int ring_id_ = 0;
    std::string base_;     ///< the instant 0
    long long offset_ = 0; ///< of the clock at hour 0, in seconds
    bool has_agents_;
    bool has_retries_ = false;
    Ring ring_;                     ///< as the caller sees it
    std::optional<Ring> committed_; ///< while a transaction of the caller is open
    SlotSet taken_in_transaction_;
    std::vector<Worker> workers_;
    std::vector<Holder> holders_;
    long long newest_incarnation_ = 0;
    std::string trace_;
    int hour_ = 0;
    int operation_ = 0;
};

} // namespace stacksaga::property::ring
