// Scopes are callbacks, not destructors: acquire, call, release on the normal path. After an ERROR
// PostgreSQL itself releases (SPI, snapshots, user id, settings) when the (sub)transaction aborts.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Runs `body` inside an SPI connection. What it returns must not point into SPI memory.
template <class F> auto with_spi(F &&body) -> decltype(body()) {
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
    if (SPI_connect() != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect failed");
    if constexpr (std::is_void_v<decltype(body())>) {
        body();
        SPI_finish();
    } else {
        auto result = body();
        static_assert(std::is_trivially_destructible_v<decltype(result)>);
        SPI_finish();
        return result;
    }
}

/// Runs `body` as `role`, which it cannot change (SET ROLE is refused inside).
template <class F> auto as_role(Oid role, F &&body) -> decltype(body()) {
    Oid saved_role;
    int saved_context;
    GetUserIdAndSecContext(&saved_role, &saved_context);
    SetUserIdAndSecContext(role, saved_context | SECURITY_LOCAL_USERID_CHANGE);
    if constexpr (std::is_void_v<decltype(body())>) {
        body();
        SetUserIdAndSecContext(saved_role, saved_context);
    } else {
        auto result = body();
        SetUserIdAndSecContext(saved_role, saved_context);
        return result;
    }
}

/// The role that owns the extension; its rights are those of every table access.
Oid extension_owner();

/// Runs `body` as the extension's owner: for functions that are not SECURITY DEFINER, because they
/// need to know who called them, or because PostgreSQL's way of it costs as much as a short call.
template <class F> auto as_owner(F &&body) -> decltype(body()) {
    return as_role(extension_owner(), static_cast<F &&>(body));
}

struct Setting {
    const char *name;
    const char *value;
};

/// Runs `body` with these settings; they end with it, and so does what it has SET itself.
template <class F>
auto with_settings(std::span<const Setting> wanted, F &&body) -> decltype(body()) {
    const int nesting = NewGUCNestLevel();
    for (const Setting &s : wanted)
        set_config_option(s.name, s.value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                          false);
    if constexpr (std::is_void_v<decltype(body())>) {
        body();
        AtEOXact_GUC(false, nesting);
    } else {
        auto result = body();
        AtEOXact_GUC(false, nesting);
        return result;
    }
}

/// Runs `body`, which prints a name or an expression that is stored or compared, without quotes
/// that are not needed, whatever the session wants to have quoted.
template <class F> auto with_plain_names(F &&body) -> decltype(body()) {
    if (!quote_all_identifiers)
        return body();
    static constexpr Setting plain{"quote_all_identifiers", "off"};
    return with_settings({&plain, 1}, static_cast<F &&>(body));
}

inline constexpr Setting pinned_path{"search_path", "pg_catalog, pg_temp"};

/// Runs `body` with nothing but PostgreSQL's own names in sight, as a function with a pinned
/// search_path: for functions that do without one, since setting it costs as much as a short call.
template <class F> auto with_pinned_path(F &&body) -> decltype(body()) {
    if (strcmp(namespace_search_path, pinned_path.value) == 0)
        return body();
    return with_settings({&pinned_path, 1}, static_cast<F &&>(body));
}

/// Runs `body` with memory context `context` current.
template <class F> auto in_context(MemoryContext context, F &&body) -> decltype(body()) {
    MemoryContext saved = MemoryContextSwitchTo(context);
    if constexpr (std::is_void_v<decltype(body())>) {
        body();
        MemoryContextSwitchTo(saved);
    } else {
        auto result = body();
        MemoryContextSwitchTo(saved);
        return result;
    }
}

} // namespace stacksaga::pg
