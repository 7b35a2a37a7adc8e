// create_schedule, drop_schedule, pause_schedule, resume_schedule. Each action is recorded with the
// role that took it, the instant and the reason.
#include "src/schedule/schedule.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/handler/definer.hpp"
#include "src/ring/rings.hpp"
#include "src/ring/token_functions.hpp"
#include "src/schedule/recurrence.hpp"

namespace stacksaga {

namespace {

constexpr int schedule_bytes_max = 63;
constexpr int cron_bytes_max = 255;

#define OF_SCHEDULE " WHERE schedule = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
constinit pg::Statement insert_schedule{
    "INSERT INTO stacksaga.schedule (schedule, token, ring_id, saga, cron, timezone, input,"
    "       catch_up, overlap, definer, definer_oid, created_at, next_run, due_at)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10::name, $11, $12, $13,"
    "         $13)"
    " ON CONFLICT (schedule, token) DO NOTHING"};
// One line for what differs; NULL where nothing does.
enum class ComparedColumn : uint8_t { difference, definer, definer_oid };
constinit pg::Select<ComparedColumn> compare_settings{
    "SELECT (SELECT pg_catalog.string_agg(pg_catalog.format('\"%s\" is %s, not %s', key, a.value,"
    "                 b.value), '; ' ORDER BY key)"
    "          FROM pg_catalog.jsonb_each(pg_catalog.jsonb_build_object('saga', s.saga, 'cron',"
    "               s.cron, 'timezone', s.timezone, 'input', s.input, 'catch_up', s.catch_up,"
    "               'overlap', s.overlap, 'region', r.region, 'cluster', r.cluster)) AS a"
    "          JOIN pg_catalog.jsonb_each(pg_catalog.jsonb_build_object('saga', $3::text, 'cron',"
    "               $4::text, 'timezone', $5::text, 'input', $6::jsonb, 'catch_up', $7::text,"
    "               'overlap', $8::text, 'region', $9::text, 'cluster', $10::text)) AS b"
    "         USING (key) WHERE a.value IS DISTINCT FROM b.value) AS difference,"
    "       s.definer::text, s.definer_oid"
    "  FROM stacksaga.schedule s JOIN stacksaga.ring r USING (ring_id)"
    " WHERE s.schedule = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};
enum class LockedColumn : uint8_t { cron, timezone, paused };
using LockedSchedule = pg::RowsOf<LockedColumn>;
constinit pg::Select<LockedColumn> lock_schedule{
    "SELECT cron, timezone, paused FROM stacksaga.schedule" OF_SCHEDULE " FOR NO KEY UPDATE"};
constinit pg::Statement pause_schedule{
    "UPDATE stacksaga.schedule SET paused = true, due_at = 'infinity'" OF_SCHEDULE};
constinit pg::Statement resume_schedule{
    "UPDATE stacksaga.schedule SET paused = false, next_run = $3, due_at = $3, failures = 0,"
    "       failed_since = NULL, last_error = NULL" OF_SCHEDULE};
constinit pg::Statement delete_schedule{"DELETE FROM stacksaga.schedule" OF_SCHEDULE};
// Under the schedule's lock, so numbers are given one at a time.
constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.schedule_action (schedule, token, action_no, action, role, acted_at,"
    "       reason, on_behalf_of, handler)"
    " SELECT $1, $2::stacksaga.ring_token, coalesce(max(action_no), 0) + 1, $3, $4::name, $5, $6,"
    "        $7, $8"
    "   FROM stacksaga.schedule_action" OF_SCHEDULE};

struct NewSchedule {
    std::string_view name;
    std::string_view saga;
    std::string_view cron;
    Datum input;
    std::string_view zone;
    std::string_view catch_up;
    std::string_view overlap;
    Caller caller; // while this is carried out the current role is another one
};

pg::Param token_of(std::string_view schedule) {
    return pg::param(token_of_text(schedule).value());
}

void record(std::string_view schedule, std::string_view action, TimestampTz now,
            std::optional<std::string_view> reason = std::nullopt) {
    insert_action.run(pg::param(schedule), token_of(schedule), pg::param(action),
                      pg::param(acting_role()), pg::param_time(now), pg::param(reason),
                      on_behalf_of(), handler_that_acts());
}

void check_input(Datum input) {
    constexpr std::string_view added = "scheduled_at";
    constexpr char example[] = R"({"scheduled_at": "2026-03-29T01:00:00Z"})";
    Jsonb *jsonb = DatumGetJsonbP(input);
    if (!JB_ROOT_IS_OBJECT(jsonb))
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"input\" must be a JSON object"),
                 errdetail("The value is %s.", JB_ROOT_IS_SCALAR(jsonb) ? "a scalar" : "an array"),
                 errhint("Each run's input gets a member \"scheduled_at\". Pass '{}' for none.")));
    JsonbValue value;
    if (getKeyJsonValueFromContainer(&jsonb->root, added.data(), added.size(), &value) != nullptr)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"input\" has a member \"scheduled_at\""),
                 errdetail("Each run's input gets the instant of the run under this name."),
                 errhint("Use another name.")));
    const Datum member = DirectFunctionCall1(jsonb_in, CStringGetDatum(example));
    check_payload(DirectFunctionCall2(jsonb_concat, input, member), "input"); // of a run
}

