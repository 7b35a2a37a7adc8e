#include "src/handler/session/handler_settings.hpp"

#include "pg/compat.hpp"
#include "pg/statement/scope.hpp"
#include "src/handler/session/server_settings.hpp"

namespace stacksaga {

namespace {

// ----------------------------------------------------------------------------- which settings

constexpr std::string_view own_prefix = "stacksaga.";

/// They stay the caller's, besides those with the prefix: what a call may cost, the definition's
/// path, and what is of the transaction, of the connection (messages are sent in its encoding) or
/// of the process.
constexpr std::array kept_settings = std::to_array<std::string_view>(
    {"lock_timeout", "statement_timeout", "work_mem", "search_path", "transaction_timeout",
     "client_encoding", "max_stack_depth", "temp_buffers"});

/// The name of the connection: as after RESET, also where the client chose it.
constexpr std::string_view connection_name = "application_name";

constexpr std::string_view quoting = "quote_all_identifiers";

/// A value may leave one of its two parts as it is.
constexpr const char *setting_of_parts = "DateStyle";

bool is_of_parts(const char *name) {
    return pg_strcasecmp(name, setting_of_parts) == 0;
}

bool is_kept(std::string_view name) {
    return name.starts_with(own_prefix) ||
           std::ranges::find(kept_settings, name) != kept_settings.end();
}

bool can_be_set(const config_generic &s) {
    return (s.context == PGC_USERSET || s.context == PGC_SUSET) &&
           (s.flags & GUC_NO_RESET_ALL) == 0;
}

bool is_of_client_or_role(GucSource source) {
    return source >= PGC_S_GLOBAL && source <= PGC_S_CLIENT;
}

const char *text_of(bool value) {
    return value ? "on" : "off";
}

/// The setting's value after RESET, or, `is_boot`, where nothing sets it. As text that sets it.
const char *default_text(config_generic &s, bool is_boot) {
    switch (s.vartype) {
    case PGC_BOOL: {
        const auto &v = reinterpret_cast<const config_bool &>(s);
        return text_of(is_boot ? v.boot_val : v.reset_val);
    }
    case PGC_INT: {
        const auto &v = reinterpret_cast<const config_int &>(s);
        return psprintf("%d", is_boot ? v.boot_val : v.reset_val);
    }
    case PGC_REAL: {
        const auto &v = reinterpret_cast<const config_real &>(s);
        return psprintf("%.17g", is_boot ? v.boot_val : v.reset_val);
    }
    case PGC_STRING: {
        const auto &v = reinterpret_cast<const config_string &>(s);
        const char *text = is_boot ? v.boot_val : v.reset_val;
        return text != nullptr ? text : "";
    }
    case PGC_ENUM: {
        auto &v = reinterpret_cast<config_enum &>(s);
        return config_enum_lookup_by_value(&v, is_boot ? v.boot_val : v.reset_val);
    }
    }
    pg_unreachable();
}

bool is_in_force(const pg::Setting &s) {
    if (is_of_parts(s.name))
        return false;
    const char *value = GetConfigOption(s.name, true, false);
    return value != nullptr && strcmp(value, s.value) == 0;
}

/// Whether the value is valid; PostgreSQL passes over one of a role that is not.
bool is_accepted(const pg::Setting &s) {
    return set_config_option(s.name, s.value, PGC_SUSET, PGC_S_DATABASE_USER, GUC_ACTION_SAVE,
                             false, DEBUG2, false) != 0;
}

// ----------------------------------------------------------------------------- one call

struct Settings {
    pg::Setting *first = nullptr;
    size_t count = 0;

