#include "pg/mapped_file.hpp"

namespace stacksaga::pg {

namespace {

struct Mapping {
    char *begin;
    size_t size;
};

constinit std::array<Mapping, 4> mappings{};
constinit struct sigaction action_before {};
constinit bool has_handler = false;

/// In a signal handler, so no more than system calls.
void on_bus_error(int signal, siginfo_t *info, void *) {
    const char *address = static_cast<const char *>(info->si_addr);
    for (const Mapping &mapping : mappings) {
        if (mapping.begin == nullptr || address < mapping.begin ||
            address >= mapping.begin + mapping.size)
            continue;
        const int errno_before = errno;
        void *zeros = mmap(mapping.begin, mapping.size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        errno = errno_before;
        if (zeros != MAP_FAILED)
            return;
    }
    sigaction(signal, &action_before, nullptr); // the access that failed comes again
}

/// The mapping that begins there, or a free place for nullptr.
Mapping *find_mapping(const void *begin) {
    for (Mapping &mapping : mappings)
        if (mapping.begin == begin)
            return &mapping;
    return nullptr;
}

void install_handler() {
    if (has_handler)
        return;
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    action.sa_sigaction = on_bus_error;
    has_handler = sigaction(SIGBUS, &action, &action_before) == 0;
}

} // namespace

void *map_file(int descriptor, size_t size) {
    Mapping *place = find_mapping(nullptr);
    if (place == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    *place = {static_cast<char *>(memory), size};
    install_handler();
    return memory;
}

void unmap_file(void *memory, size_t size) {
    if (Mapping *place = find_mapping(memory))
        *place = {};
    munmap(memory, size);
}

} // namespace stacksaga::pg
