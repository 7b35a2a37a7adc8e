// What PostgreSQL calls when it loads the module.
#include "pg/pg.hpp"
#include "pg/settings.hpp"

extern "C" {
PG_MODULE_MAGIC;
extern PGDLLEXPORT void _PG_init(void);
}

extern "C" void _PG_init(void) {
    if (IsBinaryUpgrade)
        return;
    stacksaga::pg::define_settings();
}
