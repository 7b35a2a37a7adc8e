// Commands of message steps: messages that are delivered only while the attempt that published them
// has its lease.
#include "src/outbox/command.hpp"

#include "pg/fault_point.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "src/common/sent_values.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/handler/handler_error.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_attempt{"SELECT FROM stacksaga.work"
                                     " WHERE saga_id = $1 AND purpose = 'step' AND lease = $3"
                                     "   AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

/// A member of the payload that is a string.
std::optional<std::string_view> member_of(Datum payload, std::string_view name) {
    Jsonb *json = DatumGetJsonbP(payload);
    JsonbValue value;
    if (!JB_ROOT_IS_OBJECT(json) ||
        getKeyJsonValueFromContainer(&json->root, name.data(), static_cast<int>(name.size()),
                                     &value) == nullptr ||
        value.type != jbvString)
        return std::nullopt;
    return std::string_view{value.val.string.val, static_cast<size_t>(value.val.string.len)};
}

bool is_uuid(std::string_view text) {
    constexpr std::string_view shape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    const auto fits = [](char c, char wanted) {
        return wanted == '-' ? c == '-' : isxdigit(static_cast<unsigned char>(c)) != 0;
    };
    return text.size() == shape.size() && std::equal(text.begin(), text.end(), shape.begin(), fits);
}

bool is_same(const pg_uuid_t &a, const pg_uuid_t &b) {
    return memcmp(a.data, b.data, UUID_LEN) == 0;
}

/// The id of a command says which attempt it belongs to; other messages have ids of other versions,
/// or that nobody made of their content.
bool has_made_id(const Message &m) {
    return (m.id.data[6] & 0xf0) == 0x80 && m.key != 0 && m.payload != 0;
}

bool has_lost_its_lease(const Message &m) {
    const std::optional<std::string_view> lease = member_of(m.payload, "lease");
    const std::string_view saga = pg::view_of_text(m.key);
    if (!lease || !is_uuid(saga) || !is_same(command_id(saga, *lease), m.id))
        return false;
    const pg_uuid_t id = *DatumGetUUIDP(
        DirectFunctionCall1(uuid_in, CStringGetDatum(pnstrdup(saga.data(), saga.size()))));
    int64 number = 0;
    std::from_chars(lease->data(), lease->data() + lease->size(), number);
    return find_attempt.run(pg::param(id), pg::param(token_of_uuid(id).value()), pg::param(number))
        .empty();
}

} // namespace

pg_uuid_t command_id(std::string_view saga_id, std::string_view lease) {
    return uuid_of_text(psprintf("command %.*s %.*s", static_cast<int>(saga_id.size()),
                                 saga_id.data(), static_cast<int>(lease.size()), lease.data()));
}

bool is_command_over(const Message &m) {
    if (!has_made_id(m))
        return false;
    if (SentText::is_surely_sent(m.payload))
        return has_lost_its_lease(m);
    bool is_over = false;
    // One that cannot be read is settled where it is delivered.
    (void)pg::attempt_expecting([](const ErrorData &error) { return !is_of_session(error); },
                                [&] {
                                    FAULT_POINT("read: command", m.id);
                                    is_over = has_lost_its_lease(m);
                                });
    return is_over;
}

} // namespace stacksaga
