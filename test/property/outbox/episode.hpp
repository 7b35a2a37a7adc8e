// One generated episode: some subscriptions, some keys, and random operations on them one after the
// other, each of which is passed to the models.
#pragma once

#include "model.hpp"

#include "../random.hpp"
#include "postgres.hpp"

#include <optional>

namespace stacksaga::property::outbox {

/// The sessions of a database in which episodes run.
struct Sessions {
    support::Session main;
    std::vector<std::string> heard; ///< notices of the statement that runs
    support::Session publishers[2];

    explicit Sessions(const std::string &conninfo);
};

class Episode {
public:
    Episode(Sessions &sessions, uint64_t seed, int number);

    /// Returns what went wrong, with the operations before it; nothing when all went well.
    std::optional<std::string> run();
    [[nodiscard]] const std::string &trace() const { return trace_; }

private:
    /// When it crashes it loses all its batches. Two have one name.
    enum class Process : uint8_t { own_name, first_of_name, second_of_name };
    struct Batch {
        Model *model;
        int64_t id;
        Process process;
        std::vector<std::pair<int, std::string>> messages; ///< number and id
    };
    /// A session of a publisher whose transaction may be open.
    struct Publisher {
        support::Session *session;
        bool is_open = false;
        int transaction = 0;
        std::vector<int> published{};
    };

    void set_up();
    void create_subscription();
    void operate();
    void publish();
    void end_transaction();
    void commit(const std::vector<int> &numbers);
    /// False: there was no message.
    bool receive(Model &model, Process process, int room, int lease);
    void crash(Process process);
    void receive_and_roll_back(Model &model);
    void fail(const Batch &batch);
    void extend(const Batch &batch);
    void release(const Batch &batch);
    void acknowledge(const Batch &batch);
    void run_pending(int limit, bool rolls_back);
    void heard(const std::string &notice);
    void choose_failure();
    void redrive_or_discard();
    void redrive(Model &model, int number);
    void redrive_oldest(Model &model);
    void alter();
    void maintain();
    void advance(int minutes);
    void drain();
    void tear_down();
    std::set<int> dead_numbers(const Model &model);
    void compare_dead(Model &model);
    void compare_all_dead();
    void check_end();
    /// The rows of the subscriptions, for the report.
    std::string tables();

    bool is_accepted(const std::string &sql);
    support::Rows run_sql(const std::string &sql) { return sessions_.main.run(sql.c_str()); }
    void note(const std::string &text);
    Model *any_service();
    const Batch *any_batch();
    [[nodiscard]] std::string id_of(int number) const;

    Sessions &sessions_;
    int number_;
    Random random_;
    std::map<int, Published> log_;
    std::vector<std::unique_ptr<Model>> models_;
    std::vector<Publisher> publishers_;
    std::vector<Batch> batches_;
    std::vector<std::string> keys_;
    std::map<int, std::string> ids_;
    std::set<int> killers_; ///< messages that end the process that receives them
    std::string trace_;
    int now_ = 0;       ///< minute
    int operation_ = 0; ///< counts
    bool has_one_partition_;
};

} // namespace stacksaga::property::outbox
