#include "src/handler/known_handler.hpp"

#include "pg/statement/scope.hpp"

namespace stacksaga {

namespace {

constexpr size_t key_size = offsetof(KnownHandler, memory);
static_assert(key_size == 4 * sizeof(uint32)); // no padding between its members

constinit HTAB *handlers = nullptr;

HTAB *make_table() {
    HASHCTL control{};
    control.keysize = key_size;
    control.entrysize = sizeof(KnownHandler);
    return hash_create("stacksaga handlers", 64, &control, HASH_ELEM | HASH_BLOBS);
}

bool is_same(const char *a, const char *b) {
    return a == b || (a != nullptr && b != nullptr && strcmp(a, b) == 0);
}

const char *copy(const char *text) {
    return text != nullptr ? pstrdup(text) : nullptr;
}

} // namespace

KnownHandler &known_handler(const HandlerCaller &caller, const FunctionRef &function,
                            HandlerKind kind) {
    if (handlers == nullptr)
        handlers = make_table();
    const char *path = caller.search_path;
    KnownHandler wanted{.oid = function.oid,
                        .definer = caller.definer.oid,
                        .path_hash = path != nullptr
                                         ? hash_bytes(reinterpret_cast<const unsigned char *>(path),
                                                      static_cast<int>(strlen(path)))
                                         : 0,
                        .kind = static_cast<uint32>(kind)};
    bool is_there;
    auto &known =
        *static_cast<KnownHandler *>(hash_search(handlers, &wanted, HASH_ENTER, &is_there));
    if (!is_there)
        new (&known) KnownHandler{wanted};
    // An oid is used again in time, and means something else after a restore.
    if (is_there && is_same(known.signature, function.signature) &&
        is_same(known.definer_name, caller.definer.name) && is_same(known.search_path, path))
        return known;
    known.found_at = 0;
    known.signature = nullptr;
    known.callable.forget();
    if (known.memory == nullptr)
        known.memory =
            AllocSetContextCreate(TopMemoryContext, "stacksaga handler", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(known.memory);
    pg::in_context(known.memory, [&] {
        known.definer_name = pstrdup(caller.definer.name);
        known.search_path = copy(path);
        known.path_in_force = nullptr;
        known.signature = pstrdup(function.signature);
    });
    return known;
}

} // namespace stacksaga
