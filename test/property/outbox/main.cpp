// Runs generated episodes of the outbox against the model, and then the part in which workers are
// killed: see ../README.md.
#include "episode.hpp"
#include "live.hpp"

#include "../episodes.hpp"

#include <fmt/format.h>

namespace stacksaga::property::outbox {
namespace {

int run(const EpisodeOptions &options, const std::string &scripts, int kills) {
    const std::string script = read_file(scripts + "/outbox.sql");
    Episodes episodes(options);
    episodes.run("property_outbox", script, [&](const std::string &conninfo) {
        const auto sessions = std::make_shared<Sessions>(conninfo);
        return [&options, sessions](int number) {
            Episode episode(*sessions, options.seed, number);
            std::optional<std::string> wrong = episode.run();
            return Played{episode.trace(), std::move(wrong)};
        };
    });
    // After them: a worker that is killed takes the server along.
    if (!episodes.is_one() && kills > 0 && !episodes.has_failed())
        if (const std::string wrong = run_live(options.seed, script, kills); !wrong.empty())
            episodes.report("with workers: " + wrong);
    return episodes.summarize("episodes and a part with workers");
}

} // namespace
} // namespace stacksaga::property::outbox

int main(int argc, char **argv) {
    stacksaga::property::EpisodeOptions options;
    int kills = 4;
    std::string scripts = PROPERTY_SCRIPTS;
    CLI::App app("Runs generated episodes of the outbox against a model. The server is the one of "
                 "libpq's environment; databases property_outbox_0, ... are made in it.",
                 "property_outbox");
    options.add_to(app);
    app.add_option("--kills", kills, "How often the worker is killed")->check(CLI::Range(0, 1000));
    app.add_option("--scripts", scripts, "The directory of outbox.sql");
    CLI11_PARSE(app, argc, argv);
    try {
        return stacksaga::property::outbox::run(options, scripts, kills);
    } catch (const std::exception &error) {
        fmt::print(stderr, "unexpected: {}\n", error.what());
        return 70;
    }
}
