// Answers about definitions and this library, for people.
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

// definition_id(saga, version) -> integer
STACKSAGA_FUNCTION(definition_id) {
    pg::Arguments args(fcinfo);
    std::string_view saga = args.required_text(0, "saga");
    std::optional<int32> version;
    if (!args.is_null(1))
        version = args.required_int4(1, "version");
    PG_RETURN_INT32(pg::with_spi([&] { return find_definition(saga, version).id; }));
}

// handler_objection(signature, returns, definer) -> text
STACKSAGA_FUNCTION(handler_objection) {
    pg::Arguments args(fcinfo);
    std::string_view signature = args.required_text(0, "signature");
    args.require(1, "returns");
    args.require(2, "definer");
    const HandlerKind kind =
        DatumGetObjectId(args.datum(1)) == JSONBOID ? HandlerKind::action : HandlerKind::verify;
    const Oid definer = get_role_oid(NameStr(*DatumGetName(args.datum(2))), true);
    const char *reason = OidIsValid(definer) ? resolve_handler(signature, kind, definer).reason
                                             : "the defining role does not exist";
    if (reason == nullptr)
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(cstring_to_text(reason));
}

// setting(name) -> text. Unlike current_setting() it also finds the settings of this library in a
// session that has not loaded it yet.
STACKSAGA_FUNCTION(setting) {
    std::string_view name = pg::Arguments(fcinfo).required_text(0, "name");
    const char *value = GetConfigOption(
        psprintf("stacksaga.%.*s", static_cast<int>(name.size()), name.data()), true, false);
    if (value == nullptr)
        ereport(
            ERROR,
            (errcode(pg::sg404), errmsg("setting does not exist"),
             errdetail("There is no setting stacksaga.%s.", clip(name)),
             errhint("SELECT name FROM pg_settings WHERE name LIKE 'stacksaga.%%' lists them.")));
    PG_RETURN_TEXT_P(cstring_to_text(value));
}

// library_version() -> text
STACKSAGA_FUNCTION(library_version) {
    (void)fcinfo;
    PG_RETURN_TEXT_P(pg::make_text(STACKSAGA_VERSION));
}

} // namespace stacksaga
