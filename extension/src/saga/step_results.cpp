// What a session has read of the outputs of a long saga it keeps, so that a saga of a thousand
// steps does not read all of them anew for each. An effect stands as long as its saga does, and
// stages run in order; so what may have come since is what the steps up to the first incomplete
// stage have done, and only those that were not seen done are read again, each time.
//
// What was read in a transaction or subtransaction that rolls back is forgotten with it.
#include "src/saga/step_results.hpp"

#include "core/murmur3.hpp"

#include "pg/function.hpp"
#include "pg/scope.hpp"

namespace stacksaga {

namespace {

using core::Direction;

#define ACTS_OF_SAGA                                                                               \
    "SELECT step_no, output FROM stacksaga.effect"                                                 \
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"                 \
    "   AND direction = 'act'"
constinit pg::Statement select_all{ACTS_OF_SAGA, pg::Plans::by_index};
constinit pg::Statement select_range{ACTS_OF_SAGA " AND step_no BETWEEN $3 AND $4",
                                     pg::Plans::by_index};

// A shorter saga is read at once.
constexpr size_t steps_of_long_saga = 16;
// A session keeps so many sagas' results, of so many bytes each.
constexpr size_t places = 64;
constexpr size_t kept_bytes_max = 512 * 1024;

/// The results of one saga, in memory of the session.
struct Kept {
    pg_uuid_t saga_id;
    TimestampTz created_at;  ///< an id may come again when its saga has been removed
    bool *is_done = nullptr; ///< by step_no - 1: in `results`; nullptr: nothing is kept
    Jsonb *results = nullptr;
    SubTransactionId read_in; ///< the latest that read some of it and may still roll back
};
static_assert(std::is_trivially_destructible_v<Kept>);

constinit std::array<Kept, places> kept_results{};
constinit MemoryContext memory = nullptr;
constinit bool is_uncommitted = false; ///< some of it was read in this transaction

void forget(Kept &kept) {
    if (kept.is_done != nullptr)
        pfree(kept.is_done);
    if (kept.results != nullptr)
        pfree(kept.results);
    kept = Kept{};
}

/// Subtransactions are numbered in the order in which they begin, so what began inside the one that
/// rolls back has a number not less than its own.
void forget_read_since(SubTransactionId first) {
    for (Kept &kept : kept_results)
        if (kept.read_in >= first && kept.read_in != InvalidSubTransactionId)
            forget(kept);
}

void at_transaction_end(XactEvent event, void *) {
    if (!is_uncommitted)
        return;
    if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        forget_read_since(TopSubTransactionId);
    if (event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_COMMIT)
        return;
    for (Kept &kept : kept_results)
        kept.read_in = InvalidSubTransactionId;
    is_uncommitted = false;
}

void at_subtransaction_end(SubXactEvent event, SubTransactionId id, SubTransactionId, void *) {
    if (event == SUBXACT_EVENT_ABORT_SUB && is_uncommitted)
        forget_read_since(id);
}

void prepare_memory() {
    if (memory != nullptr)
        return;
    memory =
        AllocSetContextCreate(TopMemoryContext, "stacksaga step results", ALLOCSET_DEFAULT_SIZES);
    RegisterXactCallback(at_transaction_end, nullptr);
    RegisterSubXactCallback(at_subtransaction_end, nullptr);
}

Kept &place_of(const pg_uuid_t &saga_id) {
    const std::string_view bytes{reinterpret_cast<const char *>(saga_id.data), UUID_LEN};
    return kept_results[core::murmur3_x64_128(bytes, 0).h1 % places];
}

JsonbValue json_value(Datum output) {
    Jsonb *json = DatumGetJsonbP(output);
    JsonbValue value{};
    if (JB_ROOT_IS_SCALAR(json)) {
        JsonbExtractScalar(&json->root, &value);
    } else {
        value.type = jbvBinary;
        value.val.binary.data = &json->root;
        value.val.binary.len = static_cast<int>(VARSIZE(json) - VARHDRSZ);
    }
    return value;
}

struct Outputs {
    Jsonb *object;
    int16 count = 0;
};

/// Rows of (step_no, output) as an object; those that are in `is_done` are left out, and the others
/// noted there.
Outputs read_outputs(const Saga &saga, const pg::Rows &rows, bool *is_done) {
    Outputs outputs{};
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    for (uint64 i = 0; i < rows.count(); ++i) {
        const Step &step = saga.definition->step(rows.int2(i, 0));
        if (std::exchange(is_done[step.no - 1], true))
            continue;
        JsonbValue key{}, null{};
        key.type = jbvString;
        key.val.string.val = const_cast<char *>(step.name.data());
        key.val.string.len = static_cast<int>(step.name.size());
        pushJsonbValue(&state, WJB_KEY, &key);
        bool isnull;
        const Datum output = rows.datum(i, 1, &isnull);
        JsonbValue value = isnull ? null : json_value(output);
        pushJsonbValue(&state, WJB_VALUE, &value);
        ++outputs.count;
    }
    outputs.object = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr));
    return outputs;
}

