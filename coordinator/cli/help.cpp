#include "cli/help.hpp"

#include <array>

namespace stacksaga::coordinator {
namespace {

constexpr const char *footer =
    "The connection uses libpq's settings: PG* environment variables, service and password files apply\n"
    "unless --dbname overrides them. Any number of coordinators may serve the same rings.\n"
    "\n"
    "Exit codes: 0 done or stopped by a signal, 1 warnings and 2 errors of status or doctor, 1 no such saga, or\n"
    "one that refuses an action, 64 usage, 65 bad configuration or operators file, a pooler, or no such ring\n"
    "(--once), 69 database unavailable (--once), 70 internal error, 75 refused for now (--once), 77 permission denied, 78 extension missing or of\n"
    "another version.\n"
    "\n"
    "Signals of master and agent: SIGTERM and SIGINT stop the daemon (a second one at once), SIGHUP\n"
    "reloads the operators and the settings file, of which it applies the level and format of the log,\n"
    "SIGUSR1 logs the state.";

constexpr auto texts = std::to_array<CommandText>({
    {Command::master, "master", "Publish each window of the rings before it opens",
     "  stacksaga-coordinator master -d 'service=shop user=coordinator'\n"
     "  stacksaga-coordinator master -d shop -d billing --http 0.0.0.0:9187\n"
     "  stacksaga-coordinator master -d shop --region eu,us --dry-run\n"
     "  stacksaga-coordinator master -c coordinator.toml --print-config\n"},
    {Command::agent, "agent",
     "Assign the slots that a master gives this node to its own workers, in one ring",
     "  stacksaga-coordinator agent --name north -d 'service=shop user=coordinator'\n"},
    {Command::status, "status",
     "Print rings, nodes and problems; exit 1 for warnings, 2 for errors",
     "  stacksaga-coordinator status -d shop --watch\n"
     "  stacksaga-coordinator status -d shop -o json | jq .sagas\n"
     "  stacksaga-coordinator status -d shop >/dev/null || echo 'needs attention'\n"},
    {Command::ring, "ring", "Print the owner and the next owner of each range of the ring",
     "  stacksaga-coordinator ring -d shop --region eu\n"
     "  stacksaga-coordinator ring -d shop -o json | jq '.ranges[].node'\n"},
    {Command::locate, "locate", "Print the token of a key and the node that owns it",
     "  stacksaga-coordinator locate order-42 -d shop\n"},
    {Command::doctor, "doctor",
     "Print the problems of the database and the SQL that fixes them; exit 1 for warnings, 2 for errors",
     "  stacksaga-coordinator doctor -d shop\n"
     "  stacksaga-coordinator doctor -d shop -o json | jq -r '.[].fix'\n"},
    {Command::sagas, "sagas", "List sagas, the newest first",
     "  stacksaga-coordinator sagas -d shop --status parked\n"
     "  stacksaga-coordinator sagas -d shop --key order- --json | jq '.sagas[].saga_id'\n"},
    {Command::saga, "saga", "Print one saga and its timeline; exit 1 when it does not exist",
     "  stacksaga-coordinator saga order-4711 -d shop\n"},
    {Command::queues, "queues", "Print queues: waiting and running steps, limits",
     "  stacksaga-coordinator queues -d shop --watch\n"},
    {Command::schedules, "schedules", "Print schedules and when they run next",
     "  stacksaga-coordinator schedules -d shop\n"},
    {Command::definitions, "definitions", "Print the current version of each definition",
     "  stacksaga-coordinator definitions -d shop\n"},
    {Command::dead_messages, "dead-messages", "Print dead messages: those that failed permanently",
     "  stacksaga-coordinator dead-messages -d shop\n"},
    {Command::act, "retry", "Retry parked sagas",
     "  stacksaga-coordinator retry order-4711 -d shop --reason 'the bank is back'\n"
     "  stacksaga-coordinator retry -d shop --name transfer --status parked --max 500 --reason 'fixed' --spread '5 minutes' --yes\n"},
    {Command::act, "compensate",
     "Compensate sagas that are parked before their compensation, or suspended",
     "  stacksaga-coordinator compensate order-4711 -d shop --reason 'the bank refuses it' --yes\n"
     "  stacksaga-coordinator compensate -d shop --name transfer --status parked --reason 'withdrawn' --spread '5 minutes' --yes\n"},
    {Command::act, "cancel", "Cancel sagas: their completed steps are compensated",
     "  stacksaga-coordinator cancel order-4711 -d shop --reason 'the customer asked' --yes\n"},
    {Command::act, "suspend", "Suspend sagas until they are resumed",
     "  stacksaga-coordinator suspend order-4711 -d shop --reason 'looking into it' --yes\n"},
    {Command::act, "resume", "Resume suspended sagas",
     "  stacksaga-coordinator resume order-4711 -d shop --reason 'looked into it' --yes\n"},
    {Command::act, "resolve", "Record whether a step was done, where its attempts could not tell",
     "  stacksaga-coordinator resolve order-4711 -d shop --step charge --outcome done --reason 'seen at the bank' --yes\n"},
    {Command::act, "redrive", "Deliver dead messages again",
     "  stacksaga-coordinator redrive -d shop --subscription billing --reason 'fixed in 1.2' --spread '10 minutes' --yes\n"},
    {Command::act, "discard", "Discard dead messages permanently, and unblock their keys",
     "  stacksaga-coordinator discard 0190c1a8-0000-7000-8000-000000000001 -d shop --subscription billing --reason 'a test order'\n"},
    {Command::act, "pause-queue", "Stop claims of new steps of a queue",
     "  stacksaga-coordinator pause-queue payments -d shop --reason 'the bank is down' --until '2026-12-24 08:00+01' --yes\n"},
    {Command::act, "resume-queue", "Allow claims of steps of a queue again",
     "  stacksaga-coordinator resume-queue payments -d shop --reason 'it is back' --yes\n"},
    {Command::act, "pause-definition", "Stop new attempts of the steps of a saga, of all versions",
     "  stacksaga-coordinator pause-definition transfer -d shop --reason 'a bug in 1.2' --until '2026-12-24 08:00+01' --yes\n"},
    {Command::act, "resume-definition", "Allow attempts of the steps of a saga again",
     "  stacksaga-coordinator resume-definition transfer -d shop --reason 'fixed in 1.3' --yes\n"},
    {Command::act, "pause-schedule", "Stop a schedule from starting sagas",
     "  stacksaga-coordinator pause-schedule nightly -d shop --reason 'stocktaking' --yes\n"},
    {Command::act, "resume-schedule", "Resume a schedule",
     "  stacksaga-coordinator resume-schedule nightly -d shop --reason 'done' --yes\n"},
    {Command::act, "pause-subscription", "Stop the delivery of a subscription",
     "  stacksaga-coordinator pause-subscription billing -d shop --reason 'the bank is down' --until '2026-12-24 08:00+01' --yes\n"},
    {Command::act, "resume-subscription", "Deliver the messages of a subscription again",
     "  stacksaga-coordinator resume-subscription billing -d shop --reason 'it is back' --yes\n"},
    {Command::act, "forget", "Erase the answer of a completed idempotency key",
     "  stacksaga-coordinator forget 'POST /charges' 8e03978e -d shop --reason 'erasure of customer 7' --yes\n"},
    {Command::act, "reset-instants",
     "List due times and leases that a clock which was ahead left behind; --yes makes them now",
     "  stacksaga-coordinator reset-instants -d shop --reason 'the clock was ahead' --yes\n"},
    {Command::act, "forget-work",
     "In a copy of a live database: lose all leases, suspend all sagas, pause everything",
     "  stacksaga-coordinator forget-work shop_copy -d shop_copy --reason 'a copy for tests' --yes\n"},
    {Command::hash_password, "hash-password",
     "Read a password, and print a line for --operators-file",
     "  stacksaga-coordinator hash-password alice >> operators\n"},
    {Command::completion, "completion", "Print a completion script for a shell",
     "  stacksaga-coordinator completion bash > /etc/bash_completion.d/stacksaga-coordinator\n"},
    {Command::check_config, "check-config",
     "Read the settings of master and connect; print each setting with its source, or the error",
     "  stacksaga-coordinator cancel order-4711 -d shop --reason 'the customer asked' --yes\n"
     "  stacksaga-coordinator suspend order-4711 -d shop --reason 'looking into it' --yes\n"
     "  stacksaga-coordinator resume order-4711 -d shop --reason 'looked into it' --yes\n"
     "  stacksaga-coordinator master -d 'service=shop user=coordinator'\n"
     "  stacksaga-coordinator master -d shop -d billing --http 0.0.0.0:9187\n"
     "  stacksaga-coordinator master -d shop --region eu,us --dry-run\n"
     "  stacksaga-coordinator master -c coordinator.toml --print-config\n"
     "  stacksaga-coordinator agent --name north -d 'service=shop user=coordinator'\n"
     "  stacksaga-coordinator status -d shop --watch\n"
     "  stacksaga-coordinator status -d shop -o json | jq .sagas\n"
     "  stacksaga-coordinator status -d shop >/dev/null || echo 'needs attention'\n"
     "  stacksaga-coordinator ring -d shop --region eu\n"
     "  stacksaga-coordinator ring -d shop -o json | jq '.ranges[].node'\n"
     "  stacksaga-coordinator locate order-42 -d shop\n"
     "  stacksaga-coordinator doctor -d shop\n"
     "  stacksaga-coordinator doctor -d shop -o json | jq -r '.[].fix'\n"
     "  stacksaga-coordinator sagas -d shop --status parked\n"
     "  stacksaga-coordinator sagas -d shop --key order- --json | jq '.sagas[].saga_id'\n"
     "  stacksaga-coordinator saga order-4711 -d shop\n"
     "  stacksaga-coordinator queues -d shop --watch\n"
     "  stacksaga-coordinator schedules -d shop\n"
     "  stacksaga-coordinator definitions -d shop\n"
     "  stacksaga-coordinator dead-messages -d shop\n"
     "  stacksaga-coordinator hash-password alice >> operators\n"
     "  stacksaga-coordinator completion bash > /etc/bash_completion.d/stacksaga-coordinator\n"
     "  stacksaga-coordinator check-config -c coordinator.toml\n"},
});

} // namespace

std::span<const CommandText> command_texts() {
    return texts;
}

const char *help_footer() {
    return footer;
}

} // namespace stacksaga::coordinator
