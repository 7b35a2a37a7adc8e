// Operators: their file, their sessions, how often they may guess, and whom a request comes from.
#include "base/config.hpp"
#include "web/login_limits.hpp"
#include "web/operators.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const SteadyTime start = SteadyTime() + hours(100);

TEST(Operators, HaveAHashThatOnlyTheirPasswordFits) {
    const std::string line = operator_line("alice", "secret");
    const Operators operators = parse_operators("# who\n\n" + line + "\r\n", "file");
    ASSERT_EQ(operators.size(), 1U);
    const std::string &hash = operators.at("alice");
    EXPECT_TRUE(is_password("secret", hash));
    for (const std::string &wrong :
         std::vector<std::string>{std::string("Secret"), std::string(), std::string("secret "),
                                  std::string("secret\0more", 11)})
        EXPECT_FALSE(is_password(wrong, hash)) << wrong;
    EXPECT_NE(operator_line("alice", "secret"), line) << "each hash has a salt of its own";
}

TEST(Operators, AreRefusedWithTheLine) {
    const std::string good = operator_line("alice", "secret");
    const std::string hash = good.substr(good.find(':') + 1);
    for (const auto &[text, place] : std::vector<std::pair<std::string, std::string>>{
             {"alice\n", "f:1: "},
             {"# x\n\nalice:secret\n", "f:3: "},
             {"alice:$6$salt$hash\n", "f:1: "},
             {good + "\n" + good + "\n", "f:2: "},
             {":" + hash, "f:1: "},
             {std::string(64, 'a') + ":" + hash, "f:1: "},
             {"ali\x01"
              "ce:" +
                  hash,
              "f:1: "},
             {good.substr(0, good.size() - 1), "f:1: "}}) {
        try {
            (void)parse_operators(text, "f");
            FAIL() << text;
        } catch (const OperatorsError &error) {
            EXPECT_TRUE(std::string(error.what()).starts_with(place)) << error.what();
            EXPECT_EQ(std::string(error.what()).find(hash), std::string::npos)
                << "no hash is shown";
        }
    }
}

/// A file that is removed at the end of the test.
struct TemporaryFile {
    explicit TemporaryFile(const std::string &text) {
        const int file = ::mkstemp(name.data());
        EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
        ::close(file);
    }
    ~TemporaryFile() { ::unlink(name.c_str()); }
    std::string name = "/tmp/operators_test.XXXXXX";
};

TEST(Operators, AreReadFromAFileThatNobodyElseCanRead) {
    const TemporaryFile file(operator_line("alice", "secret") + "\n");
    ::chmod(file.name.c_str(), 0600);
    EXPECT_EQ(read_operators(file.name).count("alice"), 1U);
    for (const mode_t mode : {0640U, 0604U, 0620U, 0602U, 0610U, 0777U}) {
        ::chmod(file.name.c_str(), mode);
        EXPECT_THROW((void)read_operators(file.name), OperatorsError) << mode;
    }
    ::chmod(file.name.c_str(), 0400);
    EXPECT_NO_THROW((void)read_operators(file.name));
    EXPECT_THROW((void)read_operators("/tmp"), OperatorsError);
    EXPECT_THROW((void)read_operators(file.name + ".missing"), OperatorsError);
    const TemporaryFile empty("# nobody\n");
    ::chmod(empty.name.c_str(), 0600);
    EXPECT_THROW((void)read_operators(empty.name), OperatorsError);
}

/// Whether read_operators() refuses the file for its mode.
bool mode_is_refused(const std::string &file) {
    try {
        (void)read_operators(file);
        return false;
    } catch (const OperatorsError &error) {
        return std::string_view(error.what()).find("has mode ") != std::string_view::npos;
    }
}

