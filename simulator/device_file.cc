#include "simulator/device_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "files/repository_path.h"
#include "files/strict_json.h"

namespace verbatim {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Reads the fields of one object and remembers everything that is wrong with them.
class DeviceFields {
public:
    DeviceFields(const json& object, std::vector<std::string>& problems) : object_(object), problems_(problems) {}

    double number(const std::string& key, double least, double most) {
        const json* value = take(key);
        if (value == nullptr) return least;
        if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most)) {
            problems_.push_back(
                fmt::format("\"{}\" = {}, wanted a number from {} to {}", key, quote_json(*value), least, most));
            return least;
        }
        return value->get<double>();
    }
    std::string text(const std::string& key) {
        const json* value = take(key);
        if (value == nullptr) return "";
        if (value->is_string()) return value->get<std::string>();
        problems_.push_back(fmt::format("\"{}\" = {}, wanted a string", key, quote_json(*value)));
        return "";
    }
    std::vector<double> numbers(const std::string& key, double least, double most) {
        const json* value = take(key);
        if (value == nullptr) return {};
        const auto in_range = [&](const json& one) {
            return one.is_number() && one.get<double>() >= least && one.get<double>() <= most;
        };
        if (value->is_array() && !value->empty() && std::ranges::all_of(*value, in_range))
            return value->get<std::vector<double>>();
        problems_.push_back(fmt::format("\"{}\" is not a list of numbers from {} to {}", key, least, most));
        return {};
    }
    // Of a separate object.
    json object(const std::string& key) {
        const json* value = take(key);
        if (value != nullptr && value->is_object()) return *value;
        problems_.push_back(fmt::format("\"{}\" is not an object", key));
        return json::object();
    }
    [[nodiscard]] bool has(const std::string& key) const { return object_.contains(key); }
    [[nodiscard]] const std::vector<std::string>& taken() const { return taken_; }

private:
    const json* take(const std::string& key) {
        taken_.push_back(key);
        if (object_.contains(key)) return &object_.at(key);
        problems_.push_back(fmt::format("\"{}\" is missing", key));
        return nullptr;
    }
    const json& object_;
    std::vector<std::string>& problems_;
    std::vector<std::string> taken_;
};

void read_sources(const json& object, const std::vector<std::string>& values, Device& device,
                  std::vector<std::string>& problems) {
    const json sources = object.value("sources", json::object());
    if (!sources.is_object()) {
        problems.push_back("\"sources\" is not an object");
        return;
    }
    for (const auto& [key, value] : sources.items()) {
        if (!value.is_string()) problems.push_back(fmt::format("source of \"{}\" is not a string", key));
        if (value.is_string()) device.sources[key] = value.get<std::string>();
    }
    for (const std::string& key : values) {
        if (key != "name" && !device.sources.contains(key))
            problems.push_back(fmt::format("\"sources\" does not say where \"{}\" comes from", key));
    }
}

constexpr double kMost = 1e18;

// What `verbatim calibrate` found.
StepTimes read_steps(const json& object, std::vector<std::string>& problems) {
    DeviceFields fields(object, problems);
    StepTimes times;
    times.model = fields.text("model");
    times.tokens = fields.numbers("tokens", 1, kMost);
    times.base_ns = fields.numbers("base_ns", 0, kMost);
    times.sequence_ns = fields.number("sequence_ns", 0, kMost);
    times.chunk_pair_ns = fields.number("chunk_pair_ns", 0, kMost);
    times.decode_pair_ns = fields.number("decode_pair_ns", 0, kMost);
    times.logit_row_ns = fields.number("logit_row_ns", 0, kMost);
    times.state_write_ns = fields.number("state_write_ns", 0, kMost);
    const bool ascends = std::ranges::adjacent_find(times.tokens, std::greater_equal<>()) == times.tokens.end();
    if (!ascends || times.tokens.size() != times.base_ns.size())
        problems.push_back("\"steps\": \"tokens\" must ascend, and \"base_ns\" have as many values");
    return times;
}

}  // namespace

