// kernels/sandbox/operation.h: owns the sandbox's description of an operation, shared by all its verbs: sizes and their
// edges, tensors, the C struct, the cost, and how a call is split.
//
//   O1  a call is a batch of items (rows, sequences); rows of an item are consecutive
//   O2  a tensor has one unit per call, per item or per row: a call of some items, or of some rows of an item, can be
//       made from another call's tensors without knowledge of the operation
//   O3  the definition's bits are those of the reference kernel (kernels/sandbox/builtin_kernels.h), or of a contract's
//       reference function (kernels/sandbox/contract_operation.h)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/prng.h"
#include "engine/base/result.h"
#include "kernels/sandbox/kernel.h"

namespace verbatim::sandbox {

inline constexpr size_t kMaxSizes = 8;
inline constexpr size_t kMaxScalars = 4;
inline constexpr size_t kMaxTensors = 16;

using Sizes = std::array<int64_t, kMaxSizes>;
using Scalars = std::array<float, kMaxScalars>;

enum class Dtype : uint8_t { kF32, kBf16, kI32, kU32, kI64, kU64, kF16, kF8E4m3, kF8E5m2, kI8 };
int64_t bytes_of(Dtype dtype);
enum class Role : uint8_t { kIn, kOut, kInOut };
enum class Axis : uint8_t { kCall, kItem, kRow };
enum class Fill : uint8_t {
    kValues,    // from the case's class of values
    kPlain,     // about 1, in every class
    kOwn,       // from Operation::finish
    kFirstRow,  // verbatim_sequences::first_row
};

struct TensorSpec {
    const char* name = "";
    Dtype dtype = Dtype::kF32;
    Role role = Role::kIn;
    Axis axis = Axis::kRow;
    int64_t width = 0;  // elements of a unit; 0: the pointer is null
    Fill fill = Fill::kValues;
    bool strided = false;             // rows may be parts of wider rows
    const char* lies_in = nullptr;    // of an output: may share the memory of this input
    const char* continues = nullptr;  // of an input: in the next chunk it is the previous chunk's output of this name
    bool advances = false;            // int64 per item: increases by a chunk's rows
};

struct SizeSpec {
    const char* name = "";
    int64_t least = 1;
    int64_t usual = 1;           // the value while another size is at its edges
    std::vector<int64_t> edges;  // 1, odd, block ± 1, chunk ± 1, ...
    bool is_choice = false;      // no other values are valid
    bool is_cut = false;         // of a published shape that is too much work: halved until it fits
    std::vector<int64_t> real;   // of real batches and contexts; tried with the other sizes thin
};

// Minimum bytes and operations of a call, by the contract.
struct Work {
    double bytes = 0;
    double flops = 0;
};

struct Operation;

// A call's tensors in the host's memory, units contiguous.
struct Tensor {
    TensorSpec spec;
    int64_t num_units = 0;
    std::vector<std::byte> bytes;

