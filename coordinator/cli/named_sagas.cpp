#include "cli/named_sagas.hpp"

#include "db/store_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace stacksaga::coordinator {
namespace {

/// Both queries begin with the id.
constexpr int saga_id_column = 0;
constexpr const char *SQL_FOUND =
    "SELECT saga_id FROM stacksaga.find_sagas(saga => $1::text, status => $2::text,"
    "    key_prefix => $3::text, attributes => $4::jsonb, max_sagas => $5::integer)";
/// find_sagas() may find many sagas whose keys begin with this one.
constexpr const char *SQL_SAGAS_OF_KEY =
    "SELECT s.saga_id, s.saga, s.key, s.status FROM stacksaga.sagas AS s"
    " WHERE s.key = $2::text AND ($1::text IS NULL OR s.saga = $1)"
    " ORDER BY s.created_at DESC, s.saga_id DESC LIMIT 1000";
std::optional<std::string> null_if_empty(const std::string &text) {
    return text.empty() ? std::nullopt : std::optional(text);
}

bool is_uuid(std::string_view text) {
    constexpr std::size_t length = 36;
    return text.size() == length && std::ranges::count(text, '-') == 4 &&
           text.find_first_not_of("0123456789abcdefABCDEF-") == std::string_view::npos;
}

} // namespace

asio::awaitable<Named> find_named(Connection &connection, const SagaFilter &filter,
                                  const std::string &word) {
    Named named;
    if (is_uuid(word)) {
        named.ids.push_back(word);
        co_return named;
    }
    const Parameters parameters{null_if_empty(filter.saga), word};
    const Rows rows = co_await read_rows(connection, SQL_SAGAS_OF_KEY, parameters);
    for (int row = 0; row < rows.size(); ++row)
        named.ids.emplace_back(rows.text(row, saga_id_column));
    named.table = table_of(rows);
    co_return named;
}

CommandOutput not_one(const std::string &word, const Named &named) {
    if (named.ids.empty())
        return refused(1, fmt::format("no saga has the key or id \"{}\"\n", escape_controls(word)));
    return refused(1, fmt::format("several sagas have the key \"{}\"; name one by its id\n{}",
                                  escape_controls(word), named.table));
}

Parameters parameters_of(const SagaFilter &filter) {
    return {null_if_empty(filter.saga), null_if_empty(filter.status),
            null_if_empty(filter.key_prefix), null_if_empty(filter.attributes),
            std::to_string(filter.max)};
}

/// The sagas that an action names, or those that its filter finds.
asio::awaitable<std::vector<std::string>>
targets_of(Connection &connection, const CommandConfig &config, CommandOutput &refusal) {
    std::vector<std::string> ids;
    for (const std::string &word : config.action.targets) {
        const Named named = co_await find_named(connection, config.filter, word);
        if (named.ids.size() != 1) {
            refusal = not_one(word, named);
            co_return ids;
        }
        ids.push_back(named.ids.front());
    }
    if (!config.action.targets.empty())
        co_return ids;
    if (config.filter.is_empty()) {
        refusal = refused(exit_code::usage, "name sagas by id or key, or choose them with --name, "
                                            "--status or --key\n");
        co_return ids;
    }
    const Parameters parameters = parameters_of(config.filter);
    const Rows rows = co_await read_rows(connection, SQL_FOUND, parameters);
    for (int row = 0; row < rows.size(); ++row)
        ids.emplace_back(rows.text(row, saga_id_column));
    if (ids.empty())
        refusal = refused(1, "no saga fits\n");
    else if (std::ssize(ids) == config.filter.max)
        refusal.error = fmt::format("These are the newest {} sagas that fit; there may be more. "
                                    "Repeat the command, or choose more by --max.\n",
                                    config.filter.max);
    co_return ids;
}

} // namespace stacksaga::coordinator
