#include "src/outbox/published_messages.hpp"

#include "core/common/savepoints.hpp"
#include "core/saga/saga.hpp"

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

// How many each level of subtransactions has published. Rolling back takes away the last ones,
// since a subtransaction ends before anything follows it: so of the messages that are kept, those
// remain whose number is below the count.
using Levels = core::SavepointStack<int64>;
constinit Levels levels{}; ///< in the memory of the transaction

int64 count_published() {
    int64 count = 0;
    levels.each([&](int64 published) { count += published; });
    return count;
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

constinit const pg::TransactionUser published_message_events{
    .at_end = [] { levels.clear(); },
    .at_release = [](const pg::Subtransaction &ended) { levels.release(ended.level); },
    .at_rollback = [](const pg::Subtransaction &ended) { levels.roll_back(ended.level); },
};

void forget_published() {
    levels.clear();
}

void note_published(const PublishedMessage &message) {
    if (!running_handler.is_active_of_step())
        return;
    const auto place = static_cast<size_t>(count_published());
    ++levels.at(GetCurrentTransactionNestLevel(), pg::make_in_transaction<Levels::Level>);
    if (place >= kept_max)
        return;
    KeptMessage &k = kept[place];
    k.id = message.id;
    k.topic_size = copy_text(message.topic, k.topic);
    k.key_size = copy_text(message.key.value_or(""), k.key);
}

core::Value published_messages() {
    const int64 published = count_published();
    if (published == 0)
        return {};
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    push_name(&state, "count");
    JsonbValue count{};
    count.type = jbvNumeric;
    count.val.numeric = int64_to_numeric(published);
    pushJsonbValue(&state, WJB_VALUE, &count);
    push_name(&state, "messages");
    pushJsonbValue(&state, WJB_BEGIN_ARRAY, nullptr);
    const size_t listed = std::min(kept_max, static_cast<size_t>(published));
    for (size_t i = 0; i < listed; ++i)
        push_message(&state, kept[i]);
    pushJsonbValue(&state, WJB_END_ARRAY, nullptr);
    Jsonb *json = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr));
    return {.bits = JsonbPGetDatum(json), .is_null = false};
}

} // namespace stacksaga
