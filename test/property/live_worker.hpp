// The background worker of a database whose clock is moved, and which is killed now and then.
#pragma once

#include "postgres.hpp"
#include "random.hpp"

#include <cstdint>
#include <string>

namespace stacksaga::property {

class LiveWorker {
public:
    /// Starts it. `session` is one of the database, in autocommit. The clock is the server's: no
    /// other database may be in use.
    LiveWorker(support::Session &session, std::string database, uint64_t seed, int kills);

    /// For the session and the worker.
    void move_clock(int hours);

    /// Whether it is not killed from here on.
    void spare(bool is_spared) { is_spared_ = is_spared; }

    /// Returns when nothing is due that a worker could do. Throws when that takes too long. The
    /// worker may be killed meanwhile, and the server restarts then.
    void await_rest();

private:
    support::Rows run_again(const char *sql);
    void kill();

    support::Session &session_;
    std::string database_;
    Random random_;
    int kills_;
    bool is_spared_ = false;
};

} // namespace stacksaga::property
