// The class of each error: retried, concerning one ring, or ending the daemon with an exit code;
// and the versions of the extension that a daemon works with.
#include "db/shared_connection.hpp"
#include "db/store_error.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace stacksaga::coordinator {
namespace {

TEST(Errors, AreClassifiedByTheRemedy) {
    const std::vector<std::pair<std::string_view, ErrorClass>> cases{
        {"", ErrorClass::reconnect},              // the connection broke
        {"08006", ErrorClass::reconnect},         // connection_failure
        {"57P01", ErrorClass::reconnect},         // admin_shutdown
        {"57P03", ErrorClass::reconnect},         // cannot_connect_now
        {"53300", ErrorClass::reconnect},         // too_many_connections
        {"25006", ErrorClass::reconnect},         // a standby
        {"3D000", ErrorClass::reconnect},         // no such database
        {"40001", ErrorClass::retry_now},         // serialization_failure
        {"40P01", ErrorClass::retry_now},         // deadlock_detected
        {"57014", ErrorClass::retry_now},         // query_canceled
        {"SR409", ErrorClass::retry_now},         //
        {"SG416", ErrorClass::refused},           // ranges that do not tile
        {"SG404", ErrorClass::refused},           // a node left between read and publication
        {"22008", ErrorClass::refused},           // datetime_field_overflow
        {"SG403", ErrorClass::permission},        //
        {"42501", ErrorClass::permission},        // insufficient_privilege
        {"28P01", ErrorClass::permission},        // invalid_password
        {"3F000", ErrorClass::missing_extension}, // no schema
        {"42883", ErrorClass::missing_extension}, // no function
        {"XX000", ErrorClass::fatal},             // internal_error
        {"42601", ErrorClass::fatal},             // syntax_error
    };
    for (const auto &[sqlstate, kind] : cases)
        EXPECT_EQ(classify(sqlstate), kind) << sqlstate;
}

TEST(Errors, MapToExitCodes) {
    const std::vector<std::pair<ErrorClass, int>> cases{
        {ErrorClass::reconnect, 69},      {ErrorClass::in_doubt, 69},
        {ErrorClass::retry_now, 75},      {ErrorClass::refused, 75},
        {ErrorClass::permission, 77},     {ErrorClass::missing_extension, 78},
        {ErrorClass::fatal, 70},          {ErrorClass::ring_missing, 65},
        {ErrorClass::shared_session, 65},
    };
    for (const auto &[kind, code] : cases)
        EXPECT_EQ(exit_code_of(kind), code) << name_of(kind);
}

TEST(Errors, AreLoggedWithoutEmptyFields) {
    const auto keys = [](const StoreError &error) {
        std::string joined;
        for (const LogField &field : fields_of(error))
            joined += std::string(field.key) + "=" + field.value + " ";
        return joined;
    };
    EXPECT_EQ(keys({ErrorClass::reconnect, "lost"}), "class=reconnect error=lost ");
    EXPECT_EQ(keys({ErrorClass::refused, "no", "SG416", "the row", "do this"}),
              "class=refused error=no sqlstate=SG416 detail=the row hint=do this ");
}

TEST(Version, FitsWhenItIsNotOlderAndOfTheSameMajor) {
    EXPECT_TRUE(version_fits("1.0", "1.0"));
    EXPECT_TRUE(version_fits("1.10", "1.9"));
    EXPECT_TRUE(version_fits("1.2.3", "1.2"));
    EXPECT_FALSE(version_fits("1.9", "1.10"));
    EXPECT_FALSE(version_fits("0.9", "1.0"));
    EXPECT_FALSE(version_fits("2.0", "1.0"));
}

TEST(Version, FitsNothingThatIsNone) {
    for (const char *text : {"", "1", "1.", "x.y", ".1", "99999999999.0", "1.x"}) {
        EXPECT_FALSE(version_fits(text, "1.0")) << text;
        EXPECT_FALSE(version_fits("1.0", text)) << text;
    }
}

} // namespace
} // namespace stacksaga::coordinator
