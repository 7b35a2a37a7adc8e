#include "web/login_limits.hpp"

#include <algorithm>

namespace stacksaga::coordinator {
namespace {

/// Until an attempt is on time.
Duration wait_of(const std::map<std::string, SteadyTime> &turns, const std::string &key,
                 Duration interval, SteadyTime now) {
    const auto found = turns.find(key);
    if (found == turns.end())
        return Duration::zero();
    const auto early = found->second - now - (LoginLimits::burst - 1) * interval;
    return std::max(std::chrono::ceil<Duration>(early), Duration::zero());
}

void take_turn(std::map<std::string, SteadyTime> &turns, const std::string &key, Duration interval,
               SteadyTime now) {
    std::erase_if(turns, [now](const auto &each) { return each.second <= now; });
    SteadyTime &next = turns[key];
    next = std::max(next, now) + interval;
}

void give_back(std::map<std::string, SteadyTime> &turns, const std::string &key,
               Duration interval) {
    if (const auto found = turns.find(key); found != turns.end())
        found->second -= interval;
}

} // namespace

Duration LoginLimits::locked_for(const std::string &user, const std::string &address,
                                 SteadyTime now) {
    while (!failures_.empty() && now - failures_.front().at >= window)
        failures_.pop_front();
    std::size_t count = 0;
    SteadyTime first{};
    for (const Failure &failure : failures_)
        if (failure.user == user && failure.address == address && count++ == 0)
            first = failure.at;
    return count < failures_max ? Duration::zero()
                                : std::chrono::ceil<Duration>(window - (now - first));
}

LoginLimits::Verdict LoginLimits::admit(const std::string &user, const std::string &address,
                                        SteadyTime now) {
    Verdict verdict;
    verdict.wait = locked_for(user, address, now);
    if (verdict.wait > Duration::zero()) {
        verdict.is_guessing = true;
        return verdict;
    }
    const auto known = logged_in_.find({user, address});
    verdict.has_reserve = known != logged_in_.end() && now - known->second < reserve_kept;
    if (!verdict.has_reserve) {
        const Duration of_user = wait_of(users_, user, interval_of_user, now);
        verdict.wait = std::max(of_user, wait_of(addresses_, address, interval_of_address, now));
        if (verdict.wait > longest_wait) {
            verdict.is_guessing = of_user > longest_wait;
            verdict.wait -= longest_wait;
            return verdict;
        }
        take_turn(users_, user, interval_of_user, now);
        take_turn(addresses_, address, interval_of_address, now);
    }
    if (failures_.size() >= remembered_max)
        failures_.pop_front();
    failures_.push_back({now, user, address});
    verdict.is_admitted = true;
    return verdict;
}

void LoginLimits::succeeded(const std::string &user, const std::string &address,
                            const Verdict &verdict, SteadyTime now) {
    std::erase_if(failures_, [&](const Failure &failure) {
        return failure.user == user && failure.address == address;
    });
    if (!verdict.has_reserve) {
        give_back(users_, user, interval_of_user);
        give_back(addresses_, address, interval_of_address);
    }
    std::erase_if(logged_in_,
                  [now](const auto &each) { return now - each.second >= reserve_kept; });
    if (logged_in_.size() < remembered_max || verdict.has_reserve)
        logged_in_[{user, address}] = now;
}

} // namespace stacksaga::coordinator