    void add(const pg::Setting &s) {
        if (first == nullptr)
            first = static_cast<pg::Setting *>(palloc(sizeof(pg::Setting)));
        else if (std::has_single_bit(count))
            first = static_cast<pg::Setting *>(repalloc(first, 2 * count * sizeof(pg::Setting)));
        first[count++] = s;
    }
    std::span<const pg::Setting> all() const { return {first, count}; }
    bool has(const char *name) const {
        return std::ranges::any_of(
            all(), [&](const pg::Setting &s) { return pg_strcasecmp(s.name, name) == 0; });
    }
};
static_assert(std::is_trivially_destructible_v<Settings>);

/// The value in a new session without settings of its role or database.
void add_of_new_session(Settings &to, config_generic &s) {
    const char *name = pstrdup(s.name);
    if (!is_of_client_or_role(s.reset_source) || s.name == connection_name) {
        to.add({name, default_text(s, false)});
        return;
    }
    const char *value = server_setting(name);
    if (value == nullptr || is_of_parts(name))
        to.add({name, default_text(s, true)});
    if (value != nullptr)
        to.add({name, value});
}

struct RoleSettings {
    Oid role;
    Settings settings; ///< to be set
    RoleSettings *next;
};

/// The state while run_pending() runs.
struct CallSettings {
    MemoryContext memory = nullptr;
    Settings of_session{}; ///< what a new session has, for each setting of client, role or caller
    RoleSettings *roles = nullptr;
};
constinit CallSettings call{};

/// ALTER ROLE SET and ALTER DATABASE SET, of this database and role. InvalidOid: of all.
void add_from_catalog(Settings &to, Relation catalog, Oid database, Oid role) {
    ScanKeyData keys[2];
    ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(database));
    ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(role));
    SysScanDesc scan =
        systable_beginscan(catalog, DbRoleSettingDatidRolidIndexId, true, nullptr, 2, keys);
    for (HeapTuple row; HeapTupleIsValid(row = systable_getnext(scan));) {
        bool isnull;
        const Datum list = heap_getattr(row, Anum_pg_db_role_setting_setconfig,
                                        RelationGetDescr(catalog), &isnull);
        if (isnull)
            continue;
        Datum *items;
        int count;
        deconstruct_array(DatumGetArrayTypeP(list), TEXTOID, -1, false, TYPALIGN_INT, &items,
                          nullptr, &count);
        for (int i = 0; i < count; ++i) {
            char *name = TextDatumGetCString(items[i]);
            char *value = strchr(name, '=');
            if (value == nullptr)
                continue;
            *value++ = '\0';
            const pg::Setting setting{name, value};
            if (!is_kept(name) && (GetConfigOptionFlags(name, true) & GUC_NO_RESET_ALL) == 0 &&
                !to.has(name) && is_accepted(setting))
                to.add(setting);
        }
    }
    systable_endscan(scan);
}

/// The values in a new session of this role, where the session may differ from them.
Settings wanted_of(Oid role) {
    Settings of_role{};
    Relation catalog = table_open(DbRoleSettingRelationId, AccessShareLock);
    if (RelationGetNumberOfBlocks(catalog) > 0) {
        // The first one counts.
        add_from_catalog(of_role, catalog, MyDatabaseId, role);
        add_from_catalog(of_role, catalog, InvalidOid, role);
        add_from_catalog(of_role, catalog, MyDatabaseId, InvalidOid);
        add_from_catalog(of_role, catalog, InvalidOid, InvalidOid);
    }
    table_close(catalog, AccessShareLock);
    Settings wanted{};
    for (const pg::Setting &s : call.of_session.all())
        if (!of_role.has(s.name) || is_of_parts(s.name))
            wanted.add(s);
    for (const pg::Setting &s : of_role.all())
        wanted.add(s);
    return wanted;
}

/// Names that others hold are quoted by it as they are set, so it comes first.
void put_quoting_first(std::span<pg::Setting> settings) {
    const auto found =
        std::ranges::find_if(settings, [](const pg::Setting &s) { return s.name == quoting; });
    if (found != settings.end())
        std::rotate(settings.begin(), found, found + 1);
}

RoleSettings *find_role(Oid role) {
    for (RoleSettings *r = call.roles; r != nullptr; r = r->next)
        if (r->role == role)
            return r;
    return pg::in_context(call.memory, [&] {
        auto *r = static_cast<RoleSettings *>(palloc(sizeof(RoleSettings)));
        *r = {.role = role, .settings = {}, .next = call.roles};
        for (const pg::Setting &s : wanted_of(role).all())
            if (!is_in_force(s))
                r->settings.add(s);
        put_quoting_first({r->settings.first, r->settings.count});
        call.roles = r;
        return r;
    });
}

} // namespace

void begin_handler_settings() {
    if (call.memory != nullptr)
        MemoryContextDelete(call.memory);
    call.memory = AllocSetContextCreate(TopTransactionContext, "stacksaga handler settings",
                                        ALLOCSET_SMALL_SIZES);
    static constinit MemoryContextCallback at_end{};
    at_end.func = [](void *) { call = {}; };
    MemoryContextRegisterResetCallback(call.memory, &at_end);
    pg::in_context(call.memory, [] {
        for (config_generic *s : pg::all_settings())
            if (s->source > PGC_S_ARGV && can_be_set(*s) && !is_kept(s->name))
                add_of_new_session(call.of_session, *s);
    });
}

void set_handler_settings(Oid definer) {
    for (const pg::Setting &s : find_role(definer)->settings.all())
        (void)set_config_option(s.name, s.value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
                                DEBUG2, false);
}

} // namespace stacksaga
