// The oids of a definition's roles and functions on this node of Citus.
//
// A definition names them and keeps the oids that they had where it was defined, so that another
// role or function of the name does not take their place. A node has oids of its own: what a name
// stood for when this node first read the definition it stands for from then on.
#pragma once
#include "src/definition/stored_definition.hpp"

namespace stacksaga {

/// Whether definitions were made on another node, and this one has oids of its own.
bool has_own_oids();

/// Replaces the oids of the definition, and writes those that are new unless the transaction reads
/// only.
void use_own_oids(Definition &definition, std::span<StepFunctions> functions);

} // namespace stacksaga
