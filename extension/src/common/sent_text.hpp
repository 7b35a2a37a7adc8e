// Values that are about to be sent to a client: read from where they are stored, and not longer as
// text than a row can be. The client's row is printed when the call has returned, and an error then
// would be nobody's.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Of one row.
class SentText {
public:
    /// The value, for the row: a small one as it is in memory, a large one where it is stored.
    Datum add(Datum value);

    /// A value that is in memory, and too small to have a text that is too long.
    static bool is_surely_sent(Datum value);

private:
    uint64 bytes_ = 0; ///< at most, of what was added
};

} // namespace stacksaga
