// Runs generated episodes of rings against the model: see ../README.md.
#include "episode.hpp"

#include "../episodes.hpp"

#include <fmt/format.h>

int main(int argc, char **argv) {
    using namespace stacksaga::property;
    // They wait now and then, so more databases than cores are faster.
    EpisodeOptions options{.episodes = 50, .databases = 4};
    std::string scripts = PROPERTY_SCRIPTS;
    CLI::App app(
        "Runs generated episodes of rings against a model. The server is the one of libpq's "
        "environment; databases property_ring_0, ... are made in it.",
        "property_ring");
    options.add_to(app);
    app.add_option("--scripts", scripts, "The directory of ring.sql");
    CLI11_PARSE(app, argc, argv);
    try {
        Episodes episodes(options);
        episodes.run("property_ring", read_file(scripts + "/ring.sql"),
                     [&](const std::string &conninfo) {
                         const auto sessions = std::make_shared<ring::Sessions>(conninfo);
                         return [&options, sessions](int number) {
                             ring::Episode episode(*sessions, options.seed, number);
                             std::optional<std::string> wrong = episode.run();
                             return Played{episode.trace(), std::move(wrong)};
                         };
                     });
        return episodes.summarize("episodes of rings");
    } catch (const std::exception &error) {
        fmt::print(stderr, "unexpected: {}\n", error.what());
        return 70;
    }
}
