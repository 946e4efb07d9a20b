// The integer model of Hopper's tensor cores against what an H100 and an H200 have computed, as others published it
// (tests/data/tensor_cores/README.md). VERBATIM_TENSOR_DATA=FOLDER names the whole of it, `model_validation` there.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "reference/numerics/tensor_sm90.h"

namespace verbatim::reference {
namespace {

namespace fs = std::filesystem;

struct DeviceSum {
    uint16_t a[kTensorGroup] = {}, b[kTensorGroup] = {};
    float before = 0, after = 0;
};

std::vector<std::string> lines_of(const fs::path& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file.good()) << path;
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

void read_factors(const std::string& line, uint16_t (&factors)[kTensorGroup]) {
    std::istringstream words(line);
    for (uint16_t& factor : factors) {
        uint32_t word = 1;
        words >> std::hex >> word;
        ASSERT_EQ(word & 0xFFFFU, 0u) << line << ": no bf16";
        factor = static_cast<uint16_t>(word >> 16U);
    }
}

float read_word(const std::string& digits) {
    return float_from_bits(static_cast<uint32_t>(std::stoul(digits, nullptr, 2)));
}

fs::path folder_of(const std::string& device) {
    const char* const whole = std::getenv("VERBATIM_TENSOR_DATA");
    const fs::path data = whole != nullptr ? fs::path(whole) : VERBATIM_SOURCE_DIR "/tests/data/tensor_cores";
    return data / device / "bf16";
}

std::vector<DeviceSum> read_sums(const std::string& device) {
    const auto file = [&](const std::string& name, const std::string& format) {
        return lines_of(folder_of(device) / (name + "_" + device + "_" + format + ".txt"));
    };
    const auto a = file("a", "bf16"), b = file("b", "bf16"), before = file("c", "fp32"), after = file("d", "fp32");
    EXPECT_EQ(a.size(), b.size());
    EXPECT_EQ(a.size(), before.size());
    EXPECT_EQ(a.size(), after.size());
    std::vector<DeviceSum> sums(a.size());
    for (size_t i = 0; i < sums.size(); ++i) {
        read_factors(a[i], sums[i].a);
        read_factors(b[i], sums[i].b);
        sums[i].before = read_word(before[i]);
        sums[i].after = read_word(after[i]);
    }
    return sums;
}

// Of the exact sum, rounded once to nearest: every product and partial sum of these is exact in binary64.
float rounded_once(const DeviceSum& sum) {
    double total = sum.before;
    for (int i = 0; i < kTensorGroup; ++i) {
        total += static_cast<double>(bf16_to_float(sum.a[i])) * static_cast<double>(bf16_to_float(sum.b[i]));
    }
    return static_cast<float>(total);
}

class DeviceSums : public testing::TestWithParam<const char*> {};

TEST_P(DeviceSums, AreThoseOfTheModel) {
    if (GetParam() == std::string("B200") && !fs::exists(folder_of(GetParam())))
        GTEST_SKIP() << "no data of it here: VERBATIM_TENSOR_DATA names a folder that has them";
    const std::vector<DeviceSum> sums = read_sums(GetParam());
    ASSERT_GE(sums.size(), 200u);
    size_t num_rounded_otherwise = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
        const float by_model = tensor_group(sums[i].a, sums[i].b, sums[i].before);
        EXPECT_EQ(bits_from_float(by_model), bits_from_float(sums[i].after)) << "line " << i + 1;
        num_rounded_otherwise += static_cast<size_t>(rounded_once(sums[i]) != sums[i].after);
    }
    EXPECT_GT(num_rounded_otherwise, sums.size() / 10) << "a sum that is rounded once would pass as well";
    RecordProperty("groups", static_cast<int>(sums.size()));
}

INSTANTIATE_TEST_SUITE_P(Published, DeviceSums, testing::Values("H100", "H200", "B200"),
                         [](const auto& device) { return std::string(device.param); });

}  // namespace
}  // namespace verbatim::reference
