// Quantised checkpoints whose tensors or quantization_config were changed at random are loaded, or refused with what is
// wrong: no crash, and no more memory than the file's weights take.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/reference/loader/packed_integers.h"

namespace verbatim::reference {
namespace {

struct Quantised {
    const char* name;
    std::function<void(const ScratchFolder& scratch)> write;  // into scratch/model
};

class MutatedQuantised : public testing::TestWithParam<Quantised> {
protected:
    MutatedQuantised() {
        GetParam().write(scratch_);
        config_ = Json::parse(read_file(folder_ / "config.json"));
        tensors_ = read_tensors(read_file(folder_ / "model.safetensors"));
        for (size_t i = 0; i < tensors_.size(); ++i)
            if (tensors_[i].layout.name.starts_with("model.layers.")) places_.push_back(i);
    }
    [[nodiscard]] int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }

    // A value of another type or size.
    Json any_value() {
        const std::vector<Json> values = {nullptr,
                                          true,
                                          false,
                                          0,
                                          -1,
                                          1,
                                          3,
                                          7,
                                          16,
                                          32,
                                          64,
                                          128,
                                          1'000'000,
                                          {},
                                          "x",
                                          "token",
                                          "tensor",
                                          "group",
                                          "block",
                                          "float",
                                          "int",
                                          0.5,
                                          8,
                                          4,
                                          {128, 128},
                                          {0, 0},
                                          {-1, 128},
                                          "static",
                                          "gptq",
                                          "e4m3",
                                          "awq",
                                          1e30,
                                          Json::object(),
                                          Json::array()};
        return values[static_cast<size_t>(below(std::ssize(values)))];
    }
    // Changes or removes a value somewhere below `object`, which has some.
    void change_config(Json& object) {
        auto place = object.begin();
        std::advance(place, below(static_cast<int64_t>(object.size())));
        if (place.value().is_object() && !place.value().empty() && below(4) != 0) return change_config(place.value());
        if (below(5) == 0)
            object.erase(place);
        else
            place.value() = any_value();
    }
    void change_tensor(FileTensors& tensors) {
        const size_t i = places_[static_cast<size_t>(below(std::ssize(places_)))];
        FileTensor& tensor = tensors[i];
        std::vector<int64_t>& shape = tensor.layout.shape;
        switch (below(7)) {
            case 0: tensors.erase(tensors.begin() + static_cast<int64_t>(i)); break;
            case 1: tensor.layout.name += "x"; break;
            case 2: shape.push_back(1); break;
            case 3: std::ranges::reverse(shape); break;
            case 4: shape = {static_cast<int64_t>(tensor.bytes.size()) / dtype_bytes(tensor.layout.dtype)}; break;
            case 5: std::swap(tensor.bytes, tensors[places_.front()].bytes); break;
            default:
                for (int n = 0; n < 4 && !tensor.bytes.empty(); ++n)
                    tensor.bytes[static_cast<size_t>(below(std::ssize(tensor.bytes)))] = static_cast<char>(random_());
        }
    }

    ScratchFolder scratch_;
    std::filesystem::path folder_ = scratch_.path() / "model";
    Json config_;
    FileTensors tensors_;
    std::vector<size_t> places_;  // of tensors that quantisation may concern
    std::mt19937 random_{17};
};

TEST_P(MutatedQuantised, IsLoadedOrRefusedWithAReason) {
    constexpr int kMutations = 150;
    int num_loaded = 0;
    for (int i = 0; i < kMutations; ++i) {
        Json config = config_;
        FileTensors tensors = tensors_;
        if (i % 2 == 0) change_config(config["quantization_config"]);
        if (i % 2 == 1) change_tensor(tensors);
        scratch_.write("model/config.json", config.dump());
        scratch_.write("model/model.safetensors", write_tensors(tensors));
        const auto model = load_model(folder_);
        num_loaded += model ? 1 : 0;
        if (!model) EXPECT_GT(model.error().message.size(), 20U) << model.error().message;
    }
    EXPECT_GT(num_loaded, 0);
    EXPECT_LT(num_loaded, kMutations);
}

Quantised of_kind(const char* name, const char* kind, bool is_static = false) {
    return {name, [kind, is_static](const ScratchFolder& scratch) {
                const auto folder = tests::write_quantised_preset(scratch.path() / "made", "tiny-llama", kind, 3);
                if (is_static) tests::make_scales_static(folder);
                std::filesystem::rename(folder, scratch.path() / "model");
            }};
}
Quantised packed(const char* name, const PackedForm& form) {
    return {name, [form](const ScratchFolder& scratch) {
                const auto config = tests::in_whole_groups(tests::value_of(preset("tiny-llama")));
                EXPECT_TRUE(write_random_checkpoint(config, 3, scratch.path() / "model").has_value());
                pack_checkpoint(scratch.path() / "model", form);
            }};
}

INSTANTIATE_TEST_SUITE_P(Kinds, MutatedQuantised,
                         testing::Values(of_kind("int8", "int8"), of_kind("int4", "int4-g128"), of_kind("fp8", "fp8"),
                                         of_kind("fp8_static", "fp8", true), of_kind("fp8_block", "fp8-block"),
                                         packed("gptq", {}), packed("gptq_ordered", {.ordered = true}),
                                         packed("awq", {.awq = true})),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace verbatim::reference
