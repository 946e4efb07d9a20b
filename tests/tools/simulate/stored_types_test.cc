// Quantised checkpoints in `verbatim simulate`: bytes and times by type.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulator/deployment.h"
#include "simulator/sharding.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"
#include "tools/program/shape_choice.h"

namespace verbatim::tools {
namespace {

const std::string kGgufFolder = VERBATIM_SOURCE_DIR "/tests/data/gguf/";

TEST(SimulateCommand, AQuantisedCheckpointHasItsOwnBytesByType) {
    const tests::ScratchFolder scratch;
    const auto run = [&](const std::string& type, std::vector<std::string> more = {}) {
        const std::string file = scratch.path(type + ".gguf");
        run_verbatim(
            {"model", "quantise", VERBATIM_SOURCE_DIR "/server/models/tiny-python", "--to", type, "--out", file});
        std::vector<std::string> arguments = {
            "simulate", "--trace", VERBATIM_SOURCE_DIR "/traces/scenario.csv", "--model", file, "--format", "json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return nlohmann::json::parse(outcome.out);
    };
    const nlohmann::json mixed = run("q4_k");
    int64_t num_bytes = 0;
    for (const nlohmann::json& type : mixed["weights_by_type"]) {
        num_bytes += type["bytes"].get<int64_t>();
        EXPECT_GE(type["bytes"], type["linear_bytes"]);
        EXPECT_EQ(type["read_ms"].get<double>() > 0, type["linear_bytes"].get<int64_t>() > 0);
    }
    EXPECT_EQ(mixed["weights_by_type"].size(), 4U) << "Q5_0, Q4_K, Q8_0 and F32";
    EXPECT_EQ(mixed["memory"]["weights_bytes"], num_bytes);
    const nlohmann::json plain = run("bf16");
    EXPECT_LT(mixed["memory"]["weights_bytes"], plain["memory"]["weights_bytes"]);
    EXPECT_LT(mixed["tpot_s"]["mean"], plain["tpot_s"]["mean"]) << "fewer bytes to read";
    EXPECT_FALSE(run("q8_0", {"--weights", "fp8"}).contains("weights_by_type"));
    const Outcome planned = run_verbatim({"plan", "--trace", VERBATIM_SOURCE_DIR "/traces/scenario.csv", "--model",
                                          scratch.path("q4_k.gguf"), "--slo", "p50:ttft=100s", "--weights", "bf16,fp8",
                                          "--max-replicas", "1"});
    EXPECT_NE(planned.out.find("as stored weights"), std::string::npos) << planned.out << planned.err;
    EXPECT_NE(planned.out.find("fp8 weights"), std::string::npos) << planned.out;
    EXPECT_EQ(planned.out.find("bf16 weights"), std::string::npos) << planned.out;
}

TEST(ShapeChoice, MatricesInBf16AreReadAtTwoBytesAWeight) {
    const auto shape = choose_shape(kGgufFolder + "granite-hybrid-bf16.gguf");
    ASSERT_TRUE(shape) << shape.error().message;
    EXPECT_DOUBLE_EQ(shape->weight_value_bytes, 2) << "linear layers are those that steps read";
    EXPECT_DOUBLE_EQ(shape->head_value_bytes, 2);
    const auto mixed = choose_shape(kGgufFolder + "granite-hybrid-mixed.gguf");
    ASSERT_TRUE(mixed) << mixed.error().message;
    EXPECT_LT(mixed->weight_value_bytes, 1.9);
    EXPECT_EQ(with_weight_format(*mixed, WeightFormat::kBf16), *mixed);
    const ModelShape fp8 = with_weight_format(*mixed, WeightFormat::kFp8);
    EXPECT_TRUE(fp8.stored.empty());
    EXPECT_EQ(sharded(*mixed, {}).weight_bytes, mixed->weight_bytes);
}

}  // namespace
}  // namespace verbatim::tools
