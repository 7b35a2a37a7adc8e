#include "bank_b.hpp"

#include <optional>

namespace stacksaga::demo {

namespace {

// The transaction that inserts the key decides; another transaction with the same key waits for its
// end.
constexpr const char *decide =
    "INSERT INTO bank.applied (idempotency_key, outcome, response) VALUES ($1, $2, $3::jsonb)"
    " ON CONFLICT DO NOTHING RETURNING response";
constexpr const char *repeat = "UPDATE bank.applied"
                               "   SET replays = replays + (outcome = 'applied')::integer,"
                               "       refusals = refusals + (outcome <> 'applied')::integer"
                               " WHERE idempotency_key = $1 RETURNING outcome, response";
constexpr const char *mark_undone =
    "UPDATE bank.applied SET outcome = 'undone' WHERE idempotency_key = $1";
constexpr const char *add_to_balance =
    "UPDATE pgbench_accounts SET abalance = abalance + $2::integer WHERE aid = $1::integer"
    " RETURNING abalance";
constexpr const char *write_journal =
    "INSERT INTO bank.journal VALUES ($1, $2, $3::integer, $4::integer)";

void commit(Transaction &transaction) {
    try {
        transaction.commit();
    } catch (const Disconnected &lost) {
        throw InDoubt(lost.what());
    }
}

/// Writes the response under the key and returns it; nothing if the key is there already.
std::optional<std::string> decide_key(Transaction &transaction, const std::string &key,
                                      const std::string &outcome, const std::string &response) {
    const Rows rows = transaction.run(decide, {key, outcome, response});
    if (rows.empty())
        return std::nullopt;
    return rows.text(0, 0);
}

Decision repeat_key(Transaction &transaction, const std::string &key) {
    const Rows rows = transaction.run(repeat, {key});
    commit(transaction);
    if (rows.text(0, 0) == "applied")
        return {Decision::Kind::done, rows.text(0, 1)};
    return {Decision::Kind::refused, "bank B refuses a credit that comes after its compensation"};
}

/// False if there is no such account.
bool change_balance(Transaction &transaction, const std::string &key, const Credit &credit,
                    const std::string &amount) {
    if (transaction.run(add_to_balance, {credit.account, amount}).empty())
        return false;
    transaction.run(write_journal, {key, credit.saga_id, credit.account, amount});
    return true;
}

} // namespace

Decision BankB::credit(const std::string &key, const Credit &credit) {
    Transaction transaction(session_);
    const auto response =
        decide_key(transaction, key, "applied", "{\"credited\": " + credit.amount + "}");
    if (!response)
        return repeat_key(transaction, key);
    if (!change_balance(transaction, key, credit, credit.amount))
        return {Decision::Kind::refused, "bank B has no account " + credit.account};
    commit(transaction);
    return {Decision::Kind::done, *response};
}

Decision BankB::undo(const std::string &key, const std::string &act_key, const Credit &credit) {
    Transaction transaction(session_);
    const auto response = decide_key(transaction, key, "applied", "{\"undone\": true}");
    if (!response)
        return repeat_key(transaction, key);
    if (!decide_key(transaction, act_key, "never", "null")) {
        transaction.run(mark_undone, {act_key});
        if (!change_balance(transaction, key, credit, "-" + credit.amount))
            throw Refused("", "account " + credit.account + " of bank B has gone");
    }
    commit(transaction);
    return {Decision::Kind::done, *response};
}

} // namespace stacksaga::demo
