// Dead messages that cannot be delivered again, since they cannot be read: those that an operator
// redrives with others are passed over, stay dead, and are reported.
#pragma once
#include "pg/statement/attempt.hpp"
#include "src/handler/handler_error.hpp"
#include "src/outbox/delivery/delivery_row.hpp"

namespace stacksaga {

/// Of one call. Lives in its memory. All inside with_spi.
class UnreadMessages {
public:
    explicit UnreadMessages(const Subscription &subscription) : subscription_(subscription) {}

    size_t count() const { return count_; }
    bool has(const pg_uuid_t &id) const;
    /// The messages that are not known to be unread, in their order.
    std::span<const Message> others(std::span<const Message> messages) const;

    void note(const pg_uuid_t &id, const char *error);
    /// Whether any of the messages cannot be read, each by itself; these are noted.
    bool find_damaged(std::span<const Message> messages);

    /// A warning, where there are any.
    void report() const;

private:
    const Subscription &subscription_;
    pg_uuid_t *ids_ = nullptr;
    size_t count_ = 0;
    const char *first_error_ = nullptr;
};

/// Runs `redrive`, which locks and changes rows, and returns whether it was done. It is not where
/// one of the messages cannot be read: then nothing has happened, no lock is left, and `unread` has
/// that message. `messages()` are those that it has tried to redrive. Other errors come out.
template <class F, class M>
bool redrive_unless_damaged(UnreadMessages &unread, F &&redrive, M &&messages) {
    if (pg::attempt_expecting([](const ErrorData &error) { return !is_of_session(error); },
                              [&] { redrive(); }))
        return true;
    if (unread.find_damaged(messages()))
        return false;
    redrive();
    return true;
}

} // namespace stacksaga
