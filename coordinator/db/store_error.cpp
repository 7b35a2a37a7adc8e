#include "db/store_error.hpp"

#include <algorithm>
#include <array>

namespace stacksaga::coordinator {
namespace {

struct Rule {
    std::string_view prefix; // of the SQLSTATE; the first rule that matches decides
    ErrorClass kind;
};

constexpr std::array rules{
    Rule{"40001", ErrorClass::retry_now},  // serialization_failure
    Rule{"40P01", ErrorClass::retry_now},  // deadlock_detected
    Rule{"55P03", ErrorClass::retry_now},  // lock_not_available
    Rule{"57014", ErrorClass::retry_now},  // query_canceled: statement_timeout, or an operator
    Rule{"SR", ErrorClass::retry_now},     // stacksaga: may be retried
    Rule{"08", ErrorClass::reconnect},     // connection exceptions
    Rule{"25006", ErrorClass::reconnect},  // read-only: this server is a standby now
    Rule{"3D000", ErrorClass::reconnect},  // the database is not there (yet)
    Rule{"53", ErrorClass::reconnect},     // disk full, out of memory, too many connections
    Rule{"57P", ErrorClass::reconnect},    // shutdown, crash, starting up, idle timeouts
    Rule{"SG403", ErrorClass::permission}, // stacksaga: the role lacks a level
    Rule{"SG", ErrorClass::refused},       // stacksaga: this request is not valid
    Rule{"22", ErrorClass::refused},       // data exceptions: a value of this ring
    Rule{"28", ErrorClass::permission},    // invalid authorization
    Rule{"42501", ErrorClass::permission}, // insufficient_privilege
    Rule{"3F000", ErrorClass::missing_extension}, // no schema stacksaga
    Rule{"42703",
         ErrorClass::missing_extension}, // a column, function or view that an older version lacks
    Rule{"42883", ErrorClass::missing_extension}, //
    Rule{"42P01", ErrorClass::missing_extension}, //
    Rule{"58P01", ErrorClass::missing_extension}, // undefined_file: its library
};

/// In the order of ErrorClass.
struct ClassText {
    std::string_view name;
    int exit_code;
};
constexpr std::array classes{
    ClassText{"retry_now", exit_code::temporary},
    ClassText{"reconnect", exit_code::unavailable},
    ClassText{"in_doubt", exit_code::unavailable},
    ClassText{"refused", exit_code::temporary},
    ClassText{"ring_missing", exit_code::bad_config},
    ClassText{"shared_session", exit_code::bad_config},
    ClassText{"permission", exit_code::permission},
    ClassText{"missing_extension", exit_code::missing_extension},
    ClassText{"fatal", exit_code::internal},
};
static_assert(classes.size() == static_cast<std::size_t>(ErrorClass::fatal) + 1);

const ClassText &text_of(ErrorClass kind) noexcept {
    return classes[static_cast<std::size_t>(kind)];
}

} // namespace

std::string_view name_of(ErrorClass kind) noexcept {
    return text_of(kind).name;
}

int exit_code_of(ErrorClass kind) noexcept {
    return text_of(kind).exit_code;
}

ErrorClass classify(std::string_view sqlstate) noexcept {
    if (sqlstate.empty())
        return ErrorClass::reconnect;
    const auto rule = std::ranges::find_if(
        rules, [&](const Rule &candidate) { return sqlstate.starts_with(candidate.prefix); });
    return rule == rules.end() ? ErrorClass::fatal : rule->kind;
}

std::string_view advice_on_connecting(std::string_view sqlstate) noexcept {
    if (sqlstate.starts_with("28"))
        return "Name a role that may log in with --dbname 'user=...' or PGUSER, put its password into a "
               "password file, and check the server's pg_hba.conf.";
    if (sqlstate == "3D000")
        return "Create the database, or name another with --dbname.";
    return {};
}

std::vector<LogField> fields_of(const StoreError &error) {
    std::vector<LogField> fields{{"class", name_of(error.kind)}, {"error", error.what()}};
    const auto add = [&](std::string_view key, const std::string &value) {
        if (!value.empty())
            fields.emplace_back(key, value);
    };
    add("sqlstate", error.sqlstate);
    add("detail", error.detail);
    add("hint", error.hint);
    return fields;
}

std::string explain(const StoreError &error) {
    std::string text = std::string(error.what()) + "\n";
    if (!error.detail.empty())
        text += error.detail + "\n";
    if (!error.hint.empty())
        text += error.hint + "\n";
    return text;
}

} // namespace stacksaga::coordinator
