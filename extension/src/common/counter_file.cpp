#include "src/common/counter_file.hpp"

#include "pg/mapped_file.hpp"

namespace stacksaga {

namespace {

constinit CounterFile *file = nullptr;
constinit bool is_refused = false;

/// Its blocks are allocated first: touching a hole of a full disk would be SIGBUS. What another
/// process has counted already stays.
CounterFile *map_file(int descriptor) {
    const size_t size = sizeof(CounterFile) + room_for_running();
    errno = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
    if (errno != 0)
        return nullptr;
    return static_cast<CounterFile *>(pg::map_file(descriptor, size));
}

} // namespace

/// Worker numbers, the last part of the names of other files there, begin at 1.
CounterFile *counter_file() {
    if (file != nullptr || is_refused)
        return file;
    std::array<char, MAXPGPATH> path{};
    snprintf(path.data(), path.size(), "%s/stacksaga.%u.0", PG_STAT_TMP_DIR, MyDatabaseId);
    const int descriptor = OpenTransientFile(path.data(), O_RDWR | O_CREAT | PG_BINARY);
    if (descriptor >= 0)
        file = map_file(descriptor);
    is_refused = file == nullptr;
    if (is_refused)
        ereport(LOG,
                (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path.data()),
                 errdetail("This process counts nothing for stacksaga.metrics().")));
    if (descriptor >= 0)
        CloseTransientFile(descriptor);
    return file;
}

} // namespace stacksaga
