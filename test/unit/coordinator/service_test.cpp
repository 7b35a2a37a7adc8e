// Notifications to a supervisor, the interval of the watchdog, and pauses between attempts.
#include "base/service.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

using namespace std::chrono_literals;

TEST(Notifier, NotifiesAnAbstractSocket) {
    const std::string name = "stacksaga-notify-test-" + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int listener = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr *>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    const Notifier notifier(("@" + name).c_str());
    EXPECT_TRUE(notifier.is_heard());
    notifier.notify("READY=1");
    std::array<char, 64> heard{};
    EXPECT_EQ(::recv(listener, heard.data(), heard.size(), MSG_DONTWAIT), 7);
    EXPECT_STREQ(heard.data(), "READY=1");
    ::close(listener);
    notifier.notify("STOPPING=1"); // the supervisor has closed its socket: that does no harm
}

TEST(Notifier, SaysNothingWhereNobodyListens) {
    const std::string too_long = "/" + std::string(200, 'x');
    for (const char *path :
         {static_cast<const char *>(nullptr), "", "@", "relative", too_long.c_str()})
        EXPECT_FALSE(Notifier(path).is_heard());
}

TEST(Watchdog, IsNotifiedTwiceInItsTimeAndOnlyByItsProcess) {
    const std::string me = std::to_string(::getpid());
    EXPECT_EQ(watchdog_period("30000000", nullptr), std::chrono::seconds(15));
    EXPECT_EQ(watchdog_period("30000000", me.c_str()), std::chrono::seconds(15));
    for (const char *bad : {"", "x", "1", "-5", "10s", "99999999999999999999"})
        EXPECT_FALSE(watchdog_period(bad, nullptr)) << bad;
    EXPECT_FALSE(watchdog_period(nullptr, nullptr));
    EXPECT_FALSE(watchdog_period("30000000", "1"));
}

TEST(Reload, NamesSettingsThatNeedARestart) {
    EXPECT_EQ(changed_settings("a = \"1\"  # file\nb = \"2\"  # flag\nlog-level = \"info\"\n",
                               "a = \"3\"  # file\nb = \"2\"  # flag\nlog-level = \"warn\"\n"),
              "a");
}

TEST(Backoff, DoublesToItsCapWithJitter) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Backoff backoff(100ms, 5s, seed);
        Duration step = 100ms;
        for (int i = 0; i < 20; ++i) {
            const Duration wait = backoff.next();
            EXPECT_GE(wait, step / 2);
            EXPECT_LE(wait, step);
            step = std::min<Duration>(step * 2, 5s);
        }
        backoff.reset();
        EXPECT_LE(backoff.next(), 100ms);
    }
}

TEST(Backoff, DiffersBetweenDaemons) {
    Backoff one(100ms, 5s, 1);
    Backoff other(100ms, 5s, 2);
    EXPECT_NE(one.next(), other.next());
}

} // namespace
} // namespace stacksaga::coordinator
