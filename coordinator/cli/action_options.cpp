// The options of the actions, made of the table of actions.
#include "cli/options.hpp"
#include "db/actions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {
namespace {

constexpr std::array<std::string_view, 3> outcomes{"done", "not_done", "never"};
constexpr std::array<std::string_view, 7> statuses{
    "pending", "running", "suspended", "compensating", "parked", "completed", "failed"};

/// An argument that names objects, by the member of the action's object.
struct ArgumentText {
    std::string_view member;
    std::string_view type;
    std::string_view help;
};
constexpr std::array argument_texts{
    ArgumentText{"saga_ids", "SAGA", "Ids or keys of sagas"},
    ArgumentText{"saga_id", "SAGA", "Id or key of a saga"},
    ArgumentText{"message_ids", "MESSAGE",
                 "Ids of dead messages; redrive without any takes all, the oldest first"},
    ArgumentText{"queue", "QUEUE", "The queue"},
    ArgumentText{"saga", "DEFINITION", "Name of the saga that is defined"},
    ArgumentText{"schedule", "SCHEDULE", "The schedule"},
    ArgumentText{"subscription", "SUBSCRIPTION", "The subscription"},
    ArgumentText{"scope", "SCOPE", "Scope of the idempotency key"},
    ArgumentText{"key", "KEY", "The idempotency key"},
    ArgumentText{"database", "DATABASE",
                 "Name of the copy: in a database of another name nothing is done"},
};

const ArgumentText &text_of(std::string_view member) {
    return *std::ranges::find(argument_texts, member, &ArgumentText::member);
}

/// The positional arguments: any number of ids, or a name for each member.
void add_targets(CLI::App &command, const Action &action, ActionWords &words) {
    std::string type;
    std::string help;
    int names = 0;
    for (const std::string_view member : action.objects) {
        if (member.empty())
            continue;
        const ArgumentText &text = text_of(member);
        type += fmt::format("{}{}", type.empty() ? "" : " ", text.type);
        help += fmt::format("{}{}", help.empty() ? "" : "; ", text.help);
        ++names;
    }
    if (names == 0)
        return;
    auto *targets = command.add_option("targets", words.targets, help)->type_name(type);
    if (!action.objects.front().ends_with("_ids"))
        targets->expected(names)->required();
    else if (action.name == "discard")
        targets->required();
}

} // namespace

void add_filter(CLI::App &command, CommandConfig &config) {
    command.add_option("--name", config.filter.saga, "Only sagas of this name")->type_name("SAGA");
    command.add_option("--status", config.filter.status, "Only sagas of this status")
        ->check(one_of(statuses), "")
        ->type_name("STATUS");
    command.add_option("--key", config.filter.key_prefix, "Only sagas whose key begins with this")
        ->type_name("PREFIX");
    command
        .add_option("--attributes", config.filter.attributes,
                    "Only sagas with these attributes, a JSON object")
        ->type_name("JSON");
    command.add_option("--max", config.filter.max, "Maximum number of sagas, the newest first")
        ->check(CLI::Range(1, 1000))
        ->type_name("NUMBER")
        ->capture_default_str();
}

void add_action(CLI::App &command, CommandConfig &config) {
    const Action &action = *find_action(command.get_name());
    // Without ids it is redrive-all.
    const Takes &takes =
        action.name == "redrive" ? find_action("redrive-all")->takes : action.takes;
    ActionWords &words = config.action;
    add_targets(command, action, words);
    command.add_option("--reason", words.reason, "The reason, which is recorded")
        ->required()
        ->check(not_empty, "")
        ->type_name("TEXT");
    command
        .add_option("--on-behalf-of", words.on_behalf_of,
                    "The person who asked for it, which is recorded")
        ->type_name("NAME");
    command.add_flag("--yes", words.is_confirmed,
                     "Commit it; without this the action is run and rolled back");
    if (action.objects.front() == "saga_ids")
        add_filter(command, config);
    if (takes.spread)
        command
            .add_option("--spread", words.spread,
                        "Spread the next attempts evenly over this time, such as '5 minutes'")
            ->type_name("INTERVAL");
    if (takes.until)
        command
            .add_option("--until", words.until,
                        "When the pause ends, such as '2026-12-24 08:00+01'; without this "
                        "somebody has to resume")
            ->type_name("TIMESTAMP");
    if (action.name == "resolve") {
        command.add_option("--step", words.step, "The step")->required()->type_name("STEP");
        command.add_option("--outcome", words.outcome, "done, not_done or never")
            ->required()
            ->check(one_of(outcomes), "")
            ->type_name("OUTCOME");
        command.add_option("--step-output", words.output, "Output of the step, where it is done")
            ->type_name("JSON");
    }
    if (takes.past_dedupe_retention)
        command.add_flag("--past-dedupe-retention", words.past_dedupe_retention,
                         "Also messages so old that their consumer may have forgotten an attempt "
                         "that took effect");
    if (action.objects.front() == "message_ids")
        command.add_option("--subscription", words.subscription, "The subscription")
            ->required()
            ->type_name("NAME");
}

} // namespace stacksaga::coordinator
