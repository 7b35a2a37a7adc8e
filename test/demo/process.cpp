#include "process.hpp"

#include <cerrno>
#include <csignal>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace stacksaga::demo {

namespace {

[[noreturn]] void fail(const std::string &what) {
    throw std::system_error(errno, std::generic_category(), what);
}

} // namespace

Process::Process(const std::vector<std::string> &arguments, const std::string &log) {
    std::vector<char *> argv;
    for (const std::string &argument : arguments)
        argv.push_back(const_cast<char *>(argument.c_str()));
    argv.push_back(nullptr);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (output < 0)
        fail("cannot write " + log);
    const pid_t owner = getpid();
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == owner && dup2(output, STDOUT_FILENO) >= 0 &&
            dup2(output, STDERR_FILENO) >= 0)
            execvp(argv[0], argv.data());
        _exit(127);
    }
    const int error = errno;
    close(output);
    errno = error;
    if (pid_ < 0)
        fail("cannot start " + arguments[0]);
}

Process::~Process() {
    if (pid_ == 0)
        return;
    kill(pid_, SIGKILL);
    wait();
}

std::optional<int> Process::ended() {
    int status = 0;
    if (pid_ == 0 || waitpid(pid_, &status, WNOHANG) != pid_)
        return std::nullopt;
    pid_ = 0;
    return status;
}

int Process::wait() {
    int status = 0;
    while (pid_ != 0 && waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
}

} // namespace stacksaga::demo
