// What this process knows of the handler that it is running.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct RunningHandler {
    bool is_active = false;   ///< from its call to its return: an error then is the handler's
    bool is_unusable = false; ///< the last error: the function could not be called at all
    bool has_set_constraints = false; ///< it executed SET CONSTRAINTS
    int32 subscription_id = 0;        ///< whose handler or fallback it is; 0: a step's, or none
    /// Whether handlers run at the top of a worker's transaction, where pending deferred
    /// constraints can be fired one handler at a time; inside a query SET CONSTRAINTS has to do.
    bool is_at_top_level = false;

    /// A handler is about to be called: that of a subscription, or of a step.
    void begin(int32 subscription = 0) {
        is_unusable = false;
        is_active = true;
        subscription_id = subscription;
    }
    /// It has returned, or its error has been read.
    void end() {
        is_active = false;
        subscription_id = 0;
    }
};

extern RunningHandler running_handler;

} // namespace stacksaga
