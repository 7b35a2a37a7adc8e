#include "cli/options.hpp"

namespace stacksaga::coordinator {
namespace {

const char *examples_of_action(const std::string &action) {
    if (action == "resolve")
        return "  stacksaga-coordinator resolve order-4711 -d shop --step charge --outcome done "
               "--reason 'seen at the bank' --yes\n";
    if (action == "redrive")
        return "  stacksaga-coordinator redrive -d shop --subscription billing --reason 'fixed in "
               "1.2' --spread '10 minutes' --yes\n";
    if (action == "discard")
        return "  stacksaga-coordinator discard 0190c1a8-0000-7000-8000-000000000001 -d shop "
               "--subscription billing --reason 'a test order'\n";
    if (action.ends_with("-queue"))
        return "  stacksaga-coordinator pause-queue payments -d shop --reason 'the bank is down' "
               "--yes\n"
               "  stacksaga-coordinator resume-queue payments -d shop --reason 'it is back' --yes\n";
    if (action.ends_with("-schedule"))
        return "  stacksaga-coordinator pause-schedule nightly -d shop --reason 'stocktaking' "
               "--yes\n"
               "  stacksaga-coordinator resume-schedule nightly -d shop --reason 'done' --yes\n";
    if (action == "retry")
        return "  stacksaga-coordinator retry order-4711 -d shop --reason 'the bank is back'\n"
               "  stacksaga-coordinator retry -d shop --name transfer --status parked --max 500 "
               "--reason 'fixed' --spread '5 minutes' --yes\n";
    return "  stacksaga-coordinator cancel order-4711 -d shop --reason 'the customer asked' "
           "--yes\n"
           "  stacksaga-coordinator suspend order-4711 -d shop --reason 'looking into it' --yes\n"
           "  stacksaga-coordinator resume order-4711 -d shop --reason 'looked into it' --yes\n";
}

} // namespace

const char *examples_of(const CommandWords &c) {
    switch (c.command) {
    case Command::master:
        return "  stacksaga-coordinator master -d 'service=shop user=coordinator'\n"
               "  stacksaga-coordinator master -d shop -d billing --http 0.0.0.0:9187\n"
               "  stacksaga-coordinator master -d shop --region eu,us --dry-run\n"
               "  stacksaga-coordinator master -c coordinator.toml --print-config\n";
    case Command::agent:
        return "  stacksaga-coordinator agent --name north -d 'service=shop user=coordinator'\n";
    case Command::status:
        return "  stacksaga-coordinator status -d shop --watch\n"
               "  stacksaga-coordinator status -d shop -o json | jq .sagas\n"
               "  stacksaga-coordinator status -d shop >/dev/null || echo 'needs attention'\n";
    case Command::ring:
        return "  stacksaga-coordinator ring -d shop --region eu\n"
               "  stacksaga-coordinator ring -d shop -o json | jq '.ranges[].node'\n";
    case Command::locate:
        return "  stacksaga-coordinator locate order-42 -d shop\n";
    case Command::doctor:
        return "  stacksaga-coordinator doctor -d shop\n"
               "  stacksaga-coordinator doctor -d shop -o json | jq -r '.[].fix'\n";
    case Command::sagas:
        return "  stacksaga-coordinator sagas -d shop --status parked\n"
               "  stacksaga-coordinator sagas -d shop --key order- --json | jq '.sagas[].saga_id'\n";
    case Command::saga:
        return "  stacksaga-coordinator saga order-4711 -d shop\n";
    case Command::queues:
        return "  stacksaga-coordinator queues -d shop --watch\n";
    case Command::schedules:
        return "  stacksaga-coordinator schedules -d shop\n";
    case Command::definitions:
        return "  stacksaga-coordinator definitions -d shop\n";
    case Command::dead_messages:
        return "  stacksaga-coordinator dead-messages -d shop\n";
    case Command::act:
        return examples_of_action(c.app->get_name());
    case Command::hash_password:
        return "  stacksaga-coordinator hash-password alice >> operators\n";
    case Command::completion:
        return "  stacksaga-coordinator completion bash > "
               "/etc/bash_completion.d/stacksaga-coordinator\n";
    case Command::check_config:
        break;
    }
    return "  stacksaga-coordinator check-config -c coordinator.toml\n";
}

} // namespace stacksaga::coordinator
