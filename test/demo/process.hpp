// A child process that does not outlive its owner.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stacksaga::demo {

class Process {
public:
    /// Starts `arguments[0]`, looked up in PATH, with its output appended to `log`. Throws
    /// std::system_error.
    Process(const std::vector<std::string> &arguments, const std::string &log);
    Process(Process &&other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
    Process &operator=(Process &&other) noexcept {
        std::swap(pid_, other.pid_);
        return *this;
    }
    ~Process(); ///< kills it

    /// Its status as waitpid() returns it; nothing while it runs. Once only.
    std::optional<int> ended();
    /// Waits for its end.
    int wait();
    /// 0 once its end is known.
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

private:
    pid_t pid_ = 0; ///< 0: ended and waited for
};

} // namespace stacksaga::demo
