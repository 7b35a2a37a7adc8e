// Login limits: guessing a password takes too long to succeed, and no user is locked out by the
// guesses of others. Pure: the time is an argument.
#pragma once

#include "base/time.hpp"

#include <deque>
#include <map>
#include <string>

namespace stacksaga::coordinator {

/// Three limits, which count every attempt that is not known to have succeeded:
///
/// - of a user from one address: after five failures within a minute the next attempt has to wait
///   until the first of them is a minute old. Another address of the user is not locked out with
///   it;
/// - of a user from all addresses: ten at once, and one in three seconds;
/// - of an address with all users: ten at once, and four in a second.
///
/// An attempt over the latter two waits for its turn, for at most four seconds; later ones are
/// refused. A user who logged in from an address within the last 30 days is exempt from both there:
/// only the first limit holds, whatever others try elsewhere or with other names.
class LoginLimits {
public:
    static constexpr Duration window = std::chrono::minutes(1);
    static constexpr std::size_t failures_max = 5;
    static constexpr int burst = 10;
    static constexpr Duration interval_of_user = std::chrono::seconds(3);
    static constexpr Duration interval_of_address = std::chrono::milliseconds(250);
    static constexpr Duration longest_wait = std::chrono::seconds(4);
    static constexpr Duration reserve_kept = std::chrono::hours(24 * 30);
    /// Of all users. The daemon admits far fewer attempts within a minute.
    static constexpr std::size_t remembered_max = 10000;

    struct Verdict {
        bool is_admitted = false;
        bool has_reserve = false; ///< the user logged in from this address before
        /// Time until the password may be checked; for a refused attempt, until the next attempt.
        Duration wait{};
        bool is_guessing = false; ///< refused because of this user's failures
    };

    /// Decides on an attempt, and counts it if it is admitted: attempts at the same time count.
    Verdict admit(const std::string &user, const std::string &address, SteadyTime now);

    /// The user has logged in there, by this admission: the attempts that were counted count no
    /// longer.
    void succeeded(const std::string &user, const std::string &address, const Verdict &verdict,
                   SteadyTime now);

private:
    /// The earliest time of the next attempt, by user or address.
    using Turns = std::map<std::string, SteadyTime>;
    struct Failure {
        SteadyTime at;
        std::string user;
        std::string address;
    };

    [[nodiscard]] Duration locked_for(const std::string &user, const std::string &address,
                                      SteadyTime now);

    std::deque<Failure> failures_; ///< the oldest first
    Turns users_;
    Turns addresses_;
    std::map<std::pair<std::string, std::string>, SteadyTime> logged_in_; ///< user and address
};

} // namespace stacksaga::coordinator
