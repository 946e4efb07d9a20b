#include "simulator/device_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

TEST(DeviceFiles, EveryOneSaysWhereItsValuesComeFrom) {
    const std::vector<std::string> names = device_names();
    EXPECT_GE(names.size(), 4u);
    for (const std::string& device_name : names) {
        const auto device = read_device(device_name);
        ASSERT_TRUE(device.has_value()) << device.error().message;
        EXPECT_EQ(device->name, device_name);
        EXPECT_GE(device->sources.size(), 8u);
    }
    const auto unsaid = parse_device(R"({"name": "x", "memory_bytes": 1, "sources": {}})", "x.json");
    ASSERT_FALSE(unsaid.has_value());
    EXPECT_THAT(unsaid.error().message, HasSubstr("does not say where \"memory_bytes\" comes from"));
}

}  // namespace
}  // namespace verbatim::tests
