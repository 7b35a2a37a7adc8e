// Sessions of operators on the page: in memory, so a restart of the daemon ends them. Pure but for
// the random identities: the time is an argument.
#pragma once

#include "base/time.hpp"

#include <list>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

struct Session {
    std::string id; ///< in the cookie; nobody can guess it
    std::string csrf_token;
    std::string user;
    SteadyTime began;
    SteadyTime used;
};

/// A session ends 30 minutes after its last use, and 8 hours after its begin. A user has at most
/// 16: one more ends the one that was used least recently. Pointers are valid until the next call
/// that changes the sessions.
class Sessions {
public:
    static constexpr Duration idle_max = std::chrono::minutes(30);
    static constexpr Duration age_max = std::chrono::hours(8);
    static constexpr std::size_t of_user_max = 16;

    const Session &begin(const std::string &user, SteadyTime now);

    /// The session with this id, if it has not ended. `is_use` says whether a person did something,
    /// rather than a page that updates itself.
    [[nodiscard]] const Session *find(std::string_view id, SteadyTime now, bool is_use);

    void end(std::string_view id);
    void end_of_user(std::string_view user);

    [[nodiscard]] std::size_t size() const noexcept { return sessions_.size(); }

private:
    void end_expired(SteadyTime now);

    std::list<Session> sessions_; ///< the most recently used first
};

} // namespace stacksaga::coordinator
