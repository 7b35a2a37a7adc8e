#include "src/operate/contradiction.hpp"

#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/counters.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_contradiction{
    "INSERT INTO stacksaga.saga_contradiction (saga_id, step_no, direction, token, lease, answer,"
    "       answered_at)"
    " SELECT $1, $2, $3, s.token, $5, $6, $7 FROM stacksaga.saga s"
    "  WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $4::stacksaga.ring_token"
    " ON CONFLICT DO NOTHING"};
constinit pg::Statement acknowledge_of_step{
    "UPDATE stacksaga.saga_contradiction SET acknowledged_at = $4"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND acknowledged_at IS NULL RETURNING 1"};

/// A place of the file. Its state grows by one with each change; the remainder of its division by
/// the number of phases is the phase.
struct Place {
    pg_atomic_uint64 state;
    Contradiction kept;
};
constexpr uint64 free_phase = 0, written_phase = 1, kept_phase = 2, phases = 3;
struct File {
    std::array<Place, 128> places;
};
static_assert(std::is_trivially_copyable_v<Contradiction>);

constinit File *file = nullptr;
constinit bool is_refused = false;

/// Beside the counters' file and those of the workers, whose numbers begin at 0.
File *contradiction_file() {
    if (file != nullptr || is_refused)
        return file;
    std::array<char, MAXPGPATH> path{};
    snprintf(path.data(), path.size(), "%s/stacksaga.%u.-1", PG_STAT_TMP_DIR, MyDatabaseId);
    const int descriptor = OpenTransientFile(path.data(), O_RDWR | O_CREAT | PG_BINARY);
    if (descriptor >= 0) {
        errno = posix_fallocate(descriptor, 0, sizeof(File));
        void *memory = errno != 0 ? MAP_FAILED
                                  : mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED,
                                         descriptor, 0);
        file = memory == MAP_FAILED ? nullptr : static_cast<File *>(memory);
    }
    is_refused = file == nullptr;
    if (is_refused)
        ereport(LOG,
                (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path.data()),
                 errdetail("doctor() does not show answers that contradict others.")));
    if (descriptor >= 0)
        CloseTransientFile(descriptor);
    return file;
}

bool is_same(const Contradiction &a, const Contradiction &b) {
    return memcmp(&a.saga_id, &b.saga_id, sizeof a.saga_id) == 0 && a.step_no == b.step_no &&
           a.direction == b.direction && a.lease == b.lease && a.failed == b.failed;
}

/// The contradiction that a place holds, if any; `state` is the place's state at that time.
std::optional<Contradiction> read_place(Place &place, uint64 &state) {
    state = pg_atomic_read_u64(&place.state);
    if (state % phases != kept_phase)
        return std::nullopt;
    pg_read_barrier();
    const Contradiction kept = place.kept;
    pg_read_barrier();
    if (pg_atomic_read_u64(&place.state) != state)
        return std::nullopt;
    return kept;
}

bool is_kept(File &places, const Contradiction &contradiction) {
    return std::ranges::any_of(places.places, [&](Place &place) {
        uint64 state;
        const std::optional<Contradiction> kept = read_place(place, state);
        return kept && is_same(*kept, contradiction);
    });
}

void keep(File &places, const Contradiction &contradiction) {
    for (Place &place : places.places) {
        uint64 state = pg_atomic_read_u64(&place.state);
        if (state % phases != free_phase ||
            !pg_atomic_compare_exchange_u64(&place.state, &state, state + written_phase))
            continue;
        place.kept = contradiction;
        pg_write_barrier();
        pg_atomic_fetch_add_u64(&place.state, kept_phase - written_phase);
        return;
    }
}

std::string_view answer_of(const Contradiction &c) {
    return c.failed ? core::name_of(*c.failed) : "done";
}

void insert(const Contradiction &c) {
    insert_contradiction.run(
        pg::param(c.saga_id), pg::param(c.step_no), pg::param(core::name_of(c.direction)),
        pg::param(core::token_of_uuid(c.saga_id.data).value()), pg::param(c.lease),
        pg::param(answer_of(c)), pg::param_time(c.answered_at));
}

