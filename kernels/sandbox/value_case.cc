#include "kernels/sandbox/value_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/strict_json.h"
#include "kernels/sandbox/builtin_kernels.h"
#include "kernels/sandbox/case_json.h"
#include "kernels/sandbox/element_values.h"
#include "kernels/sandbox/session.h"
#include "reference/records/locate.h"

namespace verbatim::sandbox {
namespace {

using ValueJson = nlohmann::ordered_json;

constexpr uintmax_t kMostCaseFileBytes = uintmax_t{256} << 20;
constexpr double kCaseSeconds = 120;  // the emulator takes its time
constexpr std::array<std::string_view, 3> kCaseProfiles = {"exact", "tensor.sm90", "fast"};

std::string_view profile_of_bits(std::string_view profile) { return profile == "fast" ? "exact" : profile; }

// --- elements as text

uint64_t element_bits(const Tensor& tensor, int64_t i) {
    const int64_t size = bytes_of(tensor.spec.dtype);
    uint64_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + i * size, static_cast<size_t>(size));
    return bits;
}

ValueJson tensor_json(const Tensor& tensor) {
    constexpr char kDigits[] = "0123456789abcdef";
    const int64_t digits = 2 * bytes_of(tensor.spec.dtype);
    std::string bits;
    bits.reserve(tensor.bytes.size() * 2);
    for (int64_t i = 0; i < num_elements(tensor); ++i) {
        const uint64_t element = element_bits(tensor, i);
        for (int64_t digit = digits; digit-- > 0;) bits += kDigits[element >> 4 * digit & 15];
    }
    return {{"dtype", name(tensor.spec.dtype)},
            {"shape", {tensor.num_units, tensor.spec.width}},
            {"bits", std::move(bits)}};
}

int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// --- reading

class CaseReader {
public:
    CaseReader(const std::string& path, const ValueJson& json) : path_(path), json_(json) {}

    Result<ValueCase> read() {
        ValueCase one;
        const std::string op = json_.value("op", "");
        operation_ = find_operation(op);
        if (operation_ == nullptr) return error("{}: op {:?} is no operation (`verbatim kernel list`)", path_, op);
        one.profile = json_.value("profile", "exact");
        if (std::ranges::count(kCaseProfiles, one.profile) == 0)
            return error("{}: profile {:?} is none of exact, tensor.sm90, fast", path_, one.profile);
        if (!has_definition(one.profile)) return error("{}: {} has no definition in {}", path_, op, one.profile);
        one.met = json_.value("met", "");
        one.call.operation = operation_;
        ASSIGN_OR_RETURN(one.call.sizes,
                         read_sizes(path_, *operation_, nlohmann::json(json_.value("sizes", ValueJson::object()))));
        RETURN_IF_ERROR(read_item_rows(one.call));
        RETURN_IF_ERROR(read_scalars(one.call));
        RETURN_IF_ERROR(read_tensors(one));
        RETURN_IF_ERROR(check_indices(one.call));
        return one;
    }

private:
    [[nodiscard]] bool has_definition(std::string_view profile) const {
        return reference_kernel(operation_->name, profile_of_bits(profile)) != nullptr;
    }
    [[nodiscard]] bool is_of_sequences(const Sizes& sizes) const {
        return std::ranges::any_of(operation_->tensors(sizes),
                                   [](const TensorSpec& spec) { return spec.fill == Fill::kFirstRow; });
    }

    // sizes[0] items; of a sequence at most sizes[1] rows.
    Status read_item_rows(Arguments& call) const {
        const int64_t most = is_of_sequences(call.sizes) ? call.sizes[1] : 1;
        const ValueJson rows = json_.value("item_rows", ValueJson());
        if (!rows.is_array() || std::ssize(rows) != call.sizes[0])
            return error("{}: item_rows is no list of {} numbers", path_, call.sizes[0]);
        for (const ValueJson& count : rows) {
            if (!count.is_number_integer() || count.get<int64_t>() < 1 || count.get<int64_t>() > most)
                return error("{}: item_rows has {}, wanted 1 ... {}", path_, count.dump(), most);
            call.item_rows.push_back(count.get<int64_t>());
        }
        return {};
    }