/// The first stage that is not complete as far as is known.
int16 open_stage_of(const Saga &saga, const bool *is_done) {
    int16 stage = saga.definition->stages;
    for (const Step &s : saga.definition->steps)
        if (!is_done[s.no - 1])
            stage = std::min(stage, s.stage);
    return stage;
}

/// The steps up to `stage` that were not seen done, as a range. `step` itself is about to run.
struct Unseen {
    int16 first = INT16_MAX;
    int16 last = 0;
    int16 count = 0;
};
Unseen find_unseen(const Saga &saga, const bool *is_done, int16 stage, const Step *step) {
    Unseen unseen{};
    for (const Step &s : saga.definition->steps) {
        if (s.stage > stage || is_done[s.no - 1] || &s == step)
            continue;
        unseen.first = std::min(unseen.first, s.no);
        unseen.last = std::max(unseen.last, s.no);
        ++unseen.count;
    }
    return unseen;
}

Jsonb *copy_of(const Jsonb *json) {
    void *copy = MemoryContextAlloc(memory, VARSIZE(json));
    memcpy(copy, json, VARSIZE(json));
    return static_cast<Jsonb *>(copy);
}

/// From here on what was read is forgotten if the transaction rolls back.
void begin_reading(Kept &kept) {
    is_uncommitted = true;
    kept.read_in = std::max(kept.read_in, GetCurrentSubTransactionId());
}

void keep(Kept &kept, const Jsonb *results) {
    Jsonb *before = std::exchange(kept.results, copy_of(results));
    if (before != nullptr)
        pfree(before);
}

/// In memory of its own: what this leaves behind is many times as large as the results, and a
/// transaction may run many steps.
void append(Kept &kept, const Jsonb *outputs) {
    MemoryContext scratch =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga results", ALLOCSET_DEFAULT_SIZES);
    pg::in_context(scratch, [&] {
        keep(kept, DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(kept.results),
                                                      JsonbPGetDatum(outputs))));
    });
    MemoryContextDelete(scratch);
}

Jsonb *read_all(const Saga &saga, bool *is_done) {
    return read_outputs(saga, select_all.run(pg::param(saga.id), pg::param(saga.token)), is_done)
        .object;
}

Jsonb *read_once(const Saga &saga) {
    return read_all(saga, static_cast<bool *>(palloc0(saga.definition->steps.size())));
}

Jsonb *begin_keeping(const Saga &saga, Kept &kept) {
    begin_reading(kept);
    kept.saga_id = saga.id;
    kept.created_at = saga.created_at;
    kept.is_done =
        static_cast<bool *>(MemoryContextAllocZero(memory, saga.definition->steps.size()));
    Jsonb *results = read_all(saga, kept.is_done);
    if (VARSIZE(results) > kept_bytes_max)
        forget(kept);
    else
        keep(kept, results);
    return results;
}

/// Adds what has been done since. `step` is about to act; nullptr: all that is done is wanted.
Jsonb *read_more(const Saga &saga, Kept &kept, const Step *step) {
    for (;;) {
        const int16 stage = step != nullptr ? step->stage : open_stage_of(saga, kept.is_done);
        const Unseen unseen = find_unseen(saga, kept.is_done, stage, step);
        if (unseen.count == 0)
            break;
        const pg::Rows rows = select_range.run(pg::param(saga.id), pg::param(saga.token),
                                               pg::param(unseen.first), pg::param(unseen.last));
        begin_reading(kept);
        const Outputs outputs = read_outputs(saga, rows, kept.is_done);
        if (outputs.count == 0)
            break;
        if (VARSIZE(kept.results) + VARSIZE(outputs.object) > kept_bytes_max) {
            forget(kept);
            return read_once(saga);
        }
        append(kept, outputs.object);
        if (outputs.count < unseen.count) // so the next stage has not begun
            break;
    }
    return kept.results;
}

} // namespace

Datum step_results(const Saga &saga, const Step &step, Direction direction) {
    if (direction == Direction::act && step.stage == 1 && saga.definition->is_alone(step))
        return DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")); // nothing can be there yet
    if (saga.definition->steps.size() < steps_of_long_saga)
        return JsonbPGetDatum(read_once(saga));
    prepare_memory();
    Kept &kept = place_of(saga.id);
    if (kept.is_done != nullptr && memcmp(&kept.saga_id, &saga.id, UUID_LEN) == 0 &&
        kept.created_at == saga.created_at)
        return JsonbPGetDatum(read_more(saga, kept, direction == Direction::act ? &step : nullptr));
    forget(kept);
    return JsonbPGetDatum(begin_keeping(saga, kept));
}

} // namespace stacksaga
