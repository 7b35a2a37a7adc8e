// create_ring and alter_ring: a ring's settings, checked and kept where they differ from the
// defaults, so that pg_dump keeps those of the default ring too.
#include "src/ring/ring_options.hpp"

#include "core/ring/ring_settings.hpp"
#include "core/ring/slots.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"

namespace stacksaga {

namespace {

enum class SettingColumn : uint8_t { setting, value };
constinit pg::Select<SettingColumn> list_settings{
    "SELECT setting, value FROM stacksaga.ring_setting WHERE ring_id = $1"};
constinit pg::Statement find_ring_id{
    "SELECT ring_id FROM stacksaga.ring WHERE region = $1 AND cluster = $2"};
constinit pg::Statement make_ring{"INSERT INTO stacksaga.ring"
                                  " VALUES (nextval('stacksaga.ring_id_seq'), $1, $2, $3, $4)"
                                  " ON CONFLICT DO NOTHING RETURNING ring_id"};
constinit pg::Statement lock_ring{"SELECT FROM stacksaga.ring WHERE ring_id = $1 FOR UPDATE"};
constinit pg::Statement keep_setting{
    "INSERT INTO stacksaga.ring_setting AS s VALUES ($1, $2, $3)"
    " ON CONFLICT (ring_id, setting) DO UPDATE SET value = EXCLUDED.value"
    " WHERE s.value <> EXCLUDED.value"};
constinit pg::Statement forget_setting{
    "DELETE FROM stacksaga.ring_setting WHERE ring_id = $1 AND setting = $2"};

std::string_view stored_interval(int64 microseconds) {
    return psprintf("%lld", static_cast<long long>(microseconds));
}

/// The names, for a hint: "a or b".
template <size_t N> const char *list_names(const std::array<std::string_view, N> &names) {
    StringInfoData list;
    initStringInfo(&list);
    for (size_t i = 0; i < N; ++i)
        appendStringInfo(&list, "%s%.*s",
                         i == 0       ? ""
                         : i + 1 == N ? " or "
                                      : ", ",
                         static_cast<int>(names[i].size()), names[i].data());
    return list.data;
}

template <class E, size_t N>
E choice_argument(const std::array<std::string_view, N> &names, std::string_view value,
                  std::string_view setting) {
    // The names of settings are literals, so they end with a zero byte.
    std::optional<uint8_t> index = core::find_name(names, value);
    if (!index)
        ereport(ERROR, (errcode(pg::sg400),
                        errmsg("setting \"%s\" of a ring has no such value", setting.data()),
                        errdetail("The value is \"%s\".", clip(value)),
                        errhint("Use %s.", list_names(names))));
    return static_cast<E>(*index);
}

/// An interval from text; SG400 instead of the server's own error.
Datum parse_interval(std::string_view text, const char *setting) {
    const char *input = pnstrdup(text.data(), text.size());
    MemoryContext memory = CurrentMemoryContext;
    Datum result = 0;
    PG_TRY();
    {
        result = DirectFunctionCall3(interval_in, CStringGetDatum(input),
                                     ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        ErrorData *error = CopyErrorData();
        if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
            PG_RE_THROW();
        FlushErrorState();
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("setting \"%s\" of a ring has no such value", setting),
                 errdetail("The value is not an interval: %s.", error->message),
                 errhint("Use an interval such as '30 seconds'.")));
    }
    PG_END_TRY();
    return result;
}

/// The number of virtual nodes; SG400 where the text is none.
int32 virtual_nodes_argument(std::string_view text) {
    const std::optional<int32> value = core::virtual_nodes_of(text);
    if (!value)
        ereport(ERROR, (errcode(pg::sg400),
                        errmsg("setting \"virtual_nodes\" of a ring has no such value"),
                        errdetail("The value is \"%s\".", clip(text)),
                        errhint("Use a number from 1 to %d.", core::virtual_nodes_max)));
    return *value;
}

/// SG400 when an interval is out of its limits or the intervals of heartbeats are out of order.
void check_settings(const core::RingSettings &settings) {
    if (const core::IntervalSetting *setting = core::find_out_of_range(settings))
        ereport(ERROR, (errcode(pg::sg400),
                        errmsg("setting \"%s\" of a ring is out of range", setting->name.data()),
                        errdetail("The value is %s.", interval_text(settings.*setting->value)),
                        errhint("Use an interval between %s and %s.", interval_text(setting->least),
                                interval_text(core::ring_interval_max_us))));
    if (!core::is_ordered(settings))
        ereport(
            ERROR,
            (errcode(pg::sg400),
             errmsg("heartbeat_interval, suspect_after and dead_after must increase in that order"),
             errdetail("heartbeat_interval is %s, suspect_after %s, dead_after %s.",
                       interval_text(settings.heartbeat_interval),
                       interval_text(settings.suspect_after), interval_text(settings.dead_after)),
             errhint("Each must be at least as long as the one before; lengthen dead_after "
                     "first, shorten heartbeat_interval first.")));
}

/// A setting of a ring that alter_ring may be asked to change, set from text; SG400 else.
void set_from_text(core::RingSettings &settings, std::string_view name, std::string_view value) {
    if (const core::IntervalSetting *setting = core::find_interval_setting(name)) {
        Datum interval = parse_interval(value, setting->name.data());
        settings.*setting->value = pg::interval_microseconds(interval, setting->name.data(), false);
    } else if (name == core::strategy_setting) {
        settings.strategy =
            choice_argument<core::Strategy>(core::strategy_names, value, core::strategy_setting);
    } else if (name == core::virtual_nodes_setting) {
        settings.virtual_nodes = virtual_nodes_argument(value);
    } else if (name == core::missing_window_setting) {
        settings.on_missing_window = choice_argument<core::MissingWindow>(
            core::missing_window_names, value, core::missing_window_setting);
    } else {
        ereport(
            ERROR,
            (errcode(pg::sg400), errmsg("ring has no setting \"%s\" to alter", clip(name)),
             name == "slots" ? errdetail("The number of slots of a ring can never change.")
                             : errdetail("No setting has this name."),
             errhint("Use window_length, publish_lead, strategy, virtual_nodes, on_missing_window, "
                     "heartbeat_interval, suspect_after, dead_after, rebalance_delay "
                     "or checkpoint_interval.")));
    }
}

void save_setting(int32 ring_id, std::string_view name, std::string_view value, bool is_default) {
    if (is_default)
        forget_setting.run(pg::param(ring_id), pg::param(name));
    else
        keep_setting.run(pg::param(ring_id), pg::param(name), pg::param(value));
}

void save_settings(int32 ring_id, const core::RingSettings &settings) {
    constexpr core::RingSettings defaults{};
    for (const core::IntervalSetting &setting : core::interval_settings) {
        int64 value = settings.*setting.value;
        save_setting(ring_id, setting.name, stored_interval(value),
                     value == defaults.*setting.value);
    }
    save_setting(ring_id, core::strategy_setting,
                 core::strategy_names[static_cast<size_t>(settings.strategy)],
                 settings.strategy == defaults.strategy);
    save_setting(ring_id, core::virtual_nodes_setting, psprintf("%d", settings.virtual_nodes),
                 settings.virtual_nodes == defaults.virtual_nodes);
    save_setting(ring_id, core::missing_window_setting,
                 core::missing_window_names[static_cast<size_t>(settings.on_missing_window)],
                 settings.on_missing_window == defaults.on_missing_window);
}

/// The settings given to create_ring(); the others are not compared.
bool is_same(const core::RingSettings &is, const core::RingSettings &wanted) {
    return is.window_length == wanted.window_length && is.publish_lead == wanted.publish_lead &&
           is.strategy == wanted.strategy && is.on_missing_window == wanted.on_missing_window;
}

void record(std::string_view action, std::string_view region, std::string_view cluster,
            std::optional<std::string_view> detail = std::nullopt) {
    record_action({.action = action,
                   .object = psprintf("ring (%s, %s)", clip(region), clip(cluster)),
                   .detail = detail});
}

int32 create_ring(std::string_view region, std::string_view cluster,
                  const core::RingSettings &settings, int32 slots) {
    if (find_ring_id.run(pg::param(region), pg::param(cluster)).empty()) {
        pg::Rows made = make_ring.run(pg::param(region), pg::param(cluster), pg::param(slots),
                                      pg::param_time(pg::clock_now()));
        if (!made.empty()) {
            const Ring ring{.ring_id = made.int4(0), .slots = slots};
            save_settings(ring.ring_id, settings);
            ensure_slots(ring);
            record("create", region, cluster);
            return ring.ring_id;
        }
    }
    Ring ring = find_ring(region, cluster); // also one that another session has made just now
    const core::RingSettings is = read_settings(ring);
    if (is_same(is, settings) && ring.slots == slots)
        return ring.ring_id;
    ereport(
        ERROR,
        (errcode(pg::sg409), errmsg("ring exists with other settings"),
         errdetail("Ring (\"%s\", \"%s\") has window_length %s, publish_lead %s, strategy %s, "
                   "%d slots, on_missing_window %s.",
                   clip(region), clip(cluster), interval_text(is.window_length),
                   interval_text(is.publish_lead),
                   core::strategy_names[static_cast<size_t>(is.strategy)].data(), ring.slots,
                   core::missing_window_names[static_cast<size_t>(is.on_missing_window)].data()),
         errhint("Change its settings with stacksaga.alter_ring(); the number of slots can "
                 "never change.")));
}

void alter_ring(std::string_view region, std::string_view cluster, std::string_view name,
                std::string_view value) {
    const Ring ring = find_ring(region, cluster);
    lock_ring.run(pg::param(ring.ring_id)); // one change at a time: they are checked together
    core::RingSettings settings = read_settings(ring);
    set_from_text(settings, name, value);
    check_settings(settings);
    save_settings(ring.ring_id, settings);
    record("alter", region, cluster, psprintf("%s = %s", clip(name), clip(value)));
}

/// Sets what a row of ring_setting says. A name that this version does not know is skipped: a newer
/// one may have written it.
void load_setting(core::RingSettings &settings, std::string_view name, std::string_view value) {
    if (const core::IntervalSetting *setting = core::find_interval_setting(name))
        settings.*setting->value = DatumGetInt64(
            DirectFunctionCall1(int8in, CStringGetDatum(pnstrdup(value.data(), value.size()))));
    else if (name == core::strategy_setting)
        settings.strategy = choice_argument<core::Strategy>(core::strategy_names, value, name);
    else if (name == core::virtual_nodes_setting)
        settings.virtual_nodes = virtual_nodes_argument(value);
    else if (name == core::missing_window_setting)
        settings.on_missing_window =
            choice_argument<core::MissingWindow>(core::missing_window_names, value, name);
}

} // namespace

