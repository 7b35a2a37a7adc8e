// How many times a login failed lately, so that guessing a password takes for ever. Pure: the time
// is an argument.
#pragma once

#include "types.hpp"

#include <deque>
#include <string>

namespace stacksaga::coordinator {

/// After five failures of one user from one address within a minute, the next attempt has to wait
/// until the first of them is a minute old. Another address of the user is not locked out with it.
class LoginFailures {
public:
    static constexpr Duration window = std::chrono::minutes(1);
    static constexpr std::size_t failures_max = 5;
    /// Of all users: many more than passwords can be checked within a minute.
    static constexpr std::size_t remembered_max = 10000;

    /// How long this user has to wait there; zero when it may try.
    [[nodiscard]] Duration wait(const std::string &user, const std::string &address,
                                SteadyTime now);

    /// Counts an attempt before its password is checked, so that attempts at the same time count.
    void add(const std::string &user, const std::string &address, SteadyTime now);

    /// Forgets the failures: the user has logged in there.
    void clear(const std::string &user, const std::string &address);

private:
    struct Failure {
        SteadyTime at;
        std::string user;
        std::string address;
    };
    std::deque<Failure> failures_; ///< the oldest first
};

} // namespace stacksaga::coordinator
