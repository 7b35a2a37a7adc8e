// The state of the handler that this process is running. One at a time: a handler cannot make
// the engine run another one (refuse_inside_handler).
#pragma once
#include "pg/pg.hpp"
#include "src/common/caller.hpp"

namespace stacksaga {

class RunningHandler {
public:
    /// This process is a worker: handlers run at the top of its transactions, where pending
    /// deferred constraints can be fired one handler at a time; inside a query SET CONSTRAINTS has
    /// to do.
    void enter_top_level() { is_at_top_level_ = true; }
    bool is_at_top_level() const { return is_at_top_level_; }
    /// At the top of a worker's transaction, where what is deferred can be fired by itself.
    bool is_outermost() const { return is_at_top_level_ && !IsSubTransaction(); }

    /// A handler or fallback of this subscription is about to be called.
    void begin_message(int32 subscription, std::string_view name) {
        begin();
        subscription_id_ = subscription;
        name_ = name;
    }
    /// A handler of a step of this saga is about to be called.
    void begin_step(const pg_uuid_t &saga, std::string_view step) {
        begin();
        is_of_step_ = true;
        saga_id_ = saga;
        name_ = step;
    }
    /// The role as which it runs, from now on.
    void run_as(Oid definer);
    /// In which it was called.
    SubTransactionId subtransaction() const { return subtransaction_; }
    /// It has returned, or its error has been read. What it did is known until the next one begins.
    void end() {
        is_active_ = false;
        subscription_id_ = 0;
        is_of_step_ = false;
        name_ = {};
        acting_handler = {};
    }

    /// An item is read, and what its handler or its service gets is built: an error then is the
    /// item's, until a handler begins or what has become of the item is written.
    void begin_reading() { is_reading_ = true; }
    void end_reading() { is_reading_ = false; }
    bool is_reading() const { return is_reading_; }

    /// From its call to its return: an error then is the handler's.
    bool is_active() const { return is_active_; }
    bool is_active_of_step() const { return is_active_ && is_of_step_; }
    bool is_of_subscription(int32 subscription) const { return subscription_id_ == subscription; }
    bool is_of_step_of(const pg_uuid_t &saga) const {
        return is_of_step_ && memcmp(&saga_id_, &saga, sizeof saga) == 0;
    }

    /// A saga is signalled; it may be that of the handler's step.
    void note_signal(const pg_uuid_t &saga) {
        has_signalled_its_saga_ = has_signalled_its_saga_ || is_of_step_of(saga);
    }
    /// Then what was read of that saga has to be read again.
    bool has_signalled_its_saga() const { return has_signalled_its_saga_; }

    void note_set_constraints() { has_set_constraints_ = has_set_constraints_ || is_active_; }
    bool has_set_constraints() const { return has_set_constraints_; }

    /// Its error says that the function could not be called at all.
    void note_unusable() { is_unusable_ = true; }
    bool is_unusable() const { return is_unusable_; }

    /// Its error says that only a worker may run it, and why.
    void note_for_worker(const char *why) { why_for_worker_ = why; }
    bool is_for_worker() const { return why_for_worker_ != nullptr; }
    const char *why_for_worker() const { return why_for_worker_; }

private:
    static const char *describe();
    void begin() {
        const bool is_at_top_level = is_at_top_level_;
        end();
        *this = RunningHandler{};
        is_at_top_level_ = is_at_top_level;
        is_active_ = true;
    }

    bool is_at_top_level_ = false;
    bool is_active_ = false;
    bool is_reading_ = false;
    bool is_of_step_ = false; ///< of the saga `saga_id_`
    bool has_signalled_its_saga_ = false;
    bool has_set_constraints_ = false;
    bool is_unusable_ = false;
    const char *why_for_worker_ = nullptr;
    SubTransactionId subtransaction_ = InvalidSubTransactionId;
    int32 subscription_id_ = 0; ///< 0: a step's, or none
    pg_uuid_t saga_id_{};
    std::string_view name_{}; ///< of the step or the subscription
};

extern RunningHandler running_handler;

} // namespace stacksaga