    [[nodiscard]] int64_t unit_bytes() const { return spec.width * bytes_of(spec.dtype); }
    template <typename T>
    [[nodiscard]] std::span<T> as() {
        return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    template <typename T>
    [[nodiscard]] std::span<const T> as() const {
        return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
};
struct Arguments {
    const Operation* operation = nullptr;
    Sizes sizes{};
    Scalars scalars{};
    std::vector<int64_t> item_rows;
    std::vector<Tensor> tensors;

    [[nodiscard]] int64_t num_rows() const;
    [[nodiscard]] Tensor& tensor(std::string_view name);
    [[nodiscard]] const Tensor& tensor(std::string_view name) const;
};

// A call's tensors at the addresses that a kernel gets. Plain data: it crosses to the process that runs the kernel.
struct Placed {
    Sizes sizes{};
    Scalars scalars{};
    int64_t num_items = 0;
    int64_t num_rows = 0;
    std::array<std::byte*, kMaxTensors> data{};  // null: absent
    std::array<int64_t, kMaxTensors> stride{};   // elements
};
union AbiArgs {
    verbatim_matmul matmul;
    verbatim_rms_norm rms_norm;
    verbatim_gated_norm gated_norm;
    verbatim_conv conv;
    verbatim_scan scan;
    verbatim_rope rope;
    verbatim_attention attention;
    verbatim_activation activation;
    verbatim_sampling sampling;
    verbatim_head_digest head_digest;
    verbatim_delta_update delta_update;
    verbatim_delta_gates delta_gates;
    verbatim_l2_norm l2_norm;
    verbatim_router router;
    verbatim_choose choose;
    verbatim_experts experts;
    verbatim_add_routed add_routed;
    verbatim_call call;
};

// How far a kernel of the fast profile may be from a contract's reference.
struct Tolerance {
    enum class Of : uint8_t { kNothing, kElement, kUnit };
    Of of = Of::kNothing;  // ulps of the element, or of the greatest one of its unit
    double ulps = 0;
};

struct Operation {
    const char* name = "";
    const char* contract = "";  // shapes, formula, order of sums
    bool takes_not_finite = true;
    bool sums_exactly = false;  // sums of small integers are exact, so their order is invisible
    std::vector<SizeSpec> sizes;
    std::vector<std::string> scalars;                     // names of Arguments::scalars
    std::function<bool(const Sizes& sizes)> go_together;  // null: all combinations of sizes are valid
    std::function<std::vector<Sizes>()> published;        // shapes of published models
    std::function<std::vector<TensorSpec>(const Sizes& sizes)> tensors;
    std::function<std::vector<int64_t>(const Sizes& sizes, Prng& prng)> items;  // rows of each
    std::function<void(Arguments& arguments, Prng& prng)> finish;               // kOwn tensors, scalars
    // For a call with all its values: makes memory inaccessible that must not be read. Null: all may be read.
    std::function<void(Arguments& arguments)> settle;
    // The same call with other bounds of its batch (the longest context, the table's length, the widest prefix): the
    // least ones that the call allows, and larger ones. Null: a launch is given no such bounds.
    std::function<std::vector<Arguments>(const Arguments& arguments)> bounded_otherwise;
    // The same call with its pages elsewhere, in other block sizes; null: it has no pages.
    std::function<std::vector<Arguments>(const Arguments& arguments)> paged_otherwise;
    // Whether the contract allows the values; null: it allows all.
    std::function<Status(const Arguments& arguments)> admits;
    // The C struct, in `abi`. Tensors are numbered as tensors() lists them.
    std::function<verbatim_args(const Placed& placed, AbiArgs& abi)> bind;
    std::function<Work(const Arguments& arguments)> work;
    // The outputs of a contiguous call in binary64, one vector for each output of binary32; null: exact alone.
    std::function<std::vector<std::vector<double>>(const AbiArgs& abi)> doubles;
    // The call with the outputs of a contract's reference. Null: the operation is built in.
    std::function<Result<Arguments>(const Arguments& arguments)> definition;
    Tolerance tolerance = {};  // of the fast profile, where there is a definition
};

// By the names of kernels/sandbox/kernel.h, in its order.
std::span<const Operation> operations();
// Null: no operation of this name, built in or added.
const Operation* find_operation(std::string_view name);
// Adds a contract's operation, which lives until the program ends and replaces an added one of its name. Error: a
// built-in one has the name.
Result<const Operation*> add_operation(Operation operation);
// Whether the operation has a call of these sizes, each of which is valid.
bool go_together(const Operation& operation, const Sizes& sizes);
// "rows 3, n 65, k 257"
std::string describe(const Operation& operation, const Sizes& sizes);

// The lists that operations() joins.
std::vector<Operation> dense_operations();     // matmul, norms, rope, activation
std::vector<Operation> sequence_operations();  // conv, scan, attention
std::vector<Operation> other_operations();     // sampling, head_digest
std::vector<Operation> delta_operations();     // delta_update, delta_gates, l2_norm
std::vector<Operation> expert_operations();    // router, choose, experts, add_routed

}  // namespace verbatim::sandbox