core::RingSettings read_settings(const Ring &ring) {
    core::RingSettings settings{};
    const auto rows = list_settings.run(pg::param(ring.ring_id));
    for (uint64 i = 0; i < rows.count(); ++i)
        load_setting(settings, rows.text(i, SettingColumn::setting),
                     rows.text(i, SettingColumn::value));
    return settings;
}

// create_ring(region, cluster, window_length, publish_lead, strategy, slots, on_missing_window)
STACKSAGA_FUNCTION(create_ring) {
    pg::Arguments arguments(fcinfo);
    std::string_view region = arguments.required_text(0, "region");
    std::string_view cluster = arguments.required_text(1, "cluster");
    check_ring_name(region, cluster);
    core::RingSettings settings{};
    arguments.require(2, "window_length");
    settings.window_length = pg::interval_microseconds(arguments.datum(2), "window_length", true);
    arguments.require(3, "publish_lead");
    settings.publish_lead = pg::interval_microseconds(arguments.datum(3), "publish_lead", false);
    settings.strategy = choice_argument<core::Strategy>(
        core::strategy_names, arguments.required_text(4, "strategy"), "strategy");
    int32 slots = arguments.required_int4(5, "slots");
    if (!core::is_ring_slot_count(slots))
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"slots\" is out of range"),
                        errdetail("A ring cannot have %d slots.", slots),
                        errhint("Use a power of two between %d and %d.", core::ring_slots_min,
                                core::ring_slots_max)));
    settings.on_missing_window = choice_argument<core::MissingWindow>(
        core::missing_window_names, arguments.required_text(6, "on_missing_window"),
        core::missing_window_setting);
    check_settings(settings);
    PG_RETURN_INT32(pg::with_spi([&] { return create_ring(region, cluster, settings, slots); }));
}

