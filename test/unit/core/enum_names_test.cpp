// The compiler knows the names of an enum's values, also of one in a namespace without a name.
#include "core/enum_names.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace stacksaga::core {

enum class Fruit : std::uint8_t { apple, pear_2, _plum };

namespace {

enum class Column : std::uint8_t { saga_id, due_at };
enum class Single : std::uint8_t { only };

TEST(EnumNames, AreThoseOfTheSourceInItsOrder) {
    EXPECT_EQ(enum_names<Fruit>, (std::array<std::string_view, 3>{"apple", "pear_2", "_plum"}));
    EXPECT_EQ(enum_names<Column>, (std::array<std::string_view, 2>{"saga_id", "due_at"}));
    EXPECT_EQ(enum_names<Single>, (std::array<std::string_view, 1>{"only"}));
}

} // namespace
} // namespace stacksaga::core
