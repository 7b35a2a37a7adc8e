// How often a login may be tried, so that guessing a password takes for ever and nobody is locked
// out by the guesses of others. Pure: the time is an argument.
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
/// An attempt over the latter two waits for its turn, for at most four seconds; behind that there
/// is no turn. A user who logged in from an address lately has these turns in reserve: there only
/// the first limit holds, whatever others try elsewhere or with other names.
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
        /// Until the password may be checked; where it may not, until another attempt may.
        Duration wait{};
        bool is_guessing = false; ///< refused because of this user's failures
    };

    /// Decides on an attempt, and counts it if it is admitted: attempts at the same time count.
    Verdict admit(const std::string &user, const std::string &address, SteadyTime now);

    /// The user has logged in there, as this verdict allowed: what was counted counts no longer.
    void succeeded(const std::string &user, const std::string &address, const Verdict &verdict,
                   SteadyTime now);

private:
    /// When the next attempt of something would be on time.
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
