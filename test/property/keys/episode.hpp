// One generated episode: sessions whose transactions overlap, and random calls on a few keys, each
// of which is passed to the model.
#pragma once

#include "model.hpp"

#include "../random.hpp"

#include <memory>

namespace stacksaga::property::keys {

constexpr int sessions_max = 4;

/// The sessions of a database in which episodes run.
struct Sessions {
    Connection observer; ///< is in no transaction, and reads what is committed
    std::vector<std::unique_ptr<Connection>> clients;

    explicit Sessions(const std::string &conninfo);
    Connection &client(int session) { return *clients[static_cast<size_t>(session)]; }
};

class Episode {
public:
    Episode(Sessions &sessions, uint64_t seed, int number);

    /// Returns what went wrong; nothing when all went well.
    std::optional<std::string> run();
    [[nodiscard]] const std::string &trace() const { return trace_; }

private:
    /// What a session sees of the rows that a sweep may remove, and when it will check them.
    using Swept = std::map<Thing, std::string>;

    void set_up();
    void operate();
    void drain();
    void finish_keys();
    void expire_all();

    void begin_transaction(int session);
    void end_transaction(int session);
    void commit_in_doubt(int session);
    void prepare(int session);
    bool may_end(int session, const Reply &reply);
    void use_savepoint(int session);
    void interrupt(int session);
    void cut(int session);

    Call make_call(int session);
    Call make_answer(const Thing &thing);
    Call make_answer_to(const Thing &key);
    std::optional<Thing> begun_by(int session) const;
    Call make_invalid();
    void call(int session, Call call);
    void sweep(int session, int rows_max);
    void look(int session);
    Swept read_swept(Connection &connection);
    /// Takes the answers of all calls that wait for nobody, and checks that the others wait.
    void settle();
    bool take_one();
    void take_victim(const std::set<int> &members);
    void check_blocked(int session);
    void find_out_whether_waiting(int session);
    std::set<int> read_blockers(int session);
    /// Compares what is committed, if something was since the last time.
    void check_tables();
    Table read_tables();

    [[nodiscard]] std::string scope() const { return "e" + std::to_string(number_); }
    Reply statement(int session, const std::string &sql);
    void note(int session, const std::string &text);
    std::vector<int> sessions_that(bool wait) const;
    Thing any_thing(Kind kind);

    Sessions &sessions_;
    int number_;
    Random random_;
    int count_; ///< of sessions
    Model model_;
    std::map<std::string, std::string> requests_by_fingerprint_;
    std::map<int, std::set<int>> seen_blocked_; ///< by whom
    std::string base_;                          ///< the instant of time 0
    std::string trace_;
    int now_ = 0;       ///< half hours
    int operation_ = 0; ///< counts
    int checked_commits_ = 0;
    int things_; ///< of each kind
};

} // namespace stacksaga::property::keys
