// The reference: what the calls of the dedupe ladder answer, to several sessions at once, and what
// their transactions leave behind. Written from the documentation.
//
// A session holds the lock of a key, a producer or a value from the first call that writes it to
// the end of the (sub)transaction; sessions that wait for it get it in the order in which they
// came. Messages and sweeps have no such lock: there a session waits for the end of whichever
// transaction wrote the row.
#pragma once

#include "../connection.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace stacksaga::property::keys {

class Disagreement : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class Kind : uint8_t { key, message, producer, value };

/// A key, a message id, a producer or a value of this episode.
struct Thing {
    Kind kind;
    std::string name;
    auto operator<=>(const Thing &) const = default;
};
std::string name_of(const Thing &thing);

/// Time and durations are in half hours. The clock moves by even numbers of them, and all durations
/// are odd, so that nothing ends at the instant of a call.
struct KeyRow {
    int attempt;
    long long lease;
    int lease_until; ///< 0 when it is completed, where it does not matter
    int lease_length;
    int retention;
    std::optional<int> completed_at;
    std::optional<std::string> request, recovery_point, response;
    bool operator==(const KeyRow &) const = default;
    [[nodiscard]] bool has_expired(int now) const {
        return completed_at && *completed_at + retention <= now;
    }
};
struct MessageRow {
    int expires_at;
    bool operator==(const MessageRow &) const = default;
};
struct ProducerRow {
    long long epoch, sequence;
    bool operator==(const ProducerRow &) const = default;
};
struct ValueRow {
    long long version;
    std::optional<std::string> value; ///< nullopt: deleted
    bool operator==(const ValueRow &) const = default;
};
using Row = std::variant<KeyRow, MessageRow, ProducerRow, ValueRow>;
using Table = std::map<Thing, Row>;
std::string text_of(const Row &row);

enum class Function : uint8_t {
    begin,
    checkpoint,
    finish,
    release,
    accept_message,
    accept_sequence,
    compare_and_set,
    read_value,
    sweep,
    invalid, ///< some call with an argument that is not valid
};

struct Call {
    Function function;
    Thing thing{};
    int now = 0;
    std::string sql{};
    std::optional<std::string> request{}; ///< of equal requests the same
    int lease_length = 0;
    int retention = 0;
    bool waits = false;
    long long lease = 0;
    std::optional<std::string> text{}; ///< recovery point, response or value
    long long epoch = 0, sequence = 0;
    std::optional<long long> version{};
    bool has_lock_timeout = false;
    std::string refusal{}; ///< the SQLSTATE of what is not valid
};

/// What a call is answered, and the row that it leaves.
struct Expected {
    std::string sqlstate{};
    std::vector<std::optional<std::string>> row{};
    bool gives_lease = false;                  ///< as the fifth column; any new one
    std::optional<int> lease_left{};           ///< half hours, in DETAIL
    std::optional<std::optional<Row>> write{}; ///< of nullopt: the row is deleted
    bool may_not_serialize = false;            ///< 40001 is as right
};

/// Either the sessions that the call waits for, or its answer.
struct Prediction {
    std::set<int> blockers{};
    Expected expected{};
    [[nodiscard]] bool is_blocked() const { return !blockers.empty(); }
};

enum class Isolation : uint8_t { read_committed, repeatable_read, serializable };

class Model {
public:
    explicit Model(int sessions) : sessions_(static_cast<size_t>(sessions)) {}

    void begin(int session, Isolation isolation, bool is_read_only);
    void savepoint(int session);
    /// To or of the savepoint below level `level`, which counts from 1.
    void roll_back_to(int session, size_t level);
    void release(int session, size_t level);
    /// Whether it commits: a transaction that failed is rolled back.
    bool commit(int session);
    void roll_back(int session);
    /// A statement failed that is not one of the calls.
    void fail(int session) { abort(at(session)); }

