// What this process knows of the handler that it is running.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct RunningHandler {
    bool is_active = false;     ///< from its call to its return: an error then is the handler's
    bool is_unusable = false;   ///< the last error: the function could not be called at all
    bool is_for_worker = false; ///< the last error: only a worker may run it
    bool has_set_constraints = false; ///< it executed SET CONSTRAINTS
    int32 subscription_id = 0;        ///< whose handler or fallback it is; 0: a step's, or none
    bool is_of_step = false;          ///< it is a step's, of the saga `saga_id`
    pg_uuid_t saga_id{};
    bool has_signalled_its_saga = false; ///< so what was read of that saga has to be read again
    /// Whether handlers run at the top of a worker's transaction, where pending deferred
    /// constraints can be fired one handler at a time; inside a query SET CONSTRAINTS has to do.
    bool is_at_top_level = false;

    /// A handler of this subscription is about to be called.
    void begin_message(int32 subscription) {
        is_unusable = false;
        is_for_worker = false;
        is_active = true;
        subscription_id = subscription;
    }
    /// A handler of a step of this saga is about to be called.
    void begin_step(const pg_uuid_t &saga) {
        is_unusable = false;
        is_for_worker = false;
        is_active = true;
        is_of_step = true;
        saga_id = saga;
        has_signalled_its_saga = false;
    }
    /// It has returned, or its error has been read.
    void end() {
        is_active = false;
        subscription_id = 0;
        is_of_step = false;
    }

    bool runs_step_of(const pg_uuid_t &saga) const {
        return is_of_step && memcmp(&saga_id, &saga, sizeof saga) == 0;
    }
};

extern RunningHandler running_handler;

} // namespace stacksaga
