// Runs generated episodes of idempotency keys, and the other calls of the dedupe ladder, against
// the model: see ../README.md.
#include "episode.hpp"

#include "../episodes.hpp"

#include <fmt/format.h>

int main(int argc, char **argv) {
    using namespace stacksaga::property;
    // They wait now and then, so more databases than cores are faster.
    EpisodeOptions options{.episodes = 100, .databases = 4};
    CLI::App app(
        "Runs generated episodes of idempotency keys against a model. The server is the one "
        "of libpq's environment; databases property_keys_0, ... are made in it.",
        "property_keys");
    options.add_to(app);
    CLI11_PARSE(app, argc, argv);
    try {
        Episodes episodes(options);
        episodes.run("property_keys", "", [&](const std::string &conninfo) {
            const auto sessions = std::make_shared<keys::Sessions>(conninfo);
            return [&options, sessions](int number) {
                keys::Episode episode(*sessions, options.seed, number);
                std::optional<std::string> wrong = episode.run();
                return Played{episode.trace(), std::move(wrong)};
            };
        });
        return episodes.summarize("episodes of keys");
    } catch (const std::exception &error) {
        fmt::print(stderr, "unexpected: {}\n", error.what());
        return 70;
    }
}
