// tests/reference/loader/quantised_matrix.h: a checkpoint of which one matrix is quantised, in tensors that a test
// makes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "reference/reference_executor.h"
#include "tests/reference/loader/checkpoint_builder.h"
#include "tests/reference/loader/quantised_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {

using Json = nlohmann::json;
using tests::ScratchFolder;

template <typename T>
T element(const FileTensor& tensor, int64_t i) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

template <typename T>
FileTensor tensor_of(std::string name, TensorDtype dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    return {{std::move(name), dtype, std::move(shape)},
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

// By the definition of e4m3, apart from NaN.
inline float plain_e4m3(uint8_t bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    const double magnitude =
        exponent == 0 ? mantissa / 8.0 * std::pow(2.0, -6) : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
    return static_cast<float>((bits & 128) != 0 ? -magnitude : magnitude);
}

// A llama of which one matrix is quantised, in tensors that a test makes.
class QuantisedMatrix : public testing::Test {
protected:
    static constexpr const char* kBase = "model.layers.0.self_attn.k_proj";

    QuantisedMatrix() {
        const auto config = tests::in_whole_groups(tests::value_of(preset("tiny-llama")));
        EXPECT_TRUE(write_random_checkpoint(config, 3, scratch_.path()).has_value());
        Model model = tests::value_of(load_model(scratch_.path()));
        rows_ = model.weights.layers[0].attention.k.rows;
        cols_ = model.weights.layers[0].attention.k.cols;
        tensors_ = read_tensors(read_file(scratch_.path() / "model.safetensors"));
        config_ = Json::parse(read_file(scratch_.path() / "config.json"));
    }

    void replace(const FileTensors& by) {
        std::erase_if(tensors_, [](const FileTensor& tensor) { return tensor.layout.name.starts_with(kBase); });
        tensors_.insert(tensors_.end(), by.begin(), by.end());
    }
    [[nodiscard]] Result<Model> load(const Json& quantisation) {
        config_["quantization_config"] = quantisation;
        return load_as_written();
    }
    [[nodiscard]] Result<Model> load_as_written() {
        scratch_.write("config.json", config_.dump());
        scratch_.write("model.safetensors", write_tensors(tensors_));
        return load_model(scratch_.path());
    }
    [[nodiscard]] std::string error_of(const Json& quantisation) {
        const auto model = load(quantisation);
        return model.has_value() ? "loaded" : model.error().message;
    }
    // Loads it and compares every weight (row, column).
    void expect_values(const Json& quantisation, const BlockFormat& format,
                       const std::function<float(int64_t r, int64_t k)>& wanted) {
        const Model model = tests::value_of(load(quantisation));
        const MatrixView& view = model.weights.layers[0].attention.k;
        ASSERT_EQ(view.format, &format);
        std::vector<float> values(static_cast<size_t>(view.cols));
        for (int64_t r = 0; r < view.rows; ++r) {
            view.read_row(r, values);
            for (int64_t k = 0; k < view.cols; ++k)
                ASSERT_EQ(values[static_cast<size_t>(k)], wanted(r, k)) << "row " << r << " column " << k;
        }
        EXPECT_EQ(ReferenceExecutor(model.config, model.weights).numerics_id(), "exact.blocks/1");
    }

    ScratchFolder scratch_;
    FileTensors tensors_;
    Json config_;
    int64_t rows_ = 0;
    int64_t cols_ = 0;
    std::mt19937 random_{11};
};

}  // namespace verbatim::reference