template <class Names> void check_word(std::string_view word, const char *argument, Names &names) {
    if (std::ranges::find(names, word) != names.end())
        return;
    StringInfoData allowed;
    initStringInfo(&allowed);
    for (size_t i = 0; i < names.size(); ++i)
        appendStringInfo(&allowed, "%s%s",
                         i == 0                 ? ""
                         : i + 1 < names.size() ? ", "
                                                : " or ",
                         names[i].data());
    ereport(ERROR,
            (errcode(pg::sg400), errmsg("argument \"%s\" is not valid", argument),
             errdetail("The value is \"%s\".", clip(word)), errhint("Use %s.", allowed.data)));
}

/// Whether there is a schedule of this name with these settings; SG409 when its settings differ.
bool is_repeated(const NewSchedule &s) {
    const auto known = compare_settings.run(
        pg::param(s.name), token_of(s.name), pg::param(s.saga), pg::param(s.cron),
        pg::param(s.zone), pg::param_datum(JSONBOID, s.input), pg::param(s.catch_up),
        pg::param(s.overlap), pg::param(std::string_view{pg::settings.region}),
        pg::param(std::string_view{pg::settings.cluster}));
    if (known.empty())
        return false;
    const Definer definer = read_definer(known, 0);
    const char *difference = nullptr;
    if (!known.is_null(0, ComparedColumn::difference))
        difference = copy_text(known.text(0, ComparedColumn::difference));
    else if (const char *objection = objection_to(definer))
        difference = psprintf("\"role\" is \"%s\": %s", definer.name, objection);
    else if (!(definer == s.caller.role))
        difference = psprintf("\"role\" is \"%s\", not \"%s\"", definer.name, s.caller.role.name);
    if (difference != nullptr)
        ereport(ERROR, (errcode(pg::sg409),
                        errmsg("schedule \"%s\" exists with other settings", clip(s.name)),
                        errdetail("Its setting %s.", difference),
                        errhint("Repeat it with the settings it has, or drop it first by "
                                "stacksaga.drop_schedule().")));
    return true;
}

void create(NewSchedule &s) {
    find_definition(s.saga, std::nullopt); // there is one, or SG404
    s.zone = listed_zone(s.zone);
    const TimestampTz now = pg::clock_now();
    const TimestampTz next_run = read_recurrence(s.cron, s.zone).next(now);
    const Ring ring = current_ring();
    for (bool is_made = false; !is_made;) { // another session may create it or drop it meanwhile
        CHECK_FOR_INTERRUPTS();
        if (is_repeated(s))
            return;
        is_made = insert_schedule.touch(
                      pg::param(s.name), token_of(s.name), pg::param(ring.ring_id),
                      pg::param(s.saga), pg::param(s.cron), pg::param(s.zone),
                      pg::param_datum(JSONBOID, s.input), pg::param(s.catch_up),
                      pg::param(s.overlap), pg::param(std::string_view{s.caller.role.name}),
                      pg::param_datum(OIDOID, ObjectIdGetDatum(s.caller.role.oid)),
                      pg::param_time(now), pg::param_time(next_run)) > 0;
    }
    record(s.name, "create", now);
    announce_schedules();
}