Result<Device> parse_device(std::string_view text, const std::string& path) {
    ASSIGN_OR_RETURN(const json object, parse_strict_json(text, path));
    if (!object.is_object()) return error("{}: wanted a JSON object with a device's fields", path);
    std::vector<std::string> problems;
    DeviceFields fields(object, problems);
    Device device;
    device.name = fields.text("name");
    device.memory_bytes = static_cast<int64_t>(fields.number("memory_bytes", 1, kMost));
    device.memory_bytes_per_s = fields.number("memory_bytes_per_s", 1, kMost);
    device.bf16_flops = fields.number("bf16_flops", 1, kMost);
    if (fields.has("fp8_flops")) device.fp8_flops = fields.number("fp8_flops", 1, kMost);
    if (fields.has("fp4_flops")) device.fp4_flops = fields.number("fp4_flops", 1, kMost);
    device.memory_efficiency = fields.number("memory_efficiency", 0.01, 1);
    device.flops_efficiency = fields.number("flops_efficiency", 0.01, 1);
    device.kernel_ns = fields.number("kernel_ns", 0, 1e9);
    device.step_overhead_ns = fields.number("step_overhead_ns", 0, 1e12);
    if (fields.has("sequence_overhead_ns"))
        device.sequence_overhead_ns = fields.number("sequence_overhead_ns", 0, 1e12);
    if (fields.has("roofline_fast")) device.roofline_fast = fields.number("roofline_fast", 0.01, 1);
    if (fields.has("roofline_slow")) device.roofline_slow = fields.number("roofline_slow", 1, 100);
    if (fields.has("link_bytes_per_s")) device.link_bytes_per_s = fields.number("link_bytes_per_s", 1, kMost);
    if (fields.has("link_latency_ns")) device.link_latency_ns = fields.number("link_latency_ns", 0, 1e9);
    if (fields.has("network_bytes_per_s")) device.network_bytes_per_s = fields.number("network_bytes_per_s", 1, kMost);
    if (fields.has("node_gpus")) device.node_gpus = static_cast<int32_t>(fields.number("node_gpus", 1, 1024));
    if (fields.has("power_w")) device.power_w = fields.number("power_w", 1, 1e5);
    device.workspace_bytes = static_cast<int64_t>(fields.number("workspace_bytes", 0, kMost));
    if (fields.has("tables")) device.tables = fields.text("tables");
    if (fields.has("steps")) device.steps = read_steps(fields.object("steps"), problems);
    const std::vector<std::string> values = fields.taken();
    if (fields.has("sources"))
        read_sources(object, values, device, problems);
    else
        problems.push_back("\"sources\" is missing");
    for (const auto& [key, value] : object.items()) {
        if (key != "sources" && std::ranges::count(values, key) == 0)
            problems.push_back(fmt::format("\"{}\" is not understood", key));
    }
    if (!problems.empty()) return error("{}: {}", path, fmt::join(problems, "; "));
    return device;
}

std::vector<std::string> device_names() {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(repository_path("simulator/devices"), ignored)) {
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
    std::ranges::sort(names);
    return names;
}

Result<Device> read_device(const std::string& name_or_path) {
    const std::vector<std::string> names = device_names();
    const bool is_known = std::ranges::count(names, name_or_path) > 0;
    const std::string path =
        is_known ? repository_path(fmt::format("simulator/devices/{}.json", name_or_path)) : name_or_path;
    std::error_code ignored;
    std::ifstream file(path, std::ios::binary);
    if (!fs::is_regular_file(path, ignored) || !file) {
        return error("--device {}: neither a device file nor one of {}", name_or_path, fmt::join(names, ", "));
    }
    std::ostringstream text;
    text << file.rdbuf();
    ASSIGN_OR_RETURN(Device device, parse_device(text.str(), path));
    if (!device.tables.empty()) device.tables = (fs::path(path).parent_path() / device.tables).string();
    return device;
}

std::vector<std::string> table_files(const Device& device) {
    std::vector<std::string> files;
    if (device.tables.empty()) return files;
    const fs::path prefix = device.tables;
    std::error_code problem;
    const fs::path folder = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
        if (entry->path().filename().string().starts_with(prefix.filename().string()))
            files.push_back(entry->path().string());
    }
    return files;
}

}  // namespace verbatim