    Status read_scalars(Arguments& call) const {
        const ValueJson scalars = json_.value("scalars", ValueJson());
        if (!scalars.is_array() || scalars.size() != kMaxScalars)
            return error("{}: scalars is no list of {} texts", path_, kMaxScalars);
        for (size_t i = 0; i < kMaxScalars; ++i) {
            Tensor one{{.name = "scalars", .axis = Axis::kCall, .width = 1}, 1, std::vector<std::byte>(4)};
            RETURN_IF_ERROR(read_bits(scalars[i], "scalars", one));
            call.scalars[i] = one.as<float>()[0];
        }
        return {};
    }

    Status read_tensors(ValueCase& one) const {
        Arguments& call = one.call;
        for (TensorSpec spec : operation_->tensors(call.sizes)) {
            if (spec.fill == Fill::kFirstRow) spec.width = std::ssize(call.item_rows) + 1;
            const int64_t units = spec.axis == Axis::kRow    ? call.num_rows()
                                  : spec.axis == Axis::kItem ? std::ssize(call.item_rows)
                                                             : 1;
            const double size = static_cast<double>(units) * static_cast<double>(spec.width * bytes_of(spec.dtype));
            if (size > static_cast<double>(kMostCaseFileBytes)) return error("{}: {} is too large", path_, spec.name);
            Tensor& tensor = call.tensors.emplace_back(Tensor{spec, units, {}});
            tensor.bytes.resize(static_cast<size_t>(units * tensor.unit_bytes()));
        }
        const ValueJson tensors = json_.value("tensors", ValueJson::object());
        const ValueJson expected = json_.value("expected", ValueJson::object());
        for (Tensor& tensor : call.tensors) {
            if (tensor.spec.fill == Fill::kFirstRow) {
                std::ranges::copy(first_rows_of(call.item_rows), tensor.as<int64_t>().begin());
            } else if (tensor.spec.role != Role::kOut) {
                RETURN_IF_ERROR(read_tensor(tensors, "tensors", tensor));
            }
        }
        one.expected = call;
        for (Tensor& tensor : one.expected.tensors) {
            if (tensor.spec.role != Role::kIn) RETURN_IF_ERROR(read_tensor(expected, "expected", tensor));
        }
        return {};
    }

    Status read_tensor(const ValueJson& all, const char* list, Tensor& tensor) const {
        const std::string name = fmt::format("{}.{}", list, tensor.spec.name);
        const auto found = all.find(tensor.spec.name);
        if (found == all.end() || !found->is_object()) return error("{}: {} is missing", path_, name);
        const std::string dtype = found->value("dtype", "");
        if (dtype != sandbox::name(tensor.spec.dtype))
            return error("{}: {}.dtype is {:?}, wanted {:?}", path_, name, dtype, sandbox::name(tensor.spec.dtype));
        return read_bits(found->value("bits", ValueJson()), name, tensor);
    }

    Status read_bits(const ValueJson& json, const std::string& name, Tensor& tensor) const {
        const auto digits = static_cast<size_t>(2 * bytes_of(tensor.spec.dtype));
        if (!json.is_string() || json.get_ref<const std::string&>().size() != tensor.bytes.size() * 2) {
            return error("{}: {} is no text of {} hexadecimal digits: {} elements of {}", path_, name,
                         tensor.bytes.size() * 2, num_elements(tensor), digits);
        }
        const auto& text = json.get_ref<const std::string&>();
        for (size_t i = 0; i < static_cast<size_t>(num_elements(tensor)); ++i) {
            uint64_t bits = 0;
            for (size_t digit = 0; digit < digits; ++digit) {
                const int value = digit_of(text[i * digits + digit]);
                if (value < 0)
                    return error("{}: {}, element {}: {:?} is no digit", path_, name, i,
                                 text.substr(i * digits, digits));
                bits = bits << 4 | static_cast<uint64_t>(value);
            }
            std::memcpy(tensor.bytes.data() + i * digits / 2, &bits, digits / 2);
        }
        return {};
    }

