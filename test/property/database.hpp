// A database in which generated sagas are run, many at once, while time is moved hour by hour.
#pragma once

#include "postgres.hpp"
#include "trace.hpp"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace stacksaga::property {

/// Attempts to act whose lease ran out, and how many of them were of steps that have this.
struct LostLeases {
    long long all;
    long long with_verify;
    long long with_fallback;
    long long irreversible;
    [[nodiscard]] bool is_of_every_kind() const {
        return with_verify > 0 && with_fallback > 0 && irreversible > 0;
    }
};

class Database {
public:
    /// `script` is property.sql. Makes the database `name` in the server of libpq's environment.
    Database(const std::string &name, const std::string &script, uint64_t seed);

    /// Runs the sagas first..last-1 to their ends, and adds a report for each that broke a promise
    /// or disagrees with the model, or for every saga (`report_all`). Returns how many did so.
    int run(int first, int last, bool report_all, std::vector<std::string> &reports);

    /// Of all sagas that have run here.
    [[nodiscard]] const LostLeases &lost_leases() const { return lost_leases_; }

private:
    /// An answer to come, or an extension of a lease (minutes > 0).
    struct Planned {
        Trace *trace;
        Answer answer;
        int attempt;
        int minutes;
    };

    void start_all();
    bool operate();
    void rescue_parked();
    void run_tick();
    void crash_drill();
    long long run_workers();
    bool run_services();
    bool claim_from(std::string_view queue);
    bool give_answers();
    void plan_answers(Trace &trace, const Claim &claim);
    void noticed(std::string_view notice, Window w);
    std::string work_of(const Trace &trace);
    void compare_statuses();
    void check_promises();
    std::map<int, Facts> read_facts();
    void check_changes();
    void count_lost_leases();
    std::string report(const Trace &trace);
    Window window_to(Time now);
    Trace &trace_of(int number) { return traces_[static_cast<size_t>(number - first_)]; }
    support::Rows run_sql(const char *sql, const std::vector<std::string> &parameters = {}) {
        return session_.run(sql, parameters);
    }

    uint64_t seed_;
    support::Session session_;
    std::deque<Definition> definitions_;
    std::deque<Trace> traces_;
    std::map<int, std::vector<Planned>> calendar_; ///< by tick
    std::map<int, std::vector<std::pair<Trace *, Operation>>> operations_;
    std::vector<std::string> heard_; ///< notices of the statement that runs
    LostLeases lost_leases_{};
    int first_ = 0;
    int tick_ = 0;
    Time now_ = 0;       ///< as of the last statement
    Time polled_at_ = 0; ///< when workers or services last polled
};

} // namespace stacksaga::property
