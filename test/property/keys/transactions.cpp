// How an episode begins and ends transactions and subtransactions.
#include "episode.hpp"

#include <fmt/format.h>

namespace stacksaga::property::keys {

void Episode::begin_transaction(int session) {
    const auto isolation = random_.one_of({Isolation::read_committed, Isolation::read_committed,
                                           Isolation::repeatable_read, Isolation::serializable});
    const bool is_read_only = random_.chance(4);
    constexpr const char *levels[] = {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};
    statement(session,
              fmt::format("BEGIN ISOLATION LEVEL {}{}", levels[static_cast<size_t>(isolation)],
                          is_read_only ? " READ ONLY" : ""));
    // Its snapshot is older than what others do from now on.
    if (isolation != Isolation::read_committed)
        statement(session, "SELECT 1 FROM pg_class LIMIT 1");
    model_.begin(session, isolation, is_read_only);
}

void Episode::end_transaction(int session) {
    if (!random_.chance(70)) {
        statement(session, "ROLLBACK");
        model_.roll_back(session);
    } else if (random_.chance(10) && !model_.is_aborted(session) && sessions_that(true).empty())
        commit_in_doubt(session);
    else if (random_.chance(15) && !model_.is_aborted(session))
        prepare(session);
    else if (may_end(session, statement(session, "COMMIT")))
        model_.commit(session);
    settle();
    check_tables();
}

/// Whether the transaction commits or is prepared, as the answer says. It may not be serializable.
bool Episode::may_end(int session, const Reply &reply) {
    if (reply.is_accepted())
        return true;
    if (reply.sqlstate != "40001" || model_.isolation(session) != Isolation::serializable)
        throw Disagreement("the end of a transaction is answered " + reply.text());
    model_.roll_back(session);
    return false;
}

/// Commits or rolls back in two phases, the second one from another session at times.
void Episode::prepare(int session) {
    const std::string id = fmt::format("'{} {}'", scope(), session);
    if (!may_end(session, statement(session, "PREPARE TRANSACTION " + id)))
        return;
    if (random_.chance(30)) {
        Connection &client = sessions_.client(session);
        note(session, "the session is cut");
        const int pid = client.pid();
        client.cut();
        await_end_of(sessions_.observer, pid);
        client.open();
    }
    const bool commits = random_.chance(70);
    const Reply reply =
        statement(session, (commits ? "COMMIT PREPARED " : "ROLLBACK PREPARED ") + id);
    if (!reply.is_accepted())
        throw Disagreement("the end of a prepared transaction is answered " + reply.text());
    if (commits)
        model_.commit(session);
    else
        model_.roll_back(session);
}

/// The answer to the COMMIT is lost: it has happened or not, as a whole. Nobody waits for its end.
void Episode::commit_in_doubt(int session) {
    Connection &client = sessions_.client(session);
    note(session, "COMMIT, and the session is terminated");
    client.send("COMMIT");
    sessions_.observer.require(fmt::format("SELECT pg_terminate_backend({})", client.pid()));
    client.cut();
    await_end_of(sessions_.observer, client.pid());
    Model committed = model_;
    committed.commit(session);
    model_.roll_back(session);
    client.open();
    if (read_tables() == committed.committed() && committed.committed() != model_.committed()) {
        note(session, "it was committed");
        model_ = committed;
    }
}

void Episode::use_savepoint(int session) {
    const size_t levels = model_.levels(session);
    const auto level =
        static_cast<size_t>(levels > 1 ? random_.between(1, static_cast<int>(levels) - 1) : 0);
    const int dice = random_.below(100);
    if (level == 0 || (dice < 40 && levels < 5)) {
        const Reply reply = statement(session, fmt::format("SAVEPOINT s{}", levels));
        if (reply.is_accepted() == model_.is_aborted(session))
            throw Disagreement("SAVEPOINT is answered " + reply.text());
        if (reply.is_accepted())
            model_.savepoint(session);
        return;
    }
    if (dice < 75 || model_.is_aborted(session)) {
        statement(session, fmt::format("ROLLBACK TO SAVEPOINT s{}", level));
        model_.roll_back_to(session, level);
    } else {
        statement(session, fmt::format("RELEASE SAVEPOINT s{}", level));
        model_.release(session, level);
    }
    settle();
}

} // namespace stacksaga::property::keys