    void start(int session, const Call &call);
    [[nodiscard]] Prediction predict(int session) const;
    /// Whether the answer is one that the prediction allows; why not.
    [[nodiscard]] std::string mismatch(int session, const Reply &reply) const;
    /// The call was answered so, which matches.
    void answered(int session, const Reply &reply);
    /// A sweep was answered, and has done this to the rows that its session sees.
    void swept(int session, const std::set<Thing> &removed, const std::set<Thing> &touched);
    /// The call was cancelled, or chosen to resolve a deadlock.
    void cancelled(int session);
    /// Whether the call may go on or wait for the end of a transaction that wrote its row in a
    /// subtransaction that is gone; and which of them it is.
    [[nodiscard]] bool may_wait_on(int session) const { return at(session).may_wait_on; }
    void waits_on(int session, bool waits);
    /// Sessions that wait for each other; empty: there are none.
    [[nodiscard]] std::set<int> deadlock() const;

    [[nodiscard]] bool is_waiting(int session) const { return at(session).call.has_value(); }
    [[nodiscard]] const Call &call(int session) const { return *at(session).call; }
    [[nodiscard]] bool is_in_transaction(int session) const { return at(session).in_transaction; }
    [[nodiscard]] bool is_aborted(int session) const { return at(session).is_aborted; }
    [[nodiscard]] bool is_read_only(int session) const { return at(session).is_read_only; }
    [[nodiscard]] Isolation isolation(int session) const { return at(session).isolation; }
    [[nodiscard]] size_t levels(int session) const { return at(session).levels.size(); }
    [[nodiscard]] const Table &committed() const { return committed_; }
    /// How many transactions have ended.
    [[nodiscard]] int commits() const { return commits_; }
    /// The rows that a session's next statement sees.
    [[nodiscard]] Table visible(int session) const;
    /// All leases that were given for a key, in their order.
    [[nodiscard]] const std::vector<long long> &leases(const Thing &key) { return leases_[key]; }
    [[nodiscard]] std::string describe() const;

private:
    /// What one subtransaction did.
    struct Level {
        std::map<Thing, std::optional<Row>> writes{};
        std::set<Thing> locks{};
        std::set<Thing> touched{}; ///< rows that a sweep has locked
        /// Rows that a subtransaction wrote that was released. Who waits for one waits for the end
        /// of the transaction from then on, unless it is too slow to notice: PostgreSQL knows of no
        /// other end of a released subtransaction.
        std::set<Thing> released{};
    };
    enum class Phase : uint8_t { started, queued, granted };
    struct Session {
        bool in_transaction = false;
        bool is_aborted = false;
        bool is_read_only = false;
        Isolation isolation = Isolation::read_committed;
        std::vector<Level> levels{};
        std::optional<Call> call{};
        Phase phase = Phase::started;
        bool waited_for_row = false;
        std::optional<int> waits_on{}; ///< for the end of this session's transaction
        bool may_wait_on = false;      ///< or it goes on
    };

    Session &at(int session) { return sessions_[static_cast<size_t>(session)]; }
    [[nodiscard]] const Session &at(int session) const {
        return sessions_[static_cast<size_t>(session)];
    }
    [[nodiscard]] std::optional<Row> find(int session, const Thing &thing) const;
    [[nodiscard]] std::optional<int> lock_holder(const Thing &thing) const;
    [[nodiscard]] std::optional<int> row_holder(const Thing &thing, int except) const;
    /// What a begin is answered before it asks for the lock.
    [[nodiscard]] std::optional<Expected> early_reply(int session, const Call &call) const;
    [[nodiscard]] bool needs_lock(int session, const Call &call) const;
    [[nodiscard]] Expected decide(int session, const Call &call) const;
    void note_row_waits();
    void keep_waiting(const Session &holder, size_t level);
    void end_waits_on(const Session &s);
    void abort(Session &s);
    void end_call(int session, bool accepted);
    void end_transaction(Session &s);
    void unlock(const std::set<Thing> &locks);

    std::vector<Session> sessions_;
    Table committed_;
    int commits_ = 0;
    std::map<Thing, std::deque<int>> queues_;
    std::map<Thing, std::vector<long long>> leases_;
};

} // namespace stacksaga::property::keys
