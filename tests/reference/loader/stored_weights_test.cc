#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "reference/loader/checkpoint_files.h"
#include "reference/loader/load_model.h"
#include "reference/loader/stored_weights_of.h"
#include "reference/model/state_tensors.h"
#include "tests/reference/loader/quantised_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

const StoredType* find(const StoredWeights& stored, std::string_view name) {
    const auto found = std::ranges::find(stored.types, name, &StoredType::name);
    return found == stored.types.end() ? nullptr : &*found;
}

int64_t num_weights(const StoredWeights& stored) {
    int64_t sum = 0;
    for (const StoredType& type : stored.types) sum += type.num_weights;
    return sum;
}

// What the headers say is what loading finds.
void expect_as_loaded(const StoredWeights& stored, const Model& model) {
    EXPECT_EQ(num_weights(stored), model.report.num_parameters);
    EXPECT_EQ(num_weights(stored), geometry(model.config).num_parameters);
    int64_t quantised = 0;
    int64_t num_bytes = 0;
    for (const StoredType& type : stored.types) {
        num_bytes += type.num_bytes;
        if (type.name != "BF16" && type.name != "F16" && type.name != "F32") quantised += type.num_weights;
    }
    EXPECT_EQ(quantised, model.report.num_quantised);
    EXPECT_EQ(stored.num_bytes(), num_bytes);
}

TEST(StoredWeights, OfAGgufFileAreThoseOfItsTensors) {
    for (const char* name : {"granite-hybrid-bf16.gguf", "granite-hybrid-mixed.gguf"}) {
        const std::string path = std::string(VERBATIM_SOURCE_DIR) + "/tests/data/gguf/" + name;
        const auto found = find_quantised_checkpoint(path);
        ASSERT_TRUE(found && *found) << name;
        const auto model = load_model(path);
        ASSERT_TRUE(model);
        EXPECT_EQ((*found)->config, model->config);
        expect_as_loaded((*found)->stored, *model);
        for (const StoredType& type : (*found)->stored.types) {
            const BlockFormat& format = *find_block_format(type.name);
            EXPECT_EQ(type.num_bytes, format.row_bytes(type.num_weights)) << type.name;
        }
    }
}

// A large config.json and small tensors.
TEST(StoredWeights, TensorsThatAreNotThoseOfTheConfigurationAreAnError) {
    const tests::ScratchFolder scratch;
    const auto folder = tests::write_quantised_preset(scratch.path(), "tiny-granite", "int8", 5);
    std::ifstream in(folder / "config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config["vocab_size"] = 10 * config["vocab_size"].get<int64_t>();
    std::ofstream(folder / "config.json") << config;
    const auto found = find_quantised_checkpoint(folder);
    ASSERT_FALSE(found.has_value());
    EXPECT_NE(found.error().message.find("weights, its configuration wants"), std::string::npos)
        << found.error().message;
}

TEST(StoredWeights, OfAFolderCountScalesAsBytesOfTheirWeights) {
    struct Kind {
        const char* name;
        const char* type;
        double bytes;  // of a weight, without scales
    };
    for (const Kind& kind : {Kind{"int8", "int8", 1}, Kind{"fp8", "fp8", 1}, Kind{"fp8-block", "fp8", 1},
                             Kind{"int4-g128", "int4", 0.5}}) {
        const tests::ScratchFolder scratch;
        const auto folder = tests::write_quantised_preset(scratch.path(), "tiny-granite", kind.name, 5);
        const auto found = find_quantised_checkpoint(folder);
        ASSERT_TRUE(found && *found) << kind.name;
        const StoredWeights& stored = (*found)->stored;
        const auto model = load_model(folder);
        ASSERT_TRUE(model);
        expect_as_loaded(stored, *model);
        const StoredType* type = find(stored, kind.type);
        ASSERT_NE(type, nullptr) << kind.name;
        EXPECT_EQ(type->linear_bytes, type->num_bytes) << "embedding and head stay as they are";
        const double of_weight = static_cast<double>(type->num_bytes) / static_cast<double>(type->num_weights);
        EXPECT_GT(of_weight, kind.bytes);
        EXPECT_LT(of_weight, kind.bytes + 0.04) << kind.name;
        const auto files = open_checkpoint(folder);
        int64_t all_bytes = 0;
        for (const auto& [name, tensor] : files->tensors) all_bytes += static_cast<int64_t>(tensor.bytes.size());
        EXPECT_EQ(stored.num_bytes(), all_bytes);
    }
}

TEST(StoredWeights, OfACheckpointInBf16AreNotAskedFor) {
    const auto found = find_quantised_checkpoint(std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python");
    ASSERT_TRUE(found);
    EXPECT_FALSE(*found);
}

TEST(StoredWeights, AQuantisedFolderWithoutItsWeightsIsAnError) {
    const tests::ScratchFolder scratch;
    const auto folder = tests::write_quantised_preset(scratch.path(), "tiny-granite", "int8", 5);
    std::filesystem::remove(folder / "model.safetensors");
    const auto found = find_quantised_checkpoint(folder);
    ASSERT_FALSE(found);
    EXPECT_NE(found.error().message.find("safetensors"), std::string::npos) << found.error().message;
}

}  // namespace
}  // namespace verbatim::reference
