// The sagas that a command is about: named by id or key, or chosen by a filter.
#pragma once

#include "cli/command_line.hpp"
#include "cli/output.hpp"
#include "db/connection.hpp"

#include <asio/awaitable.hpp>

#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// The sagas that a word names: one by its id, those of a key otherwise.
struct Named {
    std::vector<std::string> ids;
    std::string table; ///< of several, to choose from
};

asio::awaitable<Named> find_named(Connection &connection, const SagaFilter &filter,
                                  const std::string &word);

/// The answer where a word does not name one saga.
[[nodiscard]] CommandOutput not_one(const std::string &word, const Named &named);

/// The parameters of find_sagas(): name, status, beginning of the key, attributes and the maximum.
[[nodiscard]] Parameters parameters_of(const SagaFilter &filter);

/// The sagas that an action names, or those that its filter finds. Without any, and where there may
/// be more, `refusal` says so.
asio::awaitable<std::vector<std::string>>
targets_of(Connection &connection, const CommandConfig &config, CommandOutput &refusal);

} // namespace stacksaga::coordinator
