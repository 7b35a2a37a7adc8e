// What each call answers over the row that it finds: the rules of docs/reference.md, one function a
// call.
#include "rules.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::keys {

namespace {

Expected refusal(std::string sqlstate) {
    return {.sqlstate = std::move(sqlstate)};
}
Expected nothing() {
    return {.row = {""}}; // void
}

Expected begun(const Call &c, int attempt, const std::optional<std::string> &recovery_point) {
    return {.row = {attempt == 1 ? "new" : "resume", std::nullopt, recovery_point,
                    fmt::format("{}", attempt), std::nullopt},
            .gives_lease = true,
            .write = KeyRow{.attempt = attempt,
                            .lease = 0,
                            .lease_until = c.now + c.lease_length,
                            .lease_length = c.lease_length,
                            .retention = c.retention,
                            .completed_at = std::nullopt,
                            .request = c.request,
                            .recovery_point = recovery_point,
                            .response = std::nullopt}};
}

Expected accept_message(const Call &c, const std::optional<Row> &found) {
    if (found && std::get<MessageRow>(*found).expires_at > c.now)
        return {.row = {"f"}};
    return {.row = {"t"}, .write = MessageRow{c.now + c.retention}};
}

Expected accept_sequence(const Call &c, const std::optional<Row> &found) {
    const ProducerRow *row = found ? &std::get<ProducerRow>(*found) : nullptr;
    if (row != nullptr && c.epoch < row->epoch)
        return refusal("SG412");
    const bool continues = row != nullptr && c.epoch == row->epoch;
    if (continues && c.sequence <= row->sequence)
        return {.row = {"duplicate"}};
    if (c.sequence != (continues ? row->sequence + 1 : 1))
        return refusal("SR425");
    return {.row = {"accepted"}, .write = ProducerRow{c.epoch, c.sequence}};
}

Expected compare_and_set(const Call &c, const std::optional<Row> &found) {
    const ValueRow *row = found ? &std::get<ValueRow>(*found) : nullptr;
    const bool exists = row != nullptr && row->value;
    if (c.version ? !exists || row->version != *c.version : exists)
        return refusal("SG412");
    const long long version = row != nullptr ? row->version + 1 : 1;
    return {.row = {fmt::format("{}", version)}, .write = ValueRow{version, c.text}};
}

Expected read_value(const std::optional<Row> &found) {
    const ValueRow *row = found ? &std::get<ValueRow>(*found) : nullptr;
    if (row == nullptr || !row->value)
        return {};
    return {.row = {row->value, fmt::format("{}", row->version)}};
}

/// Checkpoint, finish and release.
Expected answer(const Call &c, const std::optional<Row> &found) {
    if (!found || std::get<KeyRow>(*found).lease != c.lease)
        return refusal("SG412");
    KeyRow row = std::get<KeyRow>(*found);
    if (row.completed_at) {
        if (c.function != Function::finish)
            return refusal("SG409");
        return row.response == c.text ? nothing() : refusal("SG422");
    }
    Expected expected = nothing();
    if (c.function == Function::release) {
        row.lease_until = std::min(row.lease_until, c.now);
        if (row.attempt > 1 || row.recovery_point)
            expected.write = row;
        else
            expected.write.emplace(std::nullopt);
        return expected;
    }
    if (c.function == Function::checkpoint) {
        row.recovery_point = c.text;
        row.lease_until = c.now + row.lease_length;
    } else {
        row.completed_at = c.now;
        row.response = c.text;
        row.lease_until = 0;
    }
    expected.write = row;
    return expected;
}

} // namespace

Expected begin_key(const Call &c, const std::optional<Row> &found) {
    if (!found)
        return begun(c, 1, std::nullopt);
    const KeyRow &row = std::get<KeyRow>(*found);
    if (row.has_expired(c.now))
        return begun(c, 1, std::nullopt);
    if (row.request != c.request)
        return refusal("SG422");
    if (row.completed_at)
        return {.row = {"replay", row.response, row.recovery_point, fmt::format("{}", row.attempt),
                        std::nullopt}};
    if (row.lease_until > c.now)
        return {.sqlstate = "SR409", .lease_left = row.lease_until - c.now};
    return begun(c, row.attempt + 1, row.recovery_point);
}

Expected apply_rules(const Call &c, const std::optional<Row> &found) {
    switch (c.function) {
    case Function::begin:
        return begin_key(c, found);
    case Function::checkpoint:
    case Function::finish:
    case Function::release:
        return answer(c, found);
    case Function::accept_message:
        return accept_message(c, found);
    case Function::accept_sequence:
        return accept_sequence(c, found);
    case Function::compare_and_set:
        return compare_and_set(c, found);
    case Function::read_value:
        return read_value(found);
    case Function::sweep:
        return {};
    case Function::invalid:
        return refusal(c.refusal);
    }
    return {};
}

} // namespace stacksaga::property::keys
