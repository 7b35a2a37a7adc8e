// Connection strings: their mistakes are named, and their secrets are never shown.
#include "db/conninfo.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

TEST(ConninfoComplaint, ReportsStringsThatLibpqCannotParse) {
    EXPECT_FALSE(conninfo_complaint(""));
    EXPECT_FALSE(conninfo_complaint("shop"));
    EXPECT_FALSE(conninfo_complaint("host=db dbname=shop"));
    EXPECT_FALSE(conninfo_complaint("postgresql://db/shop?connect_timeout=3"));
    EXPECT_EQ(conninfo_complaint("hst=db"), "invalid connection option \"hst\"");
    EXPECT_TRUE(conninfo_complaint("postgresql://[::1/shop"));
}

TEST(DatabaseLabel, NamesTheDatabaseWithoutItsPassword) {
    EXPECT_EQ(database_label(""), "");
    EXPECT_EQ(database_label("shop"), "shop");
    EXPECT_EQ(database_label("dbname=shop host=db port=5433 password=secret user=me"),
              "db/5433/shop");
    EXPECT_EQ(database_label("postgresql://me:secret@db/shop"), "db/shop");
    EXPECT_EQ(database_label("service=shop"), "shop");
}

TEST(ConninfoComplaint, RefusesStringsThatWouldBeShownAsAName) {
    for (const char *conninfo :
         {"POSTGRESQL://me:secret@db/shop", "dbname='postgres://me:secret@db/shop'",
          "host=db dbname='dbname=shop password=secret'"}) {
        const auto complaint = conninfo_complaint(conninfo);
        ASSERT_TRUE(complaint) << conninfo;
        EXPECT_EQ(complaint->find("secret"), std::string::npos) << *complaint;
    }
}

TEST(ConninfoComplaint, QuotesNoSecret) {
    for (const char *conninfo :
         {"PGPASSWORD=secret dbname=shop", "PASSWORD=secret", "password=my secret=x",
          "password=my secret", "password='my secret", "postgresql://me:secret@[::1/shop",
          "postgresql://me:sec%zzret@db/shop", "postgresql://me:secret@db/shop?passwort=secret",
          "postgresql://db/shop?password=secret=secret", "POSTGRES://me:secret@db/shop?port=1",
          "postgresql://me:secret@db:port/shop\"secret"}) {
        const auto complaint = conninfo_complaint(conninfo);
        if (!complaint)
            continue; // libpq accepts it, or refuses it later
        EXPECT_EQ(complaint->find("secret"), std::string::npos) << *complaint;
        EXPECT_EQ(complaint->find("zzret"), std::string::npos) << *complaint;
    }
}

TEST(WithoutSecrets, HidesThemInEverySpelling) {
    EXPECT_EQ(without_secrets(""), "");
    EXPECT_EQ(without_secrets("shop"), "shop");
    EXPECT_EQ(without_secrets("host=db dbname=shop"), "dbname=shop host=db");
    EXPECT_EQ(without_secrets("host='a b' dbname=it\\'s"), R"(dbname='it\'s' host='a b')");
    for (const char *conninfo :
         {"password=secret", "password = 'my secret' user=me", "password=my\\ secret",
          "user=me password='it\\'s a secret' host=db", "password = secret password = secret",
          "sslpassword=secret sslkey=key", "postgresql://me:secret@db/shop",
          "postgres://me:secret@db1,db2:5433/shop?sslpassword=secret",
          "postgresql://me@db/shop?password=secret", "postgresql://me:%73ecret@db/shop",
          "postgresql:///shop?user=me&password=secret", "postgresql://me:a@secret@db/shop",
          "PASSWORD=secret", "PGPASSWORD=secret", "password='my secret", "password=my secret",
          "POSTGRESQL://me:secret@db/shop", "dbname='postgres://me:secret@db/shop'",
          "passfile=/etc/pass password=secret"}) {
        const std::string shown = without_secrets(conninfo);
        EXPECT_EQ(shown.find("secret"), std::string::npos) << shown;
        EXPECT_NE(shown.find("****"), std::string::npos) << shown;
    }
    EXPECT_NE(without_secrets("passfile=/etc/pass password=x").find("passfile=/etc/pass"),
              std::string::npos);
}

TEST(Url, IsPrintedWithoutSecrets) {
    EXPECT_EQ(url_without_secrets(""), "");
    EXPECT_EQ(url_without_secrets("http://127.0.0.1:4318/v1/traces"),
              "http://127.0.0.1:4318/v1/traces");
    EXPECT_EQ(url_without_secrets("https://me:secret@host/path"), "https://****@host/path");
    for (const char *url :
         {"https://secret@host", "https://me:a/secret@host", "https://me:a@secret@host",
          "https://host?key=secret", "https://host/v1/traces?a=b&key=secret#secret",
          "https://me:secret?@host", "https://me:#secret@host", "https://host?key=a@secret",
          "me:secret@host"}) {
        const std::string shown = url_without_secrets(url);
        EXPECT_EQ(shown.find("secret"), std::string::npos) << shown;
        EXPECT_NE(shown.find("****"), std::string::npos) << shown;
    }
}

} // namespace
} // namespace stacksaga::coordinator
