// Flags, environment, defaults, and what is refused with exit code 64.
#include "cli/command_line.hpp"
#include "cli/settings_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <unistd.h>
#include <vector>

namespace stacksaga::coordinator {
namespace {

/// Sets variables for one test.
class Environment {
public:
    explicit Environment(std::map<std::string, std::string> variables)
        : variables_(std::move(variables)) {
        for (const auto &[name, value] : variables_)
            ::setenv(name.c_str(), value.c_str(), 1);
    }
    Environment(const Environment &) = delete;
    Environment &operator=(const Environment &) = delete;
    ~Environment() {
        for (const auto &[name, value] : variables_)
            ::unsetenv(name.c_str());
    }

private:
    std::map<std::string, std::string> variables_;
};

CommandLine parse(std::vector<const char *> arguments) {
    arguments.insert(arguments.begin(), "stacksaga-coordinator");
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), "host:1");
}

TEST(Config, HasDefaults) {
    const auto parsed = parse({"master"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->conninfo, "");
    EXPECT_EQ(parsed.config->rings, (std::vector<RingName>{{"default", "default"}}));
    EXPECT_EQ(parsed.config->publisher, "host:1");
    EXPECT_EQ(parsed.config->log_format, LogFormat::logfmt);
    EXPECT_EQ(parsed.config->log_level, LogLevel::info);
    EXPECT_FALSE(parsed.config->once);
}

TEST(Config, AnAgentIsANodeOfOneRing) {
    const auto parsed = parse({"agent", "--name", "north", "--weight", "2.5", "--region", "eu"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->command, Command::agent);
    EXPECT_EQ(parsed.config->publisher, "north");
    EXPECT_EQ(parsed.config->weight, 2.5);
    for (const auto &refused : std::vector<std::vector<const char *>>{
             {"agent"},
             {"agent", "--name", ""},
             {"agent", "--name", "north", "--cluster", "one,two"},
             {"agent", "--name", "north", "--weight", "0"},
             {"agent", "--name", "north", "--weight", "nan"}}) {
        const auto wrong = parse(refused);
        EXPECT_FALSE(wrong.config);
        EXPECT_EQ(wrong.exit_code, 64);
    }
}

TEST(Config, AMasterServesSeveralDatabases) {
    EXPECT_EQ(parse({"master"}).config->databases, (std::vector<std::string>{""}));
    const auto parsed = parse({"master", "-d", "one", "--dbname", "host=db, dbname=two"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->databases, (std::vector<std::string>{"one", "host=db, dbname=two"}));
    EXPECT_EQ(parsed.config->conninfo, "one");
    EXPECT_FALSE(parse({"master", "-d", "one", "two"}).config);
}

TEST(Config, ActionsAreNotWatched) {
    EXPECT_TRUE(parse({"status", "--watch"}).config);
    for (const char *command : {"retry", "cancel", "suspend", "resume"}) {
        EXPECT_TRUE(parse({command, "--name", "order", "--reason", "why"}).config) << command;
        const auto refused = parse({command, "--name", "order", "--reason", "why", "--watch"});
        EXPECT_FALSE(refused.config) << command;
        EXPECT_EQ(refused.exit_code, 64);
    }
}

TEST(Config, ActionsTakeWhatTheirTableSays) {
    const auto paused = parse({"pause-queue", "pay", "--reason", "why", "--until", "2026-12-24"});
    ASSERT_TRUE(paused.config) << paused.error;
    EXPECT_EQ(paused.config->action.targets, (std::vector<std::string>{"pay"}));
    EXPECT_EQ(paused.config->action.until, "2026-12-24");
    EXPECT_TRUE(parse({"redrive", "--subscription", "s", "--reason", "why"}).config);
    const std::vector<std::vector<const char *>> refused{
        {"pause-queue", "--reason", "why"},
        {"pause-queue", "pay", "ship", "--reason", "why"},
        {"resume-queue", "pay", "--reason", "why", "--until", "2026-12-24"},
        {"pause-schedule", "nightly", "--reason", "why", "--until", "2026-12-24"},
        {"cancel", "order-1", "--reason", "why", "--spread", "1 minute"},
        {"discard", "--subscription", "s", "--reason", "why"},
        {"forget", "scope", "--reason", "why"},
        {"reset-instants", "now", "--reason", "why"},
        {"resolve", "order-1", "order-2", "--reason", "why", "--step", "s", "--outcome", "done"}};
    for (const auto &arguments : refused)
        EXPECT_EQ(parse(arguments).exit_code, 64) << arguments.front();
}

TEST(Config, TakesFlags) {
    const auto parsed =
        parse({"master", "-d", "host=db dbname=shop", "--name", "m1", "--log-format", "json",
               "--log-level=debug", "--once", "--region", "eu"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->conninfo, "host=db dbname=shop");
    EXPECT_EQ(parsed.config->rings, (std::vector<RingName>{{"eu", "default"}}));
    EXPECT_EQ(parsed.config->publisher, "m1");
    EXPECT_EQ(parsed.config->log_format, LogFormat::json);
    EXPECT_EQ(parsed.config->log_level, LogLevel::debug);
    EXPECT_TRUE(parsed.config->once);
}

TEST(Config, TakesTheEnvironmentAndLetsFlagsWin) {
    const Environment environment({{"STACKSAGA_DBNAME", "shop"},
                                   {"STACKSAGA_CLUSTER", "a,b"},
                                   {"STACKSAGA_LOG_LEVEL", "warn"}});
    const auto parsed = parse({"master", "--log-level", "error"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->conninfo, "shop");
    EXPECT_EQ(parsed.config->rings, (std::vector<RingName>{{"default", "a"}, {"default", "b"}}));
    EXPECT_EQ(parsed.config->log_level, LogLevel::error);
    const auto after_dashes = parse({"saga", "--", "--key"});
    ASSERT_TRUE(after_dashes.config) << after_dashes.error;
    EXPECT_EQ(after_dashes.config->key, "--key");
    EXPECT_EQ(after_dashes.config->conninfo, "shop");
}

TEST(Config, ReadsHttpAddresses) {
    EXPECT_EQ(parse_http_address("127.0.0.1:9187")->port, 9187);
    EXPECT_EQ(parse_http_address("[::1]:80")->host, "::1");
    for (const char *bad : {"", "localhost", ":80", "h:", "h:x", "h:65536", "h:80x"})
        EXPECT_FALSE(parse_http_address(bad)) << bad;
}

TEST(Config, PairsRegionsAndClusters) {
    using Rings = std::vector<RingName>;
    EXPECT_EQ(rings_of({"eu"}, {"a", "b"}), (Rings{{"eu", "a"}, {"eu", "b"}}));
    EXPECT_EQ(rings_of({"eu", "us"}, {"a"}), (Rings{{"eu", "a"}, {"us", "a"}}));
    EXPECT_EQ(rings_of({"eu", "us"}, {"a", "b"}), (Rings{{"eu", "a"}, {"us", "b"}}));
    EXPECT_EQ(rings_of({"eu", "eu"}, {"a", "a"}), (Rings{{"eu", "a"}}));
    EXPECT_FALSE(rings_of({"eu", "us"}, {"a", "b", "c"}));
}

TEST(Config, RefusesMisuseWith64) {
    for (const auto &arguments : std::vector<std::vector<const char *>>{
             {},
             {"leader"},
             {"worker"},
             {"master", "--bogus"},
             {"master", "extra"},
             {"master", "--log-format", "xml"},
             {"master", "--log-level", "loud"},
             {"master", "--region", ""},
             {"master", "--name", ""},
             {"master", "--region", "a", "--region", "b", "--cluster", "c", "--cluster", "d",
              "--cluster", "e"}}) {
        const auto parsed = parse(arguments);
        EXPECT_FALSE(parsed.config);
        EXPECT_EQ(parsed.exit_code, 64);
        EXPECT_NE(parsed.error, "");
    }
}

/// A settings file that is removed at the end of the test.
struct SettingsFileOfTest {
    explicit SettingsFileOfTest(const std::string &text) {
        ::close(::mkstemp(name.data()));
        std::ofstream(name) << text;
    }
    ~SettingsFileOfTest() { ::unlink(name.c_str()); }
    std::string name = "/tmp/config_test.XXXXXX";
};

TEST(SettingsFile, HasTextsAndLists) {
    const SettingsFileOfTest file("# x\n[master]\nname = \"a # b\" # c\n; y\n [ agent ] # z\n"
                                  "weight = 2\nregion = [\"eu\", # one\n  'u s',\n]\n"
                                  "dbname = host=x user=y\nname = \"\\\"\\\\ \\n\"\n");
    std::vector<std::string> read;
    for (const Setting &setting : read_settings(file.name)) {
        read.push_back(setting.section + "." + setting.name +
                       setting.place.substr(file.name.size()));
        read.insert(read.end(), setting.values.begin(), setting.values.end());
    }
    EXPECT_EQ(read, (std::vector<std::string>{"master.:2", "master.name:3", "a # b", "agent.:5",
                                              "agent.weight:6", "2", "agent.region:7", "eu", "u s",
                                              "agent.dbname:10", "host=x user=y", "agent.name:11",
                                              "\"\\ \\n"}));
}

TEST(SettingsFile, IsRefusedWithTheLine) {
    for (const auto &[text, place] : std::vector<std::pair<std::string, std::string>>{
             {"\n[master\n", ":2: "},
             {"[master] name = 1\n", ":1: "},
             {"[master]\nname\n", ":2: "},
             {"[master]\nname = \"a\" b\n", ":2: "},
             {"[master]\nname = 'a\n", ":2: "},
             {"[master]\nregion = [a\nb = c\n", ":3: "}}) {
        const SettingsFileOfTest file(text);
        try {
            (void)read_settings(file.name);
            ADD_FAILURE() << text;
        } catch (const SettingsError &error) {
            EXPECT_TRUE(std::string(error.what()).starts_with(file.name + place)) << error.what();
        }
    }
}

TEST(Config, RefusesABadFileWith65AndTheLine) {
    for (const auto &[text, complaint] : std::vector<std::pair<std::string, std::string>>{
             {"[master\n", ":1: a section ends with ]\n"},
             {"[masters]\n", ":1: there is no command \"masters\"\n"},
             {"[master]\nhttpp = \"x\"\n", ":2: there is no setting \"master.httpp\"\n"},
             {"http = \"x\"\n", ":1: there is no setting \"http\"; a setting stands in"},
             {"[master]\n\nhttp = \"x\"\n", ":3: --http: must be HOST:PORT"},
             {"[master]\nhide-payloads = \"perhaps\"\n", ":2: Could not convert"},
             {"[master]\nname = \"a\n", ":2: a text ends with the quote"},
             {"[agent]\nonce = true\n", ":2: there is no setting \"agent.once\"\n"},
             {"[master]\nname = \"a\"\nname = \"b\"\n", ":3: --name"},
             {"[master]\noperator-header = \"X\"\n", ":2: --operator-header: anybody"}}) {
        const SettingsFileOfTest file(text);
        const auto parsed = parse({"master", "--config", file.name.c_str()});
        EXPECT_EQ(parsed.exit_code, 65) << text;
        EXPECT_TRUE(parsed.error.starts_with(file.name + complaint)) << parsed.error;
    }
}

TEST(Config, ABadFlagOrVariableIsNotAMistakeOfTheFile) {
    const SettingsFileOfTest file("[master]\nhttp = \"127.0.0.1:9187\"\nname = \"a\"\n");
    const auto flag = parse({"master", "--config", file.name.c_str(), "--http", "x"});
    EXPECT_EQ(flag.exit_code, 64);
    EXPECT_TRUE(flag.error.starts_with("--http: must be HOST:PORT")) << flag.error;
    const std::map<std::string, std::string> variables{{"STACKSAGA_HTTP", "x"}};
    const Environment environment(variables);
    const auto variable = parse({"master", "--config", file.name.c_str()});
    EXPECT_EQ(variable.exit_code, 64);
    EXPECT_TRUE(variable.error.starts_with("--http: must be HOST:PORT")) << variable.error;
}

TEST(Config, TakesTheFileAfterFlagsAndVariables) {
    const SettingsFileOfTest file("[master]\nregion = [\"eu\", \"us\"]\nhttp = \"\"\n"
                                  "name = \"file\"\nlog-level = \"warn\"\nonce = true\n"
                                  "hide-payloads = false\n[agent]\nname = \"a\"\n");
    const std::map<std::string, std::string> variables{{"STACKSAGA_LOG_LEVEL", "error"},
                                                       {"STACKSAGA_CONFIG", file.name}};
    const Environment environment(variables);
    const auto parsed = parse({"master", "--name", "flag", "--cluster", "c"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->publisher, "flag");
    EXPECT_EQ(parsed.config->log_level, LogLevel::error);
    EXPECT_EQ(parsed.config->rings, (std::vector<RingName>{{"eu", "c"}, {"us", "c"}}));
    EXPECT_TRUE(parsed.config->http.empty());
    EXPECT_TRUE(parsed.config->once);
    EXPECT_FALSE(parsed.config->access.hide_payloads);
    for (const char *line :
         {"region = \"eu,us\"  # file\n", "name = \"flag\"  # flag\n",
          "log-level = \"error\"  # environment\n", "log-format = \"logfmt\"  # default\n"})
        EXPECT_NE(parsed.config->printed.find(line), std::string::npos) << parsed.config->printed;
    EXPECT_EQ(parse({"agent"}).config->publisher, "a") << "what is required may stand in the file";
    EXPECT_EQ(parse({"agent", "extra"}).exit_code, 64) << "no word is taken for a setting's";
    EXPECT_FALSE(parse({"check-config"}).config->once) << "it leaves out what only master has";
    EXPECT_EQ(parse({"check-config"}).config->publisher, "file");
}

TEST(Config, RefusesAFileThatIsNotThere) {
    EXPECT_EQ(parse({"master", "--config", "/nowhere"}).exit_code, 65);
    const std::map<std::string, std::string> variables{{"STACKSAGA_CONFIG", "/nowhere"}};
    const Environment environment(variables);
    const auto parsed = parse({"master"});
    EXPECT_EQ(parsed.exit_code, 65) << "also when only the environment names it";
    EXPECT_TRUE(parsed.error.starts_with("/nowhere: ")) << parsed.error;
}

TEST(Config, PrintsNoPassword) {
    const std::map<std::string, std::string> variables{
        {"STACKSAGA_DBNAME", "user=me password = 'my secret'"}};
    const Environment environment(variables);
    EXPECT_NE(parse({"agent", "--name", "a"})
                  .config->printed.find("dbname = \"user=me password=****\"  # environment\n"),
              std::string::npos);
    const auto parsed = parse({"master", "-d", "postgresql://me:secret@db/shop?sslpassword=secret",
                               "-d", "host=db password=secret"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->printed.find("secret"), std::string::npos) << parsed.config->printed;
    EXPECT_NE(parsed.config->printed.find("dbname = \"password=**** host=db\"  # flag\n"),
              std::string::npos)
        << parsed.config->printed;
    for (const auto &arguments :
         std::vector<std::vector<const char *>>{{"master", "postgresql://me:secret@db/shop"},
                                                {"master", "--password=secret"},
                                                {"master", "--password", "secret"},
                                                {"master", "password=secret"},
                                                {"--password=secret", "master"}}) {
        const auto wrong = parse(arguments);
        EXPECT_EQ(wrong.exit_code, 64);
        EXPECT_EQ(wrong.error.find("secret"), std::string::npos) << wrong.error;
    }
}

TEST(Config, TakesHostNamesOfRequests) {
    EXPECT_TRUE(parse({"master"}).config->http.names.empty());
    const auto parsed = parse({"master", "--http-host", "db.example,metrics", "--http-host", "db"});
    ASSERT_TRUE(parsed.config) << parsed.error;
    EXPECT_EQ(parsed.config->http.names, (std::vector<std::string>{"db.example", "metrics", "db"}));
    EXPECT_EQ(parse({"master", "--http-host", ""}).exit_code, 64);
}

TEST(Config, AnswersHelpAndVersion) {
    const auto version = parse({"--version"});
    EXPECT_EQ(version.exit_code, 0);
    EXPECT_EQ(version.output, "stacksaga-coordinator " STACKSAGA_VERSION "\n");
    const auto help = parse({"master", "--help"});
    EXPECT_EQ(help.exit_code, 0);
    for (const char *word : {"--dbname", "STACKSAGA_DBNAME", "--region", "--cluster", "--name",
                             "--log-format", "--log-level", "--once", "Exit codes"})
        EXPECT_NE(help.output.find(word), std::string::npos) << word;
}

} // namespace
} // namespace stacksaga::coordinator