/// systemd's folder of credentials with a file `operators`, as $CREDENTIALS_DIRECTORY names it.
struct Credentials {
    Credentials() {
        EXPECT_NE(::mkdtemp(folder.data()), nullptr);
        file = folder + "/operators";
        std::ofstream(file) << operator_line("alice", "secret") << '\n';
        ::chmod(file.c_str(), 0440);
        ::setenv("CREDENTIALS_DIRECTORY", folder.c_str(), 1);
    }
    ~Credentials() {
        ::unsetenv("CREDENTIALS_DIRECTORY");
        std::filesystem::remove_all(folder);
    }
    std::string folder = "/tmp/credentials_test.XXXXXX";
    std::string file;
};

TEST(Operators, AreReadFromACredentialThatItsGroupCanRead) {
    const Credentials credentials;
    if (::geteuid() != 0) {
        EXPECT_TRUE(mode_is_refused(credentials.file)) << "it is not root's";
        GTEST_SKIP() << "only root can make a file of root";
    }
    EXPECT_EQ(read_operators(credentials.file).count("alice"), 1U);
    for (const mode_t mode : {0444U, 0442U, 0460U, 0450U, 0644U}) {
        ::chmod(credentials.file.c_str(), mode);
        EXPECT_TRUE(mode_is_refused(credentials.file)) << std::oct << mode;
    }
    ::chmod(credentials.file.c_str(), 0440);
    EXPECT_EQ(::chown(credentials.file.c_str(), 65534, 0), 0);
    EXPECT_TRUE(mode_is_refused(credentials.file)) << "it is not root's";
}

TEST(Operators, AreReadFromNoOtherFileThatItsGroupCanRead) {
    const Credentials credentials;
    const TemporaryFile beside(operator_line("alice", "secret") + "\n");
    ::chmod(beside.name.c_str(), 0440);
    const std::string link = credentials.folder + "/link";
    std::filesystem::create_symlink(beside.name, link);
    // A folder whose name begins with that of the credentials.
    const std::string longer = credentials.folder + "x";
    std::filesystem::create_directory(longer);
    std::filesystem::copy_file(beside.name, longer + "/operators");
    for (const std::string &file :
         {beside.name, credentials.folder + "/../" + beside.name.substr(5), link,
          longer + "/operators"})
        EXPECT_TRUE(mode_is_refused(file)) << file;
    std::filesystem::remove_all(longer);
    ::setenv("CREDENTIALS_DIRECTORY", "", 1);
    EXPECT_TRUE(mode_is_refused(credentials.file)) << "no folder is named";
    ::unsetenv("CREDENTIALS_DIRECTORY");
    EXPECT_TRUE(mode_is_refused(credentials.file)) << "there is no folder";
}

TEST(Sessions, AreFoundByTheirIdUntilTheyEnd) {
    Sessions sessions;
    const Session first = sessions.begin("alice", start);
    const Session second = sessions.begin("alice", start);
    EXPECT_NE(first.id, second.id);
    EXPECT_NE(first.csrf_token, second.csrf_token);
    EXPECT_EQ(first.id.size(), 64U);
    ASSERT_TRUE(sessions.find(first.id, start, true));
    EXPECT_EQ(sessions.find(first.id, start, true)->user, "alice");
    EXPECT_FALSE(sessions.find(first.id.substr(0, 63), start, true));
    EXPECT_FALSE(sessions.find("", start, true));
    sessions.end(first.id);
    EXPECT_FALSE(sessions.find(first.id, start, true));
    EXPECT_TRUE(sessions.find(second.id, start, true));
    sessions.end_of_user("alice");
    EXPECT_FALSE(sessions.find(second.id, start, true));
}

TEST(Sessions, EndHalfAnHourAfterTheirLastUse) {
    Sessions sessions;
    const std::string id = sessions.begin("alice", start).id;
    EXPECT_TRUE(sessions.find(id, start + minutes(29), true));
    EXPECT_TRUE(sessions.find(id, start + minutes(58), true));
    EXPECT_FALSE(sessions.find(id, start + minutes(88), true));
    EXPECT_EQ(sessions.size(), 0U);
}

