// The launcher: keeps the workers of the databases that stacksaga.databases lists running.
#pragma once

namespace stacksaga {

/// Registers the launcher. Called by _PG_init, while libraries are being preloaded.
void register_launcher();

} // namespace stacksaga
