// reference/loader/gguf_fields.h: the metadata of one architecture of a GGUF file, read key by key. Every problem is
// collected, and so is every key of the architecture that nothing asked for.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "files/strict_json.h"
#include "reference/loader/config_json.h"
#include "reference/loader/gguf.h"

namespace verbatim::reference {

inline constexpr int64_t kMaxBlocks = 4096;

// The shortest decimal number that a binary32 prints as: 1e-05 and not 9.999999747378752e-06, as in the config.json
// that the value came from. It rounds to the same binary32.
inline double shortest(double value) {
    return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
}

// The keys of one architecture; collects problems and the keys that were looked at. `file` outlives it.
class GgufFields {
public:
    GgufFields(const GgufFile& file, std::string_view architecture)
        : file_(file), prefix_(fmt::format("{}.", architecture)) {}

    [[nodiscard]] bool has(std::string_view key) { return find(key) != nullptr; }
    [[nodiscard]] bool has_tensor(std::string_view name) const { return file_.tensors.contains(name); }
    [[nodiscard]] bool has_tensor_in(int64_t block, std::string_view name) const {
        return has_tensor(fmt::format("blk.{}.{}", block, name));
    }
    // The values of a tensor that is there; empty if it is not one of at most 4096 binary32 numbers.
    [[nodiscard]] std::vector<float> vector_of(std::string_view name) const {
        const GgufTensor& tensor = file_.tensors.at(name);
        std::vector<float> values;
        if (tensor.format->name == "F32" && tensor.num_elements() <= 4096) {
            values.resize(static_cast<size_t>(tensor.num_elements()));
            dequantise(*tensor.format, tensor.bytes, values);
        }
        return values;
    }
    // Rows of a matrix, 0 without one.
    [[nodiscard]] int64_t tensor_rows(std::string_view name) const {
        const auto found = file_.tensors.find(name);
        return found == file_.tensors.end() || found->second.shape.size() < 2
                   ? 0
                   : found->second.shape[found->second.shape.size() - 2];
    }
    int64_t size_or(std::string_view key, int64_t missing) {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing;
        const auto* number = std::get_if<int64_t>(value);
        if (number != nullptr && *number >= 0 && *number <= INT32_MAX) return *number;
        problem("{}{} = {}, wanted a natural number below 2^31", prefix_, key, value_text(*value));
        return missing;
    }
    int64_t size(std::string_view key) {
        if (find(key) == nullptr) problem("{}{} is missing, wanted a natural number", prefix_, key);
        return size_or(key, 1);
    }
    double number_or(std::string_view key, double missing) {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing;
        if (const auto* real = std::get_if<double>(value); real != nullptr && std::isfinite(*real))
            return shortest(*real);
        problem("{}{} = {}, wanted a number", prefix_, key, value_text(*value));
        return missing;
    }
    double number(std::string_view key) {
        if (find(key) == nullptr) problem("{}{} is missing, wanted a number", prefix_, key);
        return number_or(key, 1.0);
    }
    bool flag_or(std::string_view key, bool missing) {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing;
        if (const auto* flag = std::get_if<bool>(value)) return *flag;
        problem("{}{} = {}, wanted true or false", prefix_, key, value_text(*value));
        return missing;
    }
    std::string_view text_or(std::string_view key, std::string_view missing) {
        const GgufValue* value = find(key);
        const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
        if (value != nullptr && text == nullptr) problem("{}{} = {}, wanted a text", prefix_, key, value_text(*value));
        return text == nullptr ? missing : *text;
    }
    // A number for every layer, or one for all. A list in the file has one for each layer that predicts, too.
    std::vector<int64_t> per_layer(std::string_view key) {
        std::vector<int64_t> list(static_cast<size_t>(num_blocks()), 0);
        const GgufValue* value = find(key);
        const auto* numbers = value == nullptr ? nullptr : std::get_if<GgufNumbers>(value);
        if (numbers == nullptr) {
            list.assign(static_cast<size_t>(num_layers()), size(key));
            return list;
        }
        if (numbers->size() != list.size())
            problem("{}{} has {} numbers, block_count is {}", prefix_, key, numbers->size(), list.size());
        for (size_t i = 0; i < std::min(list.size(), numbers->size()); ++i) {
            const double each = numbers->at(i);
            if (!(each >= 0 && each <= INT32_MAX))
                problem("{}{}[{}] = {}, wanted a natural number", prefix_, key, i, each);
            else
                list[i] = static_cast<int64_t>(each);
        }
        list.resize(static_cast<size_t>(num_layers()));
        return list;
    }
    int64_t num_blocks() { return std::min(size("block_count"), kMaxBlocks); }
    // Without those that predict more tokens.
    int64_t num_layers() { return num_blocks() - num_prediction_; }
    // Of architectures that can have layers that predict, before anything else is read.
    void read_num_prediction() {
        const int64_t count = size_or("nextn_predict_layers", 0);
        if (count == 0 || count < num_blocks())
            num_prediction_ = count;
        else
            problem("{}nextn_predict_layers = {}, wanted less than block_count = {}", prefix_, count, num_blocks());
    }
    // Keys that change nothing.
    void harmless(std::initializer_list<std::string_view> keys) {
        for (const std::string_view key : keys) find(key);
    }
    template <typename... Args>
    void problem(fmt::format_string<Args...> format, Args&&... args) {
        std::string text = fmt::format(format, std::forward<Args>(args)...);
        if (std::find(problems_.begin(), problems_.end(), text) == problems_.end())
            problems_.push_back(std::move(text));
    }
    // Every problem, keys of the architecture that nothing asked for among them.
    [[nodiscard]] std::vector<std::string> problems() {
        for (const auto& [key, value] : file_.metadata)
            if (key.starts_with(prefix_) && !seen_.contains(key))
                problem("{} = {}: the key is not known for this architecture", quote_text(key), value_text(value));
        return problems_;
    }

private:
    const GgufValue* find(std::string_view key) {
        const std::string whole = prefix_ + std::string(key);
        const auto found = file_.metadata.find(whole);
        if (found == file_.metadata.end()) return nullptr;
        seen_.insert(found->first);
        return &found->second;
    }

    const GgufFile& file_;
    std::string prefix_;
    int64_t num_prediction_ = 0;
    std::set<std::string_view> seen_;
    std::vector<std::string> problems_;
};

}  // namespace verbatim::reference