// alter_ring(region, cluster, setting, value) -> void
STACKSAGA_FUNCTION(alter_ring) {
    pg::Arguments arguments(fcinfo);
    std::string_view region = arguments.required_text(0, "region");
    std::string_view cluster = arguments.required_text(1, "cluster");
    check_ring_name(region, cluster);
    std::string_view name = arguments.required_text(2, "setting");
    std::string_view value = arguments.required_text(3, "value");
    pg::with_spi([&] { alter_ring(region, cluster, name, value); });
    PG_RETURN_VOID();
}

// ring_setting_defaults() -> (setting, value), intervals in microseconds
STACKSAGA_FUNCTION(ring_setting_defaults) {
    constexpr core::RingSettings defaults{};
    pg::ResultSet result(fcinfo);
    auto add = [&](std::string_view name, std::string_view value, bool is_interval) {
        result.add(pg::of(PointerGetDatum(pg::make_text(name))),
                   pg::of(PointerGetDatum(pg::make_text(value))),
                   pg::of(BoolGetDatum(is_interval)));
    };
    for (const core::IntervalSetting &setting : core::interval_settings)
        add(setting.name, stored_interval(defaults.*setting.value), true);
    add(core::strategy_setting, core::strategy_names[static_cast<size_t>(defaults.strategy)],
        false);
    add(core::virtual_nodes_setting, psprintf("%d", defaults.virtual_nodes), false);
    add(core::missing_window_setting,
        core::missing_window_names[static_cast<size_t>(defaults.on_missing_window)], false);
    return pg::ResultSet::finish();
}

} // namespace stacksaga
