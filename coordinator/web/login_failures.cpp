#include "web/login_failures.hpp"

#include <algorithm>

namespace stacksaga::coordinator {

Duration LoginFailures::wait(const std::string &user, const std::string &address, SteadyTime now) {
    while (!failures_.empty() && now - failures_.front().at >= window)
        failures_.pop_front();
    std::size_t count = 0;
    SteadyTime first{};
    for (const Failure &failure : failures_)
        if (failure.user == user && failure.address == address && count++ == 0)
            first = failure.at;
    if (count < failures_max)
        return Duration::zero();
    return std::chrono::ceil<Duration>(window - (now - first));
}

void LoginFailures::add(const std::string &user, const std::string &address, SteadyTime now) {
    if (failures_.size() >= remembered_max)
        failures_.pop_front();
    failures_.push_back({now, user, address});
}

void LoginFailures::clear(const std::string &user, const std::string &address) {
    std::erase_if(failures_, [&](const Failure &failure) {
        return failure.user == user && failure.address == address;
    });
}

} // namespace stacksaga::coordinator
