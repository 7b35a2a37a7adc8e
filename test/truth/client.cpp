// A client that follows docs/dedupe.md ("Work outside the database") line by line: it begins its
// key, sets a recovery point, acts outside, sets another one and finishes. It may crash between any
// two lines, its answer may be lost, and the call outside may fail without an effect: then it
// releases the key. The service outside does not recognise a repetition, but can be asked; so a
// client that resumes asks it, and one whose key is new has nothing to ask for.
#include "small.hpp"

#include "core/dedupe/idempotency_state.hpp"

namespace stacksaga::truth {

namespace {

using Event = core::IdempotencyEvent;
using Key = core::IdempotencyState;
using Reply = core::IdempotencyReply;

enum class Line : Byte { idle, begun, reserved, acted, refused, noted };
constexpr int attempts_of_client = 4;

struct Client {
    Byte key;
    Byte attempt;  ///< of the key
    Byte point;    ///< 0: none, 1: "reserved", 2: "sent"
    Byte line;     ///< Line
    Byte lease;    ///< the attempt that the client began
    Byte resumes;  ///< it was told so
    Byte effects;  ///< outside
    Byte calls;    ///< how often the client was started
    Byte answered; ///< the caller has the response
};
static_assert(std::has_unique_object_representations_v<Client>);

Key key_of(const Client &c) {
    return static_cast<Key>(c.key);
}

/// What the tables do: the transition, and the row.
Reply call(Client &c, Event event) {
    if (event != Event::begin && c.lease != c.attempt)
        event = Event::stale_answer;
    const Reply reply = core::reply_to(key_of(c), event);
    const core::IdempotencyTransition *t = core::find_transition(key_of(c), event);
    if (t == nullptr)
        return reply;
    c.key = static_cast<Byte>(t->to);
    if (reply == Reply::begun) {
        c.attempt = 1;
        c.point = 0;
    } else if (reply == Reply::resumed) {
        ++c.attempt;
    } else if (t->to == Key::absent) {
        c.attempt = c.point = 0;
    }
    return reply;
}

Client stopped(Client c) {
    c.line = static_cast<Byte>(Line::idle);
    c.lease = c.resumes = 0;
    return c;
}

using Take = std::function<void(std::string, const Client &)>;

void begin(const Client &c, const Take &take) {
    Client next = c;
    if (next.calls == attempts_of_client)
        return;
    ++next.calls;
    switch (call(next, Event::begin)) {
    case Reply::begun:
    case Reply::resumed:
        next.resumes = next.attempt > 1;
        next.lease = next.attempt;
        next.line = static_cast<Byte>(Line::begun);
        take(next.resumes != 0 ? "the client resumes the key" : "the client begins the key", next);
        take("the client begins the key, and crashes", stopped(next));
        break;
    case Reply::replayed:
        next.answered = 1;
        take("the client gets the response again", stopped(next));
        break;
    default:
        break; // it is in progress
    }
}

void release(Client c, const Take &take) {
    call(c, core::release_event(c.attempt, c.point != 0));
    take("the client releases the key", stopped(c));
}

void act(const Client &c, const Take &take) {
    Client next = c;
    // It asks whether an earlier attempt did it: only one that resumes has a reason to.
    if (c.resumes != 0 && c.effects > 0) {
        next.line = static_cast<Byte>(Line::acted);
        take("the client finds that it was done", next);
        return;
    }
    Client failed = c;
    failed.line = static_cast<Byte>(Line::refused);
    take("the call outside has no effect", failed);
    ++next.effects;
    next.line = static_cast<Byte>(Line::acted);
    take("the client acts outside", next);
    take("the client acts outside, and crashes", stopped(next));
}

void step(const Client &c, const Take &take) {
    Client next = c;
    switch (static_cast<Line>(c.line)) {
    case Line::idle:
        begin(c, take);
        break;
    case Line::begun:
        release(c, take);   // it cannot go on, and this attempt has done nothing
        if (c.point == 2) { // it was done and noted
            next.line = static_cast<Byte>(Line::noted);
            take("the client goes on behind \"sent\"", next);
            break;
        }
        if (call(next, Event::checkpoint) == Reply::done) {
            next.point = 1;
            next.line = static_cast<Byte>(Line::reserved);
            take("the client notes \"reserved\"", next);
            take("the client notes \"reserved\", and crashes", stopped(next));
        } else {
            take("the client has lost its lease", stopped(next));
        }
        break;
    case Line::reserved:
        act(c, take);
        break;
    case Line::acted:
        if (call(next, Event::checkpoint) == Reply::done) {
            next.point = 2;
            next.line = static_cast<Byte>(Line::noted);
            take("the client notes \"sent\"", next);
            take("the client notes \"sent\", and crashes", stopped(next));
        } else {
            take("the client has lost its lease", stopped(next));
        }
        break;
    case Line::refused:
        release(c, take);
        break;
    case Line::noted:
        if (const Reply reply = call(next, Event::finish);
            reply == Reply::done || reply == Reply::repeated) {
            take("the client finishes, and its answer is lost", stopped(next));
            next.answered = 1;
            take("the client finishes", stopped(next));
        } else {
            take("the client has lost its lease", stopped(next));
        }
        break;
    }
    if (key_of(c) == Key::in_progress) {
        Client late = c;
        call(late, Event::lease_ends);
        late.key = static_cast<Byte>(Key::abandoned);
        take("the lease passes", late);
    }
}

const char *judge_client(const Client &c) {
    if (c.effects > 1)
        return "K the client acted twice under one key";
    if (c.answered != 0 && c.effects == 0)
        return "K the client answered, and nothing was done";
    if (key_of(c) == Key::completed && c.effects == 0)
        return "K the key is completed, and nothing was done";
    return nullptr;
}

} // namespace

Counts explore_client(Violations &found) {
    return explore_small<Client>(
        {.name = "a client of idempotency keys", .first = {}, .next = step, .judge = judge_client},
        found);
}

} // namespace stacksaga::truth