TEST(Sessions, AreNotKeptAliveByAPageThatUpdatesItself) {
    Sessions sessions;
    const std::string id = sessions.begin("alice", start).id;
    for (int minute = 0; minute < 30; ++minute)
        EXPECT_TRUE(sessions.find(id, start + minutes(minute), false)) << minute;
    EXPECT_FALSE(sessions.find(id, start + minutes(30), false));
}

TEST(Sessions, EndAfterEightHoursHoweverMuchTheyAreUsed) {
    Sessions sessions;
    const std::string id = sessions.begin("alice", start).id;
    for (int minute = 0; minute < 480; minute += 10)
        EXPECT_TRUE(sessions.find(id, start + minutes(minute), true)) << minute;
    EXPECT_FALSE(sessions.find(id, start + minutes(480), true));
}

TEST(Sessions, OfOneUserAreFew) {
    Sessions sessions;
    const std::string first = sessions.begin("alice", start).id;
    const std::string other = sessions.begin("bob", start).id;
    for (std::size_t i = 0; i < Sessions::of_user_max; ++i)
        sessions.begin("alice", start);
    EXPECT_EQ(sessions.size(), Sessions::of_user_max + 1);
    EXPECT_FALSE(sessions.find(first, start, true));
    EXPECT_TRUE(sessions.find(other, start, true));
}

/// Attempts that fail, and of them those that are admitted.
int admitted(LoginLimits &limits, int attempts, const std::function<std::string(int)> &user,
             const std::function<std::string(int)> &address, Duration apart) {
    int count = 0;
    for (int i = 0; i < attempts; ++i)
        count += limits.admit(user(i), address(i), start + i * apart).is_admitted ? 1 : 0;
    return count;
}

std::function<std::string(int)> always(const std::string &name) {
    return [name](int) { return name; };
}

std::function<std::string(int)> numbered(const std::string &name) {
    return [name](int i) { return name + std::to_string(i); };
}

TEST(LoginLimits, AllowFiveInAMinuteOfOneUserFromOneAddress) {
    LoginLimits limits;
    EXPECT_EQ(admitted(limits, 5, always("alice"), always("a"), seconds(1)), 5);
    const auto sixth = limits.admit("alice", "a", start + seconds(5));
    EXPECT_FALSE(sixth.is_admitted);
    EXPECT_TRUE(sixth.is_guessing);
    EXPECT_EQ(sixth.wait, Duration(seconds(55)));
    EXPECT_EQ(limits.admit("alice", "b", start + seconds(5)).wait, Duration::zero());
    EXPECT_EQ(limits.admit("bob", "a", start + seconds(5)).wait, Duration::zero());
    EXPECT_FALSE(limits.admit("alice", "a", start + seconds(59)).is_admitted);
    EXPECT_TRUE(limits.admit("alice", "a", start + seconds(60)).is_admitted);
    EXPECT_EQ(limits.admit("alice", "a", start + seconds(60)).wait, Duration(seconds(1)));
}

TEST(LoginLimits, ForgetTheFailuresWithASuccess) {
    LoginLimits limits;
    for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(admitted(limits, 4, always("alice"), always("a"), seconds(0)), 4) << round;
        limits.succeeded("alice", "a", limits.admit("alice", "a", start), start);
    }
}

// Ten at once and twenty a minute, from however many addresses.
TEST(LoginLimits, BoundTheGuessesAtOneUserFromManyAddresses) {
    LoginLimits limits;
    EXPECT_LE(admitted(limits, 60 * 63, always("alice"), numbered("a"), milliseconds(16)), 32);
    EXPECT_FALSE(limits.admit("alice", "new", start + seconds(60)).is_admitted);
    EXPECT_TRUE(limits.admit("bob", "new", start + seconds(60)).is_admitted);
    EXPECT_TRUE(limits.admit("alice", "new", start + seconds(120)).is_admitted);
}

TEST(LoginLimits, BoundTheAttemptsOfOneAddressWithManyNames) {
    LoginLimits limits;
    const int count = admitted(limits, 60 * 63, numbered("guest"), always("a"), milliseconds(16));
    EXPECT_GE(count, 240);
    EXPECT_LE(count, 270);
    EXPECT_TRUE(limits.admit("guest", "b", start + seconds(60)).is_admitted);
}

