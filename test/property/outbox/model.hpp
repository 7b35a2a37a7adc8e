// The reference: what a subscription may be given, and which answers may be accepted, as far as the
// contract says. It gets all observations, and objects to those that must not be.
//
// It predicts nothing that the contract leaves open: which partitions a batch takes, whether an
// expired lease is lost already. Its rules for a message hold for any order of partitions.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace stacksaga::property::outbox {

/// Time is counted in minutes, and the order of events in operations.
constexpr int never = std::numeric_limits<int>::max();

class Disagreement : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct Published {
    int number;
    std::string topic;
    std::string key; ///< empty: none
    bool is_delayed;
    int deliver_at;        ///< minute
    int published_at;      ///< operation
    int committed = never; ///< operation
    int transaction = -1;  ///< that published others as well; -1: none

    /// Whether its publishing was over before that of the other one began.
    [[nodiscard]] bool is_before(const Published &other) const {
        return committed < other.published_at ||
               (transaction >= 0 && transaction == other.transaction && number < other.number);
    }
};

struct Settings {
    std::string name;
    std::string topic;   ///< may end in *
    std::string handler; ///< service, single or batch
    bool stops;
    bool has_fallback;
    int max_attempts; ///< 0: no limit
    int created_at;   ///< operation

    [[nodiscard]] bool is_service() const { return handler == "service"; }
    [[nodiscard]] bool may_retry(int attempt) const {
        return max_attempts == 0 || attempt < max_attempts;
    }
};

/// Minutes before the attempt after this one, by the policy of all generated subscriptions.
constexpr int initial_interval = 1, multiplier = 2, max_interval = 8;
int pause_after(int attempt);

enum class Status : uint8_t { open, fallback, dead, done, discarded };
const char *name_of(Status status);

struct Given {
    int number;
    int attempt;
};

enum class FailureClass : uint8_t { retryable, non_retryable, unknown };

class Model {
public:
    Model(Settings settings, const std::map<int, Published> &log)
        : settings_(std::move(settings)), log_(log) {}

    [[nodiscard]] const Settings &settings() const { return settings_; }

    /// receive_messages() has returned this batch.
    void received(int64_t batch, const std::vector<Given> &messages, const std::string &consumer,
                  int now, int lease);
    /// A message of another batch has ended the process that holds this one.
    void lost_together(int64_t batch, int now);
    /// An answer for a batch was accepted, or refused since its lease is lost.
    void failed(int64_t batch, int number, FailureClass failure_class, int retry_after,
                bool accepted, int now);
    void extended(int64_t batch, int minutes, bool accepted, int now);
    void acknowledged(int64_t batch, bool accepted, long long count, int now);
    void released(int64_t batch, int minutes, bool accepted, int now);
    /// A handler was called, and raised an error of this class or returned.
    void handled(const std::vector<Given> &messages, bool by_fallback, bool succeeded,
                 FailureClass failure_class, int now);
    /// Sessions other than a consumer may have ended batches whose leases ran out.
    void maintained();
    /// These messages are dead, and no others.
    void are_dead(const std::set<int> &numbers);
    /// It may come again from this minute on.
    void redriven(int number, int due);
    void discarded(int number);
    /// Its settings are these from now on.
    void altered(const Settings &settings, int now);

    [[nodiscard]] bool holds_lease(int now) const;
    [[nodiscard]] std::vector<int> dead() const;
    /// The messages that are not settled, as text; empty: all are.
    [[nodiscard]] std::string unsettled() const;
    [[nodiscard]] std::string describe(int number) const;

private:
    struct Delivery {
        Status status = Status::open;
        bool was_given = false;
        int attempt = 0;      ///< the last one that it was given as
        int next_attempt = 0; ///< the one that must come next; 0: not known
        int due = 0;          ///< minute
        int64_t batch = 0;
        bool in_doubt = false;        ///< a batch was lost with it, or it was reported unknown
        bool may_be_given_up = false; ///< under settings that it had before, unseen
    };
    struct Batch {
        std::vector<int> messages;
        std::set<int> failed;
        std::string consumer;
        int received_at; ///< minute
        int lease_until;
        int answered_at = never; ///< minute
        bool is_lost_together = false;
        bool is_over = false;
        bool is_released = false;    ///< it was given back
        bool is_given_again = false; ///< a message of it, since
        bool halves = true; ///< when it is lost, the next one with a message of it is half as large
    };

    [[nodiscard]] bool wants(const Published &p) const;
    [[nodiscard]] const Published &published(int number) const { return log_.at(number); }
    Delivery &require_deliverable(const Given &given, int now);
    struct Charged {
        int least, most;
    };
    /// How many attempts it was charged, if the batch that it was last in is lost.
    [[nodiscard]] Charged charged(int number, const Delivery &d) const;
    /// Whether its consumer held another one at the same time that may not have been answered.
    [[nodiscard]] bool may_have_company(const Batch &batch) const;
    void require_order(const Published &p, const std::set<int> &before,
                       const std::set<int> &together);
    void give(const std::vector<Given> &messages, int64_t batch, int now);
    void fail(int number, FailureClass failure_class, int retry_after, int now);
    Batch &answer(int64_t batch, bool accepted, int now, const char *what);
    /// The engine gave up on it by itself: its consumer has lost its batch.
    void gave_up(int number, Delivery &d);
    [[noreturn]] void object(int number, const std::string &why) const;

    Settings settings_;
    const std::map<int, Published> &log_;
    std::map<int, Delivery> deliveries_;
    std::map<int64_t, Batch> batches_;
};

} // namespace stacksaga::property::outbox
