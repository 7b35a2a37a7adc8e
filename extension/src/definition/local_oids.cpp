#include "src/definition/local_oids.hpp"

#include "pg/citus/citus.hpp"
#include "pg/statement/query.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement is_worker{"SELECT groupid <> 0 FROM pg_catalog.pg_dist_local_group",
                                  pg::Plans::by_statistics};
constinit pg::Statement find_oid{"SELECT local_oid FROM stacksaga.citus_oid"
                                 " WHERE kind = $1 AND name = $2 AND defined_oid = $3"};
constinit pg::Statement insert_oid{"INSERT INTO stacksaga.citus_oid VALUES ($1, $2, $3, $4)"
                                   " ON CONFLICT DO NOTHING"};

/// The local oid of a name; `look_up` finds it when this node asks first. A name that is unknown
/// here keeps the oid of the defining node, under which nothing of that name exists here.
template <class F> Oid own_oid(std::string_view kind, const char *name, Oid defined, F &&look_up) {
    const pg::Param its_kind = pg::param(kind), its_name = pg::param(std::string_view{name}),
                    key = pg::param_datum(OIDOID, ObjectIdGetDatum(defined));
    const pg::Rows known = find_oid.run(its_kind, its_name, key);
    if (!known.empty())
        return DatumGetObjectId(known.value(0, 0));
    const Oid found = look_up();
    if (!OidIsValid(found))
        return defined;
    if (!XactReadOnly && !RecoveryInProgress() && !IsInParallelMode())
        insert_oid.touch(its_kind, its_name, key, pg::param_datum(OIDOID, ObjectIdGetDatum(found)));
    return found;
}

void use_own_oid(FunctionRef &f) {
    if (!f)
        return;
    f.oid = own_oid("function", f.signature, f.oid, [&] { return find_function(f.signature); });
}

} // namespace

bool has_own_oids() {
    const Oid table = get_relname_relid("saga_definition", get_namespace_oid("stacksaga", false));
    return pg::is_managed_by_citus(table) && is_worker.run().boolean(0, 0);
}

void use_own_oids(Definition &definition, std::span<StepFunctions> functions) {
    const Definer &definer = definition.definer;
    definition.definer.oid = own_oid("role", definer.name, definer.oid,
                                     [&] { return get_role_oid(definer.name, true); });
    for (StepFunctions &f : functions) {
        use_own_oid(f.action);
        use_own_oid(f.compensation);
        use_own_oid(f.verify);
        use_own_oid(f.fallback);
    }
}

} // namespace stacksaga
