#include "calls.hpp"

#include <fmt/format.h>

namespace stacksaga::property::keys {

std::string quote(const std::optional<std::string> &text) {
    return text ? "'" + *text + "'" : "NULL";
}

std::string interval_of(int half_hours) {
    return fmt::format("'{} min'", half_hours * 30);
}

std::string sql_of(const Call &c, const std::string &scope, const char *request_text,
                   bool names_retention) {
    const std::string at = fmt::format("'{}', '{}'", scope, c.thing.name);
    switch (c.function) {
    case Function::begin:
        return fmt::format(
            "SELECT outcome, response, recovery_point, attempt, lease"
            "  FROM stacksaga.idempotency_begin({}, {}, {}, {}{})",
            at, request_text != nullptr ? quote(request_text) : "NULL", interval_of(c.lease_length),
            names_retention ? interval_of(c.retention) : "NULL", c.waits ? ", 'wait'" : "");
    case Function::checkpoint:
        return fmt::format("SELECT stacksaga.idempotency_checkpoint({}, {}, {})", at, c.lease,
                           quote(c.text));
    case Function::finish:
        return fmt::format("SELECT stacksaga.idempotency_finish({}, {}, {})", at, c.lease,
                           quote(c.text));
    case Function::release:
        return fmt::format("SELECT stacksaga.idempotency_release({}, {})", at, c.lease);
    case Function::accept_message:
        return fmt::format("SELECT stacksaga.accept_message({}, {})", at,
                           names_retention ? interval_of(c.retention) : "NULL");
    case Function::accept_sequence:
        return fmt::format("SELECT stacksaga.accept_sequence('{}.{}', {}, {})", scope, c.thing.name,
                           c.epoch, c.sequence);
    case Function::compare_and_set:
        return fmt::format("SELECT stacksaga.compare_and_set({}, {}, {})", at,
                           c.version ? fmt::format("{}", *c.version) : "NULL", quote(c.text));
    case Function::read_value:
        return fmt::format("SELECT value, version FROM stacksaga.read_value({})", at);
    case Function::sweep:
    case Function::invalid:
        break;
    }
    return c.sql;
}

const std::vector<Invalid> &invalid_calls() {
    static const std::vector<Invalid> calls{
        {"idempotency_begin(NULL, 'k1')", "SG400"},
        {"idempotency_begin('', 'k1')", "SG400"},
        {"idempotency_begin(repeat('s', 64), 'k1')", "SG400"},
        {"idempotency_begin('{}', NULL)", "SG400"},
        {"idempotency_begin('{}', '')", "SG400"},
        {"idempotency_begin('{}', repeat('k', 256))", "SG400"},
        {"idempotency_begin('{}', 'k1', lease => NULL)", "SG400"},
        {"idempotency_begin('{}', 'k1', lease => '0')", "SG400"},
        {"idempotency_begin('{}', 'k1', lease => '-1 hour')", "SG400"},
        {"idempotency_begin('{}', 'k1', lease => '1 year', retention => '1 month')", "SG400"},
        {"idempotency_begin('{}', 'k1', lease => '1 year')", "SG400"},
        {"idempotency_begin('{}', 'k1', retention => '102 years')", "SG400"},
        {"idempotency_begin('{}', 'k1', on_locked => 'skip')", "SG400"},
        {"idempotency_begin('{}', 'k1', on_locked => NULL)", "SG400"},
        {"idempotency_begin('{}', 'k1', to_jsonb(repeat('r', 2000)))", "SG413"},
        {"idempotency_checkpoint('{}', 'k1', 1, NULL)", "SG400"},
        {"idempotency_checkpoint('{}', 'k1', 1, '')", "SG400"},
        {"idempotency_checkpoint('{}', 'k1', 1, repeat('p', 256))", "SG400"},
        {"idempotency_checkpoint('{}', 'k1', NULL, 'p')", "SG400"},
        {"idempotency_finish('{}', 'k1', NULL)", "SG400"},
        {"idempotency_finish('{}', NULL, 1)", "SG400"},
        {"idempotency_finish('{}', 'k1', 1, to_jsonb(repeat('r', 2000)))", "SG413"},
        {"idempotency_release('{}', 'k1', NULL)", "SG400"},
        {"idempotency_release(NULL, 'k1', 1)", "SG400"},
        {"accept_message('{}', NULL)", "SG400"},
        {"accept_message('', 'k1')", "SG400"},
        {"accept_message('{}', 'k1', '0')", "SG400"},
        {"accept_message('{}', 'k1', '102 years')", "SG400"},
        {"accept_sequence('', 1, 1)", "SG400"},
        {"accept_sequence('{}', -1, 1)", "SG400"},
        {"accept_sequence('{}', 1, 0)", "SG400"},
        {"accept_sequence('{}', NULL, 1)", "SG400"},
        {"compare_and_set('{}', 'k1', NULL, NULL)", "SG400"},
        {"compare_and_set('{}', '', NULL, '1')", "SG400"},
        {"compare_and_set('{}', 'k1', NULL, to_jsonb(repeat('v', 2000)))", "SG413"},
        {"expire_dedupe(0)", "SG400"},
        {"expire_dedupe(100001)", "SG400"},
        {"expire_dedupe(NULL)", "SG400"},
    };
    return calls;
}

} // namespace stacksaga::property::keys
