#include "src/outbox/delivery/dead_unread.hpp"

#include "pg/fault_point.hpp"
#include "pg/statement/query.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

// What is copied when a message is redriven.
constinit pg::Statement read_values{
    "SELECT length(payload::text), length(headers::text), length(error_details::text),"
    "       length(last_error)"
    "  FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND tick = $3 AND number = $4"};

} // namespace

bool UnreadMessages::has(const pg_uuid_t &id) const {
    return std::any_of(ids_, ids_ + count_, [&](const pg_uuid_t &other) {
        return memcmp(other.data, id.data, UUID_LEN) == 0;
    });
}

std::span<const Message> UnreadMessages::others(std::span<const Message> messages) const {
    auto *list = static_cast<Message *>(palloc(sizeof(Message) * (messages.size() + 1)));
    size_t count = 0;
    for (const Message &m : messages)
        if (!has(m.id))
            list[count++] = m;
    return {list, count};
}

void UnreadMessages::note(const pg_uuid_t &id, const char *error) {
    const size_t bytes = sizeof(pg_uuid_t) * (count_ + 1);
    ids_ = static_cast<pg_uuid_t *>(ids_ == nullptr ? palloc(bytes) : repalloc(ids_, bytes));
    ids_[count_++] = id;
    if (first_error_ == nullptr)
        first_error_ = error;
}

bool UnreadMessages::find_damaged(std::span<const Message> messages) {
    const size_t before = count_;
    for (const Message &m : messages) {
        const char *error = nullptr;
        MemoryContext caller = CurrentMemoryContext;
        const bool is_read = pg::attempt_expecting(
            [&](const ErrorData &raised) {
                if (is_of_session(raised))
                    return false;
                error = MemoryContextStrdup(caller, raised.message);
                return true;
            },
            [&] {
                FAULT_POINT("read: dead message", m.id);
                (void)read_values.run(pg::param(subscription_.id), pg::param(m.token.value()),
                                      pg::param(m.tick), pg::param(m.number));
            });
        if (!is_read)
            note(m.id, error);
    }
    return count_ > before;
}

void UnreadMessages::report() const {
    if (count_ == 0)
        return;
    ereport(
        WARNING,
        (errmsg("dead messages of subscription \"%s\" cannot be read and stay dead: %zu",
                clip(subscription_.name), count_),
         errdetail("Message %s: %s.", uuid_text(ids_[0]), first_error_),
         errhint("The others are delivered again. publish() what such a message said again, and "
                 "discard_message() it.")));
}

} // namespace stacksaga