    // Whatever a kernel follows is there.
    [[nodiscard]] Status check_indices(const Arguments& call) const {
        const std::string_view op = operation_->name;
        const auto within = [&](const char* name, const auto& values, int64_t least, int64_t most) -> Status {
            for (const auto value : values) {
                if (value >= least && value <= most) continue;
                return error("{}: tensors.{} has {}, which is not in {} ... {}", path_, name, value, least, most);
            }
            return {};
        };
        if (op == "rope") {
            const int64_t positions = call.tensor("cos").spec.width / call.sizes[2];
            return within("positions", call.tensor("positions").as<int64_t>(), 0, positions - 1);
        }
        if (op == "sampling") {
            for (const char* name : {"prompt", "generated"}) {
                const Tensor& ids = call.tensor(name);
                const std::string count = fmt::format("num_{}", name);
                RETURN_IF_ERROR(within(name, ids.as<int32_t>(), 0, call.sizes[1] - 1));
                RETURN_IF_ERROR(within(count.c_str(), call.tensor(count).as<int32_t>(), 0, ids.spec.width));
            }
        }
        if (op == "attention") return check_pages(call);
        const Status admitted = operation_->admits != nullptr ? operation_->admits(call) : Status{};
        if (!admitted) return error("{}: {}", path_, admitted.error().message);
        return {};
    }

    [[nodiscard]] Status check_pages(const Arguments& call) const {
        const Tensor& tables = call.tensor("block_tables");
        const int64_t block_size = call.sizes[6];
        const int64_t num_blocks = call.tensor("k").spec.width / (block_size * call.sizes[3] * call.sizes[5]);
        const auto positions = call.tensor("first_position").as<int64_t>();
        for (size_t s = 0; s < call.item_rows.size(); ++s) {
            if (positions[s] < 0 || positions[s] > call.sizes[2])
                return error("{}: first_position {} is not in 0 ... {}", path_, positions[s], call.sizes[2]);
            const int64_t used = (positions[s] + call.item_rows[s] + block_size - 1) / block_size;
            for (int64_t i = 0; i < used; ++i) {
                const int32_t block = tables.as<int32_t>()[static_cast<int64_t>(s) * tables.spec.width + i];
                if (block < 0 || block >= num_blocks)
                    return error("{}: block_tables of sequence {} has {}: there are {} blocks", path_, s, block,
                                 num_blocks);
            }
        }
        return {};
    }

    const std::string& path_;
    const ValueJson& json_;
    const Operation* operation_ = nullptr;
};

// --- comparing

std::optional<ElementDifference> difference_between(const Arguments& got, const Arguments& wanted) {
    for (size_t t = 0; t < got.tensors.size(); ++t) {
        const Tensor& mine = got.tensors[t];
        const Tensor& right = wanted.tensors[t];
        if (mine.spec.role == Role::kIn) continue;
        ElementDifference found;
        for (int64_t i = num_elements(mine); i-- > 0;) {
            if (same_element(mine, right, i)) continue;
            ++found.num_different;
            found.index = i / mine.spec.width;
            found.element = i % mine.spec.width;
        }
        if (found.num_different == 0) continue;
        const int64_t first = found.index * mine.spec.width + found.element;
        found.tensor = mine.spec.name;
        found.unit = mine.spec.axis == Axis::kRow ? "row" : mine.spec.axis == Axis::kItem ? "sequence" : "call";
        found.got = element_text(mine, first);
        found.wanted = element_text(right, first);
        if (mine.spec.dtype == Dtype::kF32)
            found.ulps = records::ulps_between(mine.as<float>()[first], right.as<float>()[first]);
        found.num_elements = num_elements(mine);
        return found;
    }
    return std::nullopt;
}

}  // namespace

