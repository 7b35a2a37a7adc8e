// The operators of the page: names and hashes of passwords in a file, as --operators-file names it,
// and their sessions, which are in memory, so a restart of the daemon ends them. The time is an
// argument.
#pragma once

#include "base/time.hpp"

#include <cstddef>
#include <list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

/// That many random bytes of the kernel, as hexadecimal digits. Throws std::system_error.
[[nodiscard]] std::string random_text(std::size_t bytes);

/// Compares in a time that does not depend on where the texts differ.
[[nodiscard]] bool equal_secrets(std::string_view left, std::string_view right) noexcept;

/// Names with hashes as crypt(3) makes them.
using Operators = std::map<std::string, std::string, std::less<>>;

/// A mistake in a file; what() begins with its name, and the line where there is one.
struct OperatorsError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Reads lines of NAME:HASH; empty lines and those that begin with # are comments. `file` is for
/// errors. A hash must be yescrypt's ($y$). Throws OperatorsError, which quotes no hash.
[[nodiscard]] Operators parse_operators(std::string_view text, const std::string &file);

/// Reads the file, which must be a regular one that belongs to the daemon's user or root, and that
/// nobody else can read or write (mode 0600 or less; 0440 where it is root's and a credential that
/// systemd hands over, below $CREDENTIALS_DIRECTORY). Throws OperatorsError.
[[nodiscard]] Operators read_operators(const std::string &file);

/// A line for the file. Throws std::system_error.
[[nodiscard]] std::string operator_line(const std::string &name, const std::string &password);

/// Whether the password has this hash. Takes as long as the hash demands, a tenth of a second say.
[[nodiscard]] bool is_password(const std::string &password, const std::string &hash);

/// The hash to check a password of this user against. For an unknown user it is one of the others',
/// the same each time: whatever parameters the hashes have, the time of the check does not reveal
/// which users exist.
[[nodiscard]] const std::string &hash_to_check(const Operators &operators, const std::string &user);

/// Whether a name can be an operator's: 1 to 63 bytes, without control characters and colons.
[[nodiscard]] bool is_operator_name(std::string_view name);

struct Session {
    std::string id; ///< in the cookie; it cannot be guessed
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
