#include "cli/options.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {
namespace {

std::string not_empty(const std::string &text) {
    return text.empty() ? "must not be empty" : "";
}

/// What an action takes as its positional arguments.
struct ActionShape {
    std::string_view name;
    const char *targets;
    const char *what;
    bool is_on_sagas = false;
};
constexpr std::array action_shapes{
    ActionShape{"retry", "SAGA", "Ids or keys of sagas", true},
    ActionShape{"resume", "SAGA", "Ids or keys of sagas", true},
    ActionShape{"cancel", "SAGA", "Ids or keys of sagas", true},
    ActionShape{"suspend", "SAGA", "Ids or keys of sagas", true},
    ActionShape{"resolve", "SAGA", "Id or key of a saga"},
    ActionShape{"redrive", "MESSAGE", "Ids of dead messages; none: all, the oldest first"},
    ActionShape{"discard", "MESSAGE", "Ids of dead messages"},
    ActionShape{"pause-queue", "QUEUE", "The queue"},
    ActionShape{"resume-queue", "QUEUE", "The queue"},
    ActionShape{"pause-schedule", "SCHEDULE", "The schedule"},
    ActionShape{"resume-schedule", "SCHEDULE", "The schedule"},
};

std::string one_word_of(std::span<const std::string_view> words, const std::string &text) {
    std::string complaint;
    if (std::ranges::find(words, text) == words.end())
        for (const std::string_view word : words)
            complaint += (complaint.empty() ? "must be " : ", ") + std::string(word);
    return complaint;
}

std::string outcome(const std::string &text) {
    static constexpr std::array<std::string_view, 3> words{"done", "not_done", "never"};
    return one_word_of(words, text);
}

std::string status(const std::string &text) {
    static constexpr std::array<std::string_view, 7> words{
        "pending", "running", "suspended", "compensating", "parked", "completed", "failed"};
    return one_word_of(words, text);
}

} // namespace

void add_filter(CLI::App &command, CommandConfig &config) {
    command.add_option("--name", config.filter.saga, "Only sagas of this name")->type_name("SAGA");
    command.add_option("--status", config.filter.status, "Only sagas of this status")
        ->check(status, "")
        ->type_name("STATUS");
    command.add_option("--key", config.filter.key_prefix, "Only sagas whose key begins so")
        ->type_name("PREFIX");
    command
        .add_option("--attributes", config.filter.attributes,
                    "Only sagas with these attributes, a JSON object")
        ->type_name("JSON");
    command.add_option("--max", config.filter.max, "At most so many sagas, the newest first")
        ->check(CLI::Range(1, 1000))
        ->type_name("NUMBER")
        ->capture_default_str();
}

void add_action(CLI::App &command, CommandConfig &config) {
    const auto shape = std::ranges::find_if(
        action_shapes, [&](const ActionShape &each) { return each.name == command.get_name(); });
    ActionWords &words = config.action;
    auto *targets =
        command.add_option("targets", words.targets, shape->what)->type_name(shape->targets);
    command.add_option("--reason", words.reason, "Why; it is recorded")
        ->required()
        ->check(not_empty, "")
        ->type_name("TEXT");
    command.add_option("--on-behalf-of", words.on_behalf_of, "For whom; it is recorded")
        ->type_name("NAME");
    command.add_flag("--yes", words.is_confirmed, "Do it; without this it is only tried");
    if (shape->is_on_sagas)
        add_filter(command, config);
    else if (shape->name != "redrive")
        targets->required();
    if (shape->name == "retry" || shape->name == "resume" || shape->name == "redrive")
        command
            .add_option("--spread", words.spread,
                        "Let the next attempts fall due evenly over so long, such as '5 minutes'")
            ->type_name("INTERVAL");
    if (shape->name == "resolve") {
        command.add_option("--step", words.step, "The step")->required()->type_name("STEP");
        command.add_option("--outcome", words.outcome, "done, not_done or never")
            ->required()
            ->check(outcome, "")
            ->type_name("OUTCOME");
        command.add_option("--step-output", words.output, "Output of the step, where it is done")
            ->type_name("JSON");
    }
    if (shape->name == "redrive" || shape->name == "discard")
        command.add_option("--subscription", words.subscription, "The subscription")
            ->required()
            ->type_name("NAME");
}

} // namespace stacksaga::coordinator
