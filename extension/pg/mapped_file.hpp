// Files that are mapped into memory, and shared with other processes.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Maps the first bytes of an open file, whose blocks must be there; nullptr with errno where that
/// fails. Where somebody truncates the file later, the process goes on with zeros of its own in
/// place of the file: touching a mapped page without a file would otherwise be SIGBUS, which ends
/// the process and, with it, all sessions of the server.
void *map_file(int descriptor, size_t size);

void unmap_file(void *memory, size_t size);

} // namespace stacksaga::pg
