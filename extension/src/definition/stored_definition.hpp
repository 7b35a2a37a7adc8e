// Saga definitions as the engine reads them: loaded once per session and version. A version is
// immutable but for its definer and the identity of its functions.
#pragma once
#include "core/saga/definition.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"

#include "pg/pg.hpp"
#include "pg/table/table.hpp"
#include "src/handler/definer.hpp"
#include "src/handler/function_ref.hpp"

namespace stacksaga {

using core::Step;
using core::StepKind;

/// A function that a step calls, and which of its errors are retried.
struct StepFunctions {
    FunctionRef action;
    FunctionRef compensation;
    FunctionRef verify;
    FunctionRef fallback;    ///< of a sql step
    const char *search_path; ///< while they run; nullptr where the step has none
    RetryRules retry;
};

struct Definition : core::Definition {
    Definer definer;
    RetryRules compensation_retry;
    std::string_view events_topic; ///< of the changes of a saga's status; empty: none
    /// How long its finished sagas stay, negative: for ever; nothing: as the settings say.
    std::optional<int64> keep_us;
    std::span<const StepFunctions> functions; ///< in the order of steps

    const StepFunctions &functions_of(const Step &s) const {
        return functions[static_cast<size_t>(s.no - 1)];
    }
    const RetryRules &rules(const Step &s, core::Direction d) const {
        return d == core::Direction::act ? functions_of(s).retry : compensation_retry;
    }
};
static_assert(std::is_trivially_destructible_v<Definition>);

/// The definition with this id. Inside with_spi. The reference is good for the transaction.
const Definition &load_definition(int32 definition_id);

/// The definition that a new saga takes: `version`, or the current one. SG404 when there is none.
const Definition &find_definition(std::string_view saga, std::optional<int32> version);

/// Makes every session read definitions again, this one at once and others when this transaction
/// commits, since the definer of a version or the identity of its functions was refreshed.
void refresh_definitions();

enum class DefinitionIndex : uint8 { current };
extern constinit pg::Table definition_table; ///< read alone

// On Citus a definition names its roles and functions and keeps the oids that they had where it was
// defined, so that another role or function of the same name does not take their place. Each node
// has oids of its own, so a node keeps the oid that it found when it first read the definition.

/// Whether definitions were made on another node, and this one has oids of its own.
bool has_own_oids();

/// Replaces the oids of the definition, and writes those that are new unless the transaction reads
/// only.
void use_own_oids(Definition &definition, std::span<StepFunctions> functions);

} // namespace stacksaga
