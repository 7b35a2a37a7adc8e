#include "src/handler/published_messages.hpp"

#include "core/published_count.hpp"
#include "core/saga.hpp"

#include "src/common/limits.hpp"
#include "src/handler/running_handler.hpp"

namespace stacksaga {

namespace {

constexpr size_t kept_max = 20;
constexpr size_t text_max = key_bytes_max; // of a topic, too

/// A message in memory that no transaction takes with it.
struct KeptMessage {
    pg_uuid_t id;
    uint8 topic_size;
    uint8 key_size; ///< 0: no key
    std::array<char, text_max> topic;
    std::array<char, text_max> key;
};
constinit std::array<KeptMessage, kept_max> kept{};
constinit core::PublishedCount published{};

void at_subtransaction_end(SubXactEvent event, SubTransactionId, SubTransactionId, void *) {
    if (published.count() == 0)
        return;
    if (event == SUBXACT_EVENT_COMMIT_SUB)
        published.committed(GetCurrentTransactionNestLevel());
    else if (event == SUBXACT_EVENT_ABORT_SUB)
        published.rolled_back(GetCurrentTransactionNestLevel());
}

void watch() {
    static constinit bool is_watching = false;
    if (is_watching)
        return;
    RegisterSubXactCallback(at_subtransaction_end, nullptr);
    is_watching = true;
}

uint8 copy_text(std::string_view text, std::array<char, text_max> &to) {
    Assert(text.size() <= text_max);
    std::copy(text.begin(), text.end(), to.begin());
    return static_cast<uint8>(text.size());
}

JsonbValue json_text(std::string_view text) {
    JsonbValue value{};
    value.type = jbvString;
    value.val.string.val = const_cast<char *>(text.data());
    value.val.string.len = static_cast<int>(text.size());
    return value;
}

void push_name(JsonbParseState **state, std::string_view name) {
    JsonbValue key = json_text(name);
    pushJsonbValue(state, WJB_KEY, &key);
}

void push_text(JsonbParseState **state, std::string_view name, std::string_view text) {
    push_name(state, name);
    JsonbValue value = json_text(text);
    pushJsonbValue(state, WJB_VALUE, &value);
}

void push_message(JsonbParseState **state, const KeptMessage &message) {
    pushJsonbValue(state, WJB_BEGIN_OBJECT, nullptr);
    push_text(state, "topic", {message.topic.data(), message.topic_size});
    if (message.key_size > 0)
        push_text(state, "key", {message.key.data(), message.key_size});
    push_text(state, "message_id", uuid_text(message.id));
    pushJsonbValue(state, WJB_END_OBJECT, nullptr);
}

} // namespace

void forget_published() {
    published.clear();
}

void note_published(const PublishedMessage &message) {
    if (!running_handler.is_active_of_step())
        return;
    watch();
    const auto place = static_cast<size_t>(published.count());
    if (!published.note(GetCurrentTransactionNestLevel()) || place >= kept_max)
        return;
    KeptMessage &k = kept[place];
    k.id = message.id;
    k.topic_size = copy_text(message.topic, k.topic);
    k.key_size = copy_text(message.key.value_or(""), k.key);
}

core::Value published_messages() {
    if (published.count() == 0)
        return {};
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    push_name(&state, "count");
    JsonbValue count{};
    count.type = jbvNumeric;
    count.val.numeric = int64_to_numeric(published.count());
    pushJsonbValue(&state, WJB_VALUE, &count);
    push_name(&state, "messages");
    pushJsonbValue(&state, WJB_BEGIN_ARRAY, nullptr);
    const size_t listed = std::min(kept_max, static_cast<size_t>(published.count()));
    for (size_t i = 0; i < listed; ++i)
        push_message(&state, kept[i]);
    pushJsonbValue(&state, WJB_END_ARRAY, nullptr);
    Jsonb *json = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr));
    return {.bits = JsonbPGetDatum(json), .is_null = false};
}

} // namespace stacksaga
