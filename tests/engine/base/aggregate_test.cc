#include "engine/base/aggregate.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Nothing {};
struct Inner {
    int32_t x = 3;
    int32_t y = 4;
};
// Fields of every kind that `{}` initialises, with defaults and without.
struct Mixed {
    static constexpr int kNoField = 7;
    std::optional<std::vector<int>> optional_list;
    std::string text = "text";
    Inner inner{.x = 5};
    std::array<int, 3> array{};
    int Inner::*member = &Inner::x;
    bool last_one = true;
};
struct Most {
    char f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23;
};
class NoAggregate {
public:
    explicit NoAggregate(int x) : x_(x) {}
    [[nodiscard]] int x() const { return x_; }

private:
    int x_;
};

template <typename T>
std::vector<std::string> names_of(const T& value) {
    std::vector<std::string> names;
    for_each_field(value, [&](std::string_view name, const auto&) { names.emplace_back(name); });
    return names;
}

TEST(Aggregate, CountsFields) {
    EXPECT_EQ(kNumFields<Nothing>, 0U);
    EXPECT_EQ(kNumFields<Inner>, 2U);
    EXPECT_EQ(kNumFields<Mixed>, 6U);
    EXPECT_EQ(kNumFields<Most>, kMaxFields);
    static_assert(IsAggregate<Mixed> && !IsAggregate<NoAggregate> && !IsAggregate<int> && !IsAggregate<std::string>);
}

TEST(Aggregate, NamesFieldsInTheOrderOfTheDefinition) {
    EXPECT_THAT(names_of(Nothing{}), IsEmpty());
    EXPECT_THAT(names_of(Inner{}), ElementsAre("x", "y"));
    EXPECT_THAT(names_of(Mixed{}), ElementsAre("optional_list", "text", "inner", "array", "member", "last_one"));
    EXPECT_EQ(names_of(Most{}).front(), "f0");
    EXPECT_EQ(names_of(Most{}).back(), "f23");
}

TEST(Aggregate, RefersToTheFields) {
    Mixed mixed;
    for_each_field(mixed, [](std::string_view name, auto& field) {
        if constexpr (requires { field.y; }) {
            EXPECT_EQ(name, "inner");
            field.y = 6;
        }
    });
    EXPECT_EQ(mixed.inner.x, 5);
    EXPECT_EQ(mixed.inner.y, 6);
    EXPECT_EQ(&std::get<1>(fields_of(mixed)), &mixed.text);
}

}  // namespace
}  // namespace verbatim
