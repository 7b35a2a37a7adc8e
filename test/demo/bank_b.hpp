// Bank B as the service sees it: credits and their undoing, each at most once.
#pragma once

#include "postgres.hpp"

#include <string>

namespace stacksaga::demo {

using namespace support;

/// A credit to an account of bank B.
struct Credit {
    std::string saga_id;
    std::string account;
    std::string amount;
};

/// What became of a request.
struct Decision {
    enum class Kind {
        done, ///< `text` is the response, as JSON; the same one whenever the same key comes again
        refused, ///< for good; `text` says why
    };
    Kind kind;
    std::string text;
};

/// The connection broke while the decision was being committed: nobody knows whether it was.
class InDoubt : public Disconnected {
public:
    using Disconnected::Disconnected;
};

/// Each request is one transaction: the balance, the journal, and a row for the idempotency key. So
/// a key that comes again changes nothing and gets the response that it got before.
///
/// Everything throws Refused or Disconnected when nothing was changed, InDoubt when that is not
/// known.
class BankB {
public:
    explicit BankB(std::string conninfo) : session_(std::move(conninfo)) {}

    Decision credit(const std::string &key, const Credit &credit);

    /// Undoes the credit that was made under `act_key`. If there was none (yet), leaves a
    /// tombstone: a credit under that key that arrives later is refused.
    Decision undo(const std::string &key, const std::string &act_key, const Credit &credit);

private:
    Session session_;
};

} // namespace stacksaga::demo