ValueCase value_case_of(Arguments call, std::string profile, std::string met) {
    // Most operations have one arithmetic, whatever the run's profile.
    const bool has_one = reference_kernel(call.operation->name, profile_of_bits(profile)) != nullptr;
    ValueCase one{std::move(call), {}, has_one ? std::move(profile) : "exact", std::move(met)};
    one.expected = defined(one.call, profile_of_bits(one.profile));
    return one;
}

std::string value_case_file(const ValueCase& one) {
    const Operation& operation = *one.call.operation;
    ValueJson json = {{"op", operation.name}, {"contract", operation.contract}, {"profile", one.profile}};
    json["met"] = one.met;
    for (size_t i = 0; i < operation.sizes.size(); ++i) json["sizes"][operation.sizes[i].name] = one.call.sizes[i];
    json["item_rows"] = one.call.item_rows;
    for (const float scalar : one.call.scalars)
        json["scalars"].push_back(fmt::format("{:08x}", std::bit_cast<uint32_t>(scalar)));
    for (const Tensor& tensor : one.call.tensors) {
        const bool is_made = tensor.spec.fill == Fill::kFirstRow || tensor.spec.role == Role::kOut;
        if (!is_made) json["tensors"][tensor.spec.name] = tensor_json(tensor);
    }
    for (const Tensor& tensor : one.expected.tensors) {
        if (tensor.spec.role != Role::kIn) json["expected"][tensor.spec.name] = tensor_json(tensor);
    }
    return json_text(json, 1) + "\n";
}

Result<ValueCase> read_value_case_text(const std::string& path, const std::string& text) {
    ASSIGN_OR_RETURN(const ValueJson json, parse_strict_ordered_json(text, path));
    if (!json.is_object()) return error("{}: is no JSON object, as `verbatim shrink` writes them", path);
    try {
        return CaseReader(path, json).read();
    } catch (const ValueJson::exception& wrong) {
        return error("{}: {}", path, wrong.what());
    }
}

Result<ValueCase> read_value_case(const std::string& path) {
    std::error_code failed;
    const bool is_file = std::filesystem::is_regular_file(path, failed);
    if (!is_file || failed) return error("{}: is no file that can be read", path);
    const uintmax_t size = std::filesystem::file_size(path, failed);
    if (failed || size > kMostCaseFileBytes)
        return error("{}: has {} bytes, a case has at most {}", path, size, kMostCaseFileBytes);
    std::ifstream file(path, std::ios::binary);
    if (!file) return error("{}: cannot be read", path);
    return read_value_case_text(path, std::string((std::istreambuf_iterator<char>(file)), {}));
}

std::string to_string(const ElementDifference& d) {
    return fmt::format("`{}` {} {}, element {}: {}, wanted {}{}; {} of {} differ", d.tensor, d.unit, d.index, d.element,
                       d.got, d.wanted, d.ulps ? fmt::format(", {} ulps apart", *d.ulps) : "", d.num_different,
                       d.num_elements);
}

std::vector<CaseOutcome> run_value_case(const ValueCase& one) {
    KernelHost host("", {.seconds = kCaseSeconds});
    std::vector<CaseOutcome> outcomes;
    for (const KernelInfo& kernel : builtin_infos(*one.call.operation)) {
        if (kernel.profile != one.profile && kernel.profile != profile_of_bits(one.profile)) continue;
        CaseOutcome& outcome = outcomes.emplace_back();
        outcome.kernel = kernel.name;
        outcome.machine = kernel.machine;
        outcome.profile = kernel.profile;
        const CallResult result = host.call(kernel, one.call);
        outcome.supported = result.end != CallEnd::kUnsupported;
        if (!outcome.supported) continue;
        if (result.end == CallEnd::kDone) {
            outcome.difference = difference_between(result.after, one.expected);
        } else {
            outcome.failure = fmt::format("{}: {}", name(verdict_of(result)), result.detail);
        }
    }
    return outcomes;
}

}  // namespace verbatim::sandbox
