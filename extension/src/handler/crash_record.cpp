#include "src/handler/crash_record.hpp"

#include "core/saga/saga_engine.hpp"

#include "pg/mapped_file.hpp"

namespace stacksaga {

namespace {

constexpr char file_prefix[] = "stacksaga."; // then the database's OID, a dot, the worker's number
constexpr uint32 file_magic = 0x53474e35;    // to be changed with the layout

constinit CrashRecord *file = nullptr;
// A process that has not noted for this long that it runs is stopped.
constexpr int beat_interval_ms = 1000;
constexpr int64 beats_missed_us = 5 * USECS_PER_SEC;

constinit std::array<char, MAXPGPATH> path{};
constinit CrashRecord last_record{};
constinit bool is_after_crash = false;
constinit volatile sig_atomic_t has_to_quit = 0;
constinit volatile sig_atomic_t is_beating = 0;
constinit TimeoutId beat_timeout = MAX_TIMEOUTS;

void set_kind(Recorded kind) {
    pg_compiler_barrier();
    *const_cast<volatile Recorded *>(&file->kind) = kind;
    pg_compiler_barrier();
}

/// In a signal handler: notes that the process runs, also in the middle of a handler. The timer
/// goes on to the end of the transaction, so it costs nothing for each item.
void beat() {
    is_beating = file != nullptr && (file->kind != Recorded::nothing || IsTransactionState());
    if (is_beating == 0)
        return;
    file->alive_at = GetCurrentTimestamp();
    enable_timeout_after(beat_timeout, beat_interval_ms);
}

void keep_beating() {
    if (is_beating != 0)
        return;
    if (beat_timeout == MAX_TIMEOUTS)
        beat_timeout = RegisterTimeout(USER_TIMEOUT, beat);
    is_beating = 1;
    enable_timeout_after(beat_timeout, beat_interval_ms);
}

/// Writes the record by `write`.
template <class F> void record(Recorded kind, F &&write) {
    if (file == nullptr)
        return;
    set_kind(Recorded::nothing);
    file->pid = MyProcPid;
    file->has_overrun = false;
    file->timeout_at = 0;
    file->since = file->alive_at = GetCurrentTimestamp();
    keep_beating();
    write();
    set_kind(kind);
    if (has_to_quit != 0) // it ends at its next check of interrupts, in whatever function
        set_kind(Recorded::nothing);
}

// ----------------------------------------------------------------------------- signals

/// SIGTERM: another process asks this one to quit. A handler that sends it to its own process does
/// not erase the record: it would do so at every attempt.
void on_terminate(int signal, siginfo_t *info, void *) {
    if (info->si_pid != MyProcPid) {
        has_to_quit = 1;
        record_nothing();
    }
    die(signal);
}

/// SIGQUIT: the server is being shut down at once, or another of its processes has crashed.
void on_quit(int signal) {
    record_nothing();
    SignalHandlerForCrashExit(signal);
}

// ----------------------------------------------------------------------------- the file

std::array<char, MAXPGPATH> path_of(int32 number) {
    std::array<char, MAXPGPATH> result{};
    snprintf(result.data(), result.size(), "%s/%s%u.%d", PG_STAT_TMP_DIR, file_prefix, MyDatabaseId,
             number);
    return result;
}

/// Before the locks of the process are released: then another one may have the number.
void at_exit(int, Datum) {
    if (file != nullptr && file->kind == Recorded::nothing)
        unlink(path.data());
}

/// Maps the file, whose blocks are written first: touching a hole of a full disk would be SIGBUS.
CrashRecord *map_file(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return nullptr;
    if (status.st_size < static_cast<off_t>(sizeof(CrashRecord))) {
        const CrashRecord empty{};
        if (pg_pwrite(descriptor, &empty, sizeof empty, 0) != static_cast<ssize_t>(sizeof empty)) {
            if (errno == 0)
                errno = ENOSPC;
            return nullptr;
        }
    }
    return static_cast<CrashRecord *>(pg::map_file(descriptor, sizeof(CrashRecord)));
}

constexpr std::string_view overrun_error =
    "the handler did not end within ten seconds after its timeout";

} // namespace

std::string_view error_of(const CrashRecord &record) {
    return record.has_overrun ? overrun_error : core::crash_error;
}

void erase_crash_record_on_signals() {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    action.sa_sigaction = on_terminate;
    sigaction(SIGTERM, &action, nullptr);
    action.sa_flags = SA_RESTART;
    action.sa_handler = on_quit;
    sigaction(SIGQUIT, &action, nullptr);
}

void open_crash_record(int32 number) {
    path = path_of(number);
    errno = 0;
    const int descriptor = OpenTransientFile(path.data(), O_RDWR | O_CREAT | PG_BINARY);
    if (descriptor >= 0)
        file = map_file(descriptor);
    if (file == nullptr)
        ereport(LOG,
                (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path.data()),
                 errdetail("A handler that ends this process again and again will not be "
                           "charged.")));
    if (descriptor >= 0)
        CloseTransientFile(descriptor);
    if (file == nullptr)
        return;
    if (file->magic == file_magic && file->kind != Recorded::nothing)
        last_record = *file;
    else
        record_nothing();
    is_after_crash = last_record.kind != Recorded::nothing;
    file->magic = file_magic;
    before_shmem_exit(at_exit, 0);
}

void abandon_crash_record() {
    if (file != nullptr)
        pg::unmap_file(file, sizeof(CrashRecord));
    file = nullptr;
}

void sweep_crash_records() {
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

void record_step(const RecordedStep &step) {
    record(Recorded::step, [&] { file->step = step; });
}

void record_verify(int32 verify_attempts) {
    if (file == nullptr)
        return;
    file->step.verify_attempts = verify_attempts;
    file->step.is_verify = true;
}

void record_message(const RecordedMessage &message) {
    record(Recorded::message, [&] { file->message = message; });
}

void record_batch(const RecordedBatch &batch) {
    record(Recorded::batch, [&] {
        file->batch.subscription_id = batch.subscription_id;
        file->batch.count = batch.count;
        std::copy_n(batch.parts.begin(), batch.count, file->batch.parts.begin());
    });
}

void record_nothing() {
    if (file != nullptr)
        set_kind(Recorded::nothing);
}

void record_beginning() {
    if (file == nullptr)
        return;
    file->alive_at = GetCurrentTimestamp();
    keep_beating();
}

void record_timeout(TimestampTz at) {
    if (file != nullptr)
        file->timeout_at = at;
}

void record_overrun() {
    if (file != nullptr)
        file->has_overrun = true;
}

bool read_crash_record(int32 number, CrashRecord &record) {
    const int descriptor = OpenTransientFile(path_of(number).data(), O_RDONLY | PG_BINARY);
    if (descriptor < 0)
        return false;
    const bool is_whole = read(descriptor, &record, sizeof record) == sizeof record;
    CloseTransientFile(descriptor);
    return is_whole && record.magic == file_magic;
}

bool has_run_for(const CrashRecord &record, int64 at_least) {
    const TimestampTz now = GetCurrentTimestamp();
    return record.kind != Recorded::nothing && now - record.since >= at_least &&
           now - record.alive_at < beats_missed_us && BackendPidGetProc(record.pid) != nullptr;
}

bool follows_crash() {
    return is_after_crash;
}

const CrashRecord &predecessor_record() {
    return last_record;
}

void forget_crash() {
    last_record.kind = Recorded::nothing;
    record_nothing();
}

} // namespace stacksaga
