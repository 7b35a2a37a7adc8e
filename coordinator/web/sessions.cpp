#include "web/sessions.hpp"

#include "web/random_text.hpp"

#include <algorithm>

namespace stacksaga::coordinator {
namespace {

constexpr std::size_t id_bytes = 32;

} // namespace

void Sessions::end_expired(SteadyTime now) {
    std::erase_if(sessions_, [now](const Session &session) {
        return now - session.used >= idle_max || now - session.began >= age_max;
    });
}

const Session &Sessions::begin(const std::string &user, SteadyTime now) {
    end_expired(now);
    std::size_t of_user = 0;
    std::erase_if(sessions_, [&](const Session &session) {
        return session.user == user && ++of_user >= of_user_max;
    });
    sessions_.push_front({random_text(id_bytes), random_text(id_bytes), user, now, now});
    return sessions_.front();
}

const Session *Sessions::find(std::string_view id, SteadyTime now, bool is_use) {
    end_expired(now);
    // All are compared, each in the same time: neither shows how much of a guess is right.
    auto found = sessions_.end();
    for (auto each = sessions_.begin(); each != sessions_.end(); ++each)
        if (equal_secrets(each->id, id))
            found = each;
    if (found == sessions_.end())
        return nullptr;
    if (is_use) {
        found->used = now;
        sessions_.splice(sessions_.begin(), sessions_, found);
    }
    return &*found;
}

void Sessions::end(std::string_view id) {
    std::erase_if(sessions_, [id](const Session &session) { return session.id == id; });
}

void Sessions::end_of_user(std::string_view user) {
    std::erase_if(sessions_, [user](const Session &session) { return session.user == user; });
}

} // namespace stacksaga::coordinator
