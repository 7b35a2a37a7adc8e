// SQL-callable functions and typed access to their arguments.
#pragma once
#include "pg/errors.hpp"
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

/// Defines the SQL-callable C function stacksaga_NAME; `fcinfo` is in scope in its body.
#define STACKSAGA_FUNCTION(name)                                                                   \
    extern "C" {                                                                                   \
    extern PGDLLEXPORT Datum stacksaga_##name(PG_FUNCTION_ARGS);                                   \
    PG_FUNCTION_INFO_V1(stacksaga_##name);                                                         \
    }                                                                                              \
    static Datum run_##name(PG_FUNCTION_ARGS);                                                     \
    extern "C" Datum stacksaga_##name(PG_FUNCTION_ARGS) {                                          \
        ::stacksaga::pg::watch_transactions();                                                     \
        return run_##name(fcinfo);                                                                 \
    }                                                                                              \
    static Datum run_##name(PG_FUNCTION_ARGS)

namespace stacksaga::pg {

/// A text datum's bytes, detoasted; valid as long as the current memory context.
inline std::string_view view_of_text(Datum value) {
    text *t = DatumGetTextPP(value);
    return {VARDATA_ANY(t), static_cast<size_t>(VARSIZE_ANY_EXHDR(t))};
}

inline text *make_text(std::string_view s) {
    return cstring_to_text_with_len(s.data(), static_cast<int>(s.size()));
}

/// The arguments of a call, by position. `required_*` raise SG400 for NULL and name the argument.
class Arguments {
public:
    explicit Arguments(FunctionCallInfo fcinfo) : fcinfo_(fcinfo) {}

    bool is_null(int i) const { return fcinfo_->args[i].isnull; }
    Datum datum(int i) const { return fcinfo_->args[i].value; }

    std::string_view required_text(int i, const char *name) const {
        require(i, name);
        return view_of_text(datum(i));
    }
    int64 required_int8(int i, const char *name) const {
        require(i, name);
        return DatumGetInt64(datum(i));
    }
    int32 required_int4(int i, const char *name) const {
        require(i, name);
        return DatumGetInt32(datum(i));
    }
    bool required_bool(int i, const char *name) const {
        require(i, name);
        return DatumGetBool(datum(i));
    }
    pg_uuid_t required_uuid(int i, const char *name) const {
        require(i, name);
        return *DatumGetUUIDP(datum(i));
    }
    std::optional<std::string_view> optional_text(int i) const {
        if (is_null(i))
            return std::nullopt;
        return view_of_text(datum(i));
    }
    void require(int i, const char *name) const {
        if (is_null(i))
            ereport(ERROR,
                    (errcode(sg400), errmsg("argument \"%s\" must not be null", name),
                     errdetail("The value is NULL."), errhint("Pass a value for \"%s\".", name)));
    }

private:
    FunctionCallInfo fcinfo_;
};

} // namespace stacksaga::pg