/// The rows of a schedule that was locked; SG404 when there is none.
LockedSchedule lock(std::string_view name) {
    const LockedSchedule rows = lock_schedule.run(pg::param(name), token_of(name));
    if (rows.empty())
        ereport(ERROR, (errcode(pg::sg404), errmsg("schedule \"%s\" does not exist", clip(name)),
                        errdetail("No schedule in this database has this name."),
                        errhint("The view stacksaga.schedules lists them.")));
    return rows;
}

void require_paused(std::string_view name, const LockedSchedule &rows, bool is_wanted) {
    if (rows.boolean(0, LockedColumn::paused) == is_wanted)
        return;
    ereport(ERROR, (errcode(pg::sg409),
                    errmsg(is_wanted ? "schedule \"%s\" is not paused"
                                     : "schedule \"%s\" is paused already",
                           clip(name)),
                    errdetail(is_wanted ? "It goes on as before." : "It stays paused."),
                    errhint("The view stacksaga.schedules shows which schedules are paused.")));
}

} // namespace

// create_schedule(schedule, saga, cron, input, timezone, catch_up, overlap) -> void
STACKSAGA_FUNCTION(create_schedule) {
    pg::Arguments arguments(fcinfo);
    NewSchedule s{};
    s.name = arguments.required_text(0, "schedule");
    check_name(s.name, "schedule", schedule_bytes_max);
    s.saga = arguments.required_text(1, "saga");
    check_name(s.saga, "saga");
    s.cron = arguments.required_text(2, "cron");
    check_length(s.cron, "cron", cron_bytes_max);
    arguments.require(3, "input");
    s.input = arguments.datum(3);
    check_input(s.input);
    s.zone = arguments.required_text(4, "timezone");
    s.catch_up = arguments.required_text(5, "catch_up");
    check_word(s.catch_up, "catch_up", catch_up_names);
    s.overlap = arguments.required_text(6, "overlap");
    check_word(s.overlap, "overlap", overlap_names);
    s.caller = current_caller();
    pg::as_owner([&] { pg::with_spi([&] { create(s); }); });
    PG_RETURN_VOID();
}

// drop_schedule(schedule) -> void
STACKSAGA_FUNCTION(drop_schedule) {
    const std::string_view name = pg::Arguments(fcinfo).required_text(0, "schedule");
    pg::with_spi([&] {
        lock(name);
        delete_schedule.run(pg::param(name), token_of(name));
        record(name, "drop", pg::clock_now());
    });
    PG_RETURN_VOID();
}

// pause_schedule(schedule, reason) -> void
STACKSAGA_FUNCTION(pause_schedule) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "schedule");
    const std::string_view reason = required_reason(arguments, 1);
    pg::with_spi([&] {
        require_paused(name, lock(name), false);
        pause_schedule.run(pg::param(name), token_of(name));
        record(name, "pause", pg::clock_now(), reason);
    });
    PG_RETURN_VOID();
}

// resume_schedule(schedule, reason) -> void
STACKSAGA_FUNCTION(resume_schedule) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "schedule");
    const std::string_view reason = required_reason(arguments, 1);
    pg::with_spi([&] {
        const LockedSchedule rows = lock(name);
        require_paused(name, rows, true);
        const TimestampTz now = pg::clock_now();
        const TimestampTz next_run =
            read_recurrence(rows.text(0, LockedColumn::cron), rows.text(0, LockedColumn::timezone))
                .next(now);
        resume_schedule.run(pg::param(name), token_of(name), pg::param_time(next_run));
        record(name, "resume", now, reason);
        announce_schedules();
    });
    PG_RETURN_VOID();
}

} // namespace stacksaga
