#include "src/handler/crash_record.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "src/common/limits.hpp"
#include "src/worker/crash_charge.hpp"

namespace stacksaga {

namespace {

constexpr char file_prefix[] = "stacksaga."; // then the database's OID, a dot, the worker's number
constexpr uint32 file_magic = 0x53474e32;    // to be changed with the layout
constexpr std::string_view death_sqlstate = "57P02";

enum class Named : uint32 { nothing, item, message, batch };

/// What the file holds.
struct NameFile {
    uint32 magic;
    Named named; ///< written after what it names and erased before it
    DueItem item;
    NamedMessage message;
    NamedBatch batch;
};
static_assert(std::is_trivially_copyable_v<NameFile>);

constinit NameFile *file = nullptr;
constinit std::array<char, MAXPGPATH> path{};
constinit NameFile last_words{};
constinit bool follows_death = false;

constinit pg::Statement count_deaths{
    "SELECT count(*) FROM stacksaga.failure"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4 AND sqlstate = $5 AND error = $6"};
constinit pg::Statement find_saga{
    "SELECT FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

void set_named(Named named) {
    pg_compiler_barrier();
    *const_cast<volatile Named *>(&file->named) = named;
    pg_compiler_barrier();
}

/// Writes the name by `write`.
template <class F> void name(Named named, F &&write) {
    if (file == nullptr)
        return;
    set_named(Named::nothing);
    write();
    set_named(named);
}

bool saga_exists(const pg_uuid_t &id) {
    return !find_saga.run(pg::param(id), pg::param(core::token_of_uuid(id.data).value())).empty();
}

// ----------------------------------------------------------------------------- signals

/// SIGTERM: somebody tells this process to quit. A handler that sends it to its own process does
/// not: that one would do so for ever.
void on_terminate(int signal, siginfo_t *info, void *) {
    if (info->si_pid != MyProcPid)
        name_nothing();
    die(signal);
}

/// SIGQUIT: the server is being shut down at once, or another of its processes has crashed.
void on_quit(int signal) {
    name_nothing();
    SignalHandlerForCrashExit(signal);
}

// ----------------------------------------------------------------------------- the file

/// Before the locks of the process are released: then another one may have the number.
void at_exit(int, Datum) {
    if (file != nullptr && file->named == Named::nothing)
        unlink(path.data());
}

/// Maps the file, whose blocks are written first: touching a hole of a full disk would be SIGBUS.
NameFile *map_file(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return nullptr;
    if (status.st_size < static_cast<off_t>(sizeof(NameFile))) {
        const NameFile empty{};
        if (pg_pwrite(descriptor, &empty, sizeof empty, 0) != static_cast<ssize_t>(sizeof empty)) {
            if (errno == 0)
                errno = ENOSPC;
            return nullptr;
        }
    }
    void *memory =
        mmap(nullptr, sizeof(NameFile), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<NameFile *>(memory);
}

} // namespace

void erase_name_on_signals() {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    action.sa_sigaction = on_terminate;
    sigaction(SIGTERM, &action, nullptr);
    action.sa_flags = SA_RESTART;
    action.sa_handler = on_quit;
    sigaction(SIGQUIT, &action, nullptr);
}

void open_name_file(int32 number) {
    snprintf(path.data(), path.size(), "%s/%s%u.%d", PG_STAT_TMP_DIR, file_prefix, MyDatabaseId,
             number);
    errno = 0;
    const int descriptor = OpenTransientFile(path.data(), O_RDWR | O_CREAT | PG_BINARY);
    if (descriptor >= 0)
        file = map_file(descriptor);
    if (file == nullptr)
        ereport(LOG,
                (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path.data()),
                 errdetail("A handler that ends this process again and again will not be "
                           "noticed.")));
    if (descriptor >= 0)
        CloseTransientFile(descriptor);
    if (file == nullptr)
        return;
    if (file->magic == file_magic && file->named != Named::nothing)
        last_words = *file;
    else
        name_nothing();
    follows_death = has_last_words();
    file->magic = file_magic;
    before_shmem_exit(at_exit, 0);
}

void abandon_name_file() {
    if (file != nullptr)
        munmap(file, sizeof(NameFile));
    file = nullptr;
}

void sweep_name_files() {
    DIR *folder = AllocateDir(PG_STAT_TMP_DIR);
    while (const dirent *entry = ReadDirExtended(folder, PG_STAT_TMP_DIR, LOG)) {
        Oid database = InvalidOid;
        int number = 0;
        if (sscanf(entry->d_name, "stacksaga.%u.%d", &database, &number) != 2 ||
            SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database)))
            continue;
        char name[MAXPGPATH];
        snprintf(name, sizeof name, "%s/%s%u.%d", PG_STAT_TMP_DIR, file_prefix, database, number);
        unlink(name);
    }
    FreeDir(folder);
}

void name_item(const DueItem &item) {
    name(Named::item, [&] { file->item = item; });
}

void name_message(const NamedMessage &message) {
    name(Named::message, [&] { file->message = message; });
}

void name_batch(const NamedBatch &batch) {
    name(Named::batch, [&] { file->batch = batch; });
}

void name_nothing() {
    if (file != nullptr)
        set_named(Named::nothing);
}

bool has_followed_death() {
    return follows_death;
}

bool has_last_words() {
    return last_words.named != Named::nothing;
}

namespace {

bool charge_item(const DueItem &item, std::string_view worker) {
    const TimestampTz now = pg::clock_now();
    std::optional<Saga> saga = lock_saga(item.saga_id, now, true);
    if (!saga)
        return !saga_exists(item.saga_id);
    std::optional<Work> work = find_work(*saga, item.step_no, item.direction);
    // Rows whose number is no step's run no handler.
    if (!work || work->attempt != item.attempt || work->is_claimed() || item.step_no < 1)
        return true;
    pg::Rows deaths =
        count_deaths.run(pg::param(saga->id), pg::param(saga->token), pg::param(item.step_no),
                         pg::param(core::name_of(item.direction)), pg::param(death_sqlstate),
                         pg::param(death_error));
    const int64 count = deaths.int8(0, 0) + 1;
    ereport(LOG, (errmsg("saga %s: the handler of step %d ended the process of %.*s",
                         uuid_text(item.saga_id), item.step_no, static_cast<int>(worker.size()),
                         worker.data()),
                  errdetail("It has done so " INT64_FORMAT " times; at %d the saga is parked.",
                            count, deaths_max)));
    fail_item(item, worker,
              {.sqlstate = death_sqlstate,
               .error = death_error,
               .timed_out = false,
               .unusable = false,
               .is_death = true,
               .is_killer = count >= deaths_max});
    return true;
}

} // namespace

bool charge_last_words(std::string_view worker) {
    switch (last_words.named) {
    case Named::item:
        return charge_item(last_words.item, worker);
    case Named::message:
        return charge_message(last_words.message, worker);
    case Named::batch:
        return charge_batch(last_words.batch, worker);
    case Named::nothing:
        break;
    }
    return true;
}

void forget_last_words() {
    last_words.named = Named::nothing;
    name_nothing();
}

} // namespace stacksaga
