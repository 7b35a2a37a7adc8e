#include "src/handler/session/server_settings.hpp"

#include "pg/statement/scope.hpp"

namespace stacksaga {

namespace {

/// As PostgreSQL lists what it reads in files.
struct Variables {
    ConfigVariable *first = nullptr;
    ConfigVariable *last = nullptr;
};

/// The values read, in a memory context of its own.
struct Read {
    MemoryContext memory = nullptr;
    TimestampTz reloaded_at = 0; ///< when the session read the files last
    Variables files{};
    Variables command_line{};
};
constinit Read last{};

/// Relative to the data directory, in which each process of the server runs.
constexpr const char *command_line_file = "postmaster.opts";

void add(Variables &to, const char *name, const char *value) {
    auto *variable = static_cast<ConfigVariable *>(palloc0(sizeof(ConfigVariable)));
    variable->name = pstrdup(name);
    variable->value = pstrdup(value);
    (to.last != nullptr ? to.last->next : to.first) = variable;
    to.last = variable;
}

/// `name=value`, from one argument or two.
void add_option(Variables &to, const char *option) {
    char *name, *value;
    ParseLongOption(option, &name, &value);
    if (value != nullptr)
        add(to, name, value);
    free(name);
    free(value);
}

/// The file holds one line: the program, and each argument in double quotes.
Variables read_command_line() {
    Variables result;
    FILE *file = AllocateFile(command_line_file, "r");
    if (file == nullptr)
        return result;
    StringInfoData line;
    initStringInfo(&line);
    (void)pg_get_line_append(file, &line, nullptr);
    FreeFile(file);
    bool is_option_next = false;
    for (char *at = strstr(line.data, " \""); at != nullptr;) {
        char *argument = at + 2;
        char *end = strchr(argument, '"');
        if (end == nullptr)
            break;
        *end = '\0';
        at = strstr(end + 1, " \"");
        const std::string_view text = argument;
        if (is_option_next)
            add_option(result, argument);
        else if (text.starts_with("--") || (text.starts_with("-c") && text.size() > 2))
            add_option(result, argument + 2);
        is_option_next = !is_option_next && strcmp(argument, "-c") == 0;
    }
    return result;
}

Variables read_files() {
    Variables result;
    for (const char *file : {static_cast<const char *>(ConfigFileName), PG_AUTOCONF_FILENAME})
        (void)ParseConfigFile(file, false, nullptr, 0, 0, DEBUG2, &result.first, &result.last);
    return result;
}

/// The last one counts. nullptr: there is none.
const char *find(const Variables &variables, const char *name) {
    const char *value = nullptr;
    for (const ConfigVariable *v = variables.first; v != nullptr; v = v->next)
        if (v->errmsg == nullptr && v->name != nullptr && pg_strcasecmp(v->name, name) == 0)
            value = v->value;
    return value;
}

void read_again() {
    if (last.memory == nullptr)
        last.memory = AllocSetContextCreate(TopMemoryContext, "stacksaga server settings",
                                            ALLOCSET_SMALL_SIZES);
    MemoryContext memory = last.memory;
    MemoryContextReset(memory);
    last = {.memory = memory}; // as long as reading fails
    pg::in_context(memory, [] {
        last.files = read_files();
        last.command_line = read_command_line();
    });
    last.reloaded_at = PgReloadTime;
}

} // namespace

const char *server_setting(const char *name) {
    if (last.memory == nullptr || last.reloaded_at != PgReloadTime)
        read_again();
    const char *value = find(last.command_line, name);
    return value != nullptr ? value : find(last.files, name);
}

} // namespace stacksaga