/// Moves the contradictions of the step from the file to the table, and acknowledges all of them.
/// Returns whether there was any.
bool acknowledge(const Saga &saga, const Step &step) {
    if (File *places = contradiction_file())
        for (Place &place : places->places) {
            uint64 state;
            const std::optional<Contradiction> kept = read_place(place, state);
            if (kept && memcmp(&kept->saga_id, &saga.id, sizeof saga.id) == 0 &&
                kept->step_no == step.no)
                insert(*kept);
        }
    return !acknowledge_of_step
                .run(pg::param(saga.id), pg::param(saga.token), pg::param(step.no),
                     pg::param_time(saga.now))
                .empty();
}

} // namespace

void note_contradiction(const Contradiction &contradiction, std::string_view step) {
    File *places = contradiction_file();
    if (places != nullptr && is_kept(*places, contradiction))
        return;
    ereport(LOG,
            (errmsg("an answer to step \"%s\" of saga %s contradicts what settled it", clip(step),
                    uuid_text(contradiction.saga_id)),
             errdetail("It says %s of its %s, under lease " INT64_FORMAT ".",
                       answer_of(contradiction).data(),
                       contradiction.direction == core::Direction::act ? "action" : "compensation",
                       contradiction.lease),
             errhint("Find out which of the two is true, and acknowledge it with "
                     "stacksaga.acknowledge_contradiction().")));
    count_at_once(Counter::contradictions);
    if (places != nullptr)
        keep(*places, contradiction);
}

void store_contradictions() {
    File *places = contradiction_file();
    if (places == nullptr)
        return;
    struct Stored {
        Place *place;
        uint64 state;
    };
    std::array<Stored, std::tuple_size_v<decltype(File::places)>> stored;
    size_t count = 0;
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi([&] {
            for (Place &place : places->places) {
                uint64 state;
                if (const std::optional<Contradiction> kept = read_place(place, state)) {
                    insert(*kept);
                    stored[count++] = {.place = &place, .state = state};
                }
            }
        });
    });
    for (const Stored &s : std::span{stored}.first(count)) { // another worker may have stored it
        uint64 expected = s.state;
        pg_atomic_compare_exchange_u64(&s.place->state, &expected, s.state - kept_phase + phases);
    }
}

// kept_contradictions() -> TABLE(saga_id, step_no, direction, lease, answer, answered_at)
STACKSAGA_FUNCTION(kept_contradictions) {
    const auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    pg::ResultSet result(fcinfo);
    File *places = contradiction_file();
    if (places == nullptr)
        return result.finish();
    for (Place &place : places->places) {
        uint64 state;
        const std::optional<Contradiction> kept = read_place(place, state);
        if (!kept)
            continue;
        pg_uuid_t id = kept->saga_id;
        result.add(pg::of(UUIDPGetDatum(&id)), pg::of(Int16GetDatum(kept->step_no)),
                   text(core::name_of(kept->direction)), pg::of(Int64GetDatum(kept->lease)),
                   text(answer_of(*kept)), pg::of(TimestampTzGetDatum(kept->answered_at)));
    }
    return result.finish();
}

// acknowledge_contradiction(saga_id, step, reason) -> void
STACKSAGA_FUNCTION(acknowledge_contradiction) {
    pg::Arguments arguments(fcinfo);
    const pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    const std::string_view name = arguments.required_text(1, "step");
    const std::string_view reason = required_reason(arguments, 2);
    pg::with_spi([&] {
        Saga &saga = require_saga(id, pg::clock_now());
        const Step *step = saga.definition->find(name);
        if (step == nullptr)
            raise_unknown_step(saga, name);
        if (!acknowledge(saga, *step))
            ereport(ERROR,
                    (errcode(pg::sg409),
                     errmsg("step \"%s\" of saga %s has no contradiction to acknowledge",
                            clip(name), uuid_text(saga.id)),
                     errdetail("No answer contradicts what settled the step, or each one was "
                               "acknowledged."),
                     errhint("stacksaga.doctor() lists what is to be acknowledged.")));
        write_action(saga, {.action = "acknowledge",
                            .status_before = saga.status(),
                            .reason = reason,
                            .step_no = step->no});
    });
    PG_RETURN_VOID();
}

} // namespace stacksaga
