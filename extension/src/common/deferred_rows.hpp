// Rows that a function has promised and that are written later in the same transaction, since they
// change once more before anybody else can see them.
//
// They are written before anything may look at their table other than the functions that know of
// them: other functions of the extension that read it, a utility statement (TRUNCATE, ALTER TABLE,
// DROP EXTENSION), the end of a handler, and the end of the transaction.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Writes the promised rows that are not written yet; there may be none.
using DeferredWriter = void (*)();

/// To be called before the first such row is promised. There is one writer.
void set_deferred_writer(DeferredWriter writer);

void write_deferred_rows();

/// To be called before each utility statement.
void write_deferred_rows_before(const Node *statement);

} // namespace stacksaga