// Eight connections that send one name after the other, and one person.
TEST(LoginLimits, LetAUserInFromAnAddressThatOthersUseForGuesses) {
    LoginLimits limits;
    SteadyTime now = start;
    std::array<SteadyTime, 8> free{};
    free.fill(start);
    int guests = 0;
    for (; now < start + seconds(60); now += milliseconds(10))
        for (SteadyTime &at : free)
            if (at <= now) {
                const auto verdict = limits.admit("guest" + std::to_string(guests++), "a", now);
                at = now + (verdict.is_admitted ? verdict.wait : Duration::zero());
            }
    const auto first = limits.admit("alice", "a", now);
    EXPECT_TRUE(first.is_admitted);
    EXPECT_LE(first.wait, Duration(seconds(3)));
    limits.succeeded("alice", "a", first, now);
    for (int i = 0; i < 15; ++i) {
        const auto again = limits.admit("alice", "a", now);
        EXPECT_TRUE(again.is_admitted && again.has_reserve);
        EXPECT_EQ(again.wait, Duration::zero()) << "she has turns in reserve";
        limits.succeeded("alice", "a", again, now);
    }
    int guesses = 0;
    for (int i = 0; i < 100; ++i)
        guesses += limits.admit("alice", "b" + std::to_string(i), now).is_admitted ? 1 : 0;
    EXPECT_EQ(guesses, 11);
    EXPECT_TRUE(limits.admit("alice", "a", now).is_admitted) << "whatever others try elsewhere";
}

TEST(Operators, CostUnknownNamesTheSameWork) {
    const Operators operators{{"alice", "one"}, {"bob", "two"}};
    EXPECT_EQ(hash_to_check(operators, "alice"), "one");
    EXPECT_EQ(hash_to_check(operators, "bob"), "two");
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        const std::string name = "guest" + std::to_string(i);
        EXPECT_EQ(hash_to_check(operators, name), hash_to_check(operators, name));
        seen.insert(hash_to_check(operators, name));
    }
    EXPECT_EQ(seen.size(), 2U);
}

TEST(Network, HoldsItsAddressesAndNoOther) {
    const auto holds = [](const char *network, const char *address) {
        return Network::parse(network)->contains(asio::ip::make_address(address));
    };
    EXPECT_TRUE(holds("10.0.0.0/8", "10.255.0.1"));
    EXPECT_TRUE(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
    EXPECT_FALSE(holds("10.0.0.0/8", "11.0.0.1"));
    EXPECT_TRUE(holds("192.168.1.128/25", "192.168.1.200"));
    EXPECT_FALSE(holds("192.168.1.128/25", "192.168.1.127"));
    EXPECT_TRUE(holds("127.0.0.1", "127.0.0.1"));
    EXPECT_FALSE(holds("127.0.0.1", "127.0.0.2"));
    EXPECT_TRUE(holds("fd00::/8", "fd12::1"));
    EXPECT_FALSE(holds("fd00::/8", "10.0.0.1"));
    EXPECT_TRUE(holds("0.0.0.0/0", "6.6.6.6"));
    for (const char *wrong : {"", "10", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/x",
                              "host", "10.0.0.0/8 ", "10.0.0.0/-1"})
        EXPECT_FALSE(Network::parse(wrong)) << wrong;
}

TEST(RandomText, NeverComesTwice) {
    std::set<std::string> texts;
    for (int i = 0; i < 1000; ++i)
        texts.insert(random_text(16));
    EXPECT_EQ(texts.size(), 1000U);
    EXPECT_TRUE(equal_secrets("abc", "abc"));
    EXPECT_FALSE(equal_secrets("abc", "abd"));
    EXPECT_FALSE(equal_secrets("abc", "ab"));
    EXPECT_FALSE(equal_secrets("", "a"));
}

} // namespace
} // namespace stacksaga::coordinator
