// kernels/sandbox/workload.h: owns the sample of one operation's calls in a real run, and the file that keeps them
// (`replay --capture OP`, `kernel check OP --workload FILE`).
//
//   C1  the sample is independent of the calls' order: the shapes with the smallest digests are kept
//   C2  a kept shape is counted from its first call to its last; its values are its first call's
//   C3  a file has at most kMostCalls calls, and at most kMostValueBytes of values; tensors without values are
//       generated
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/arguments.h"

namespace verbatim::sandbox {

inline constexpr size_t kMostCalls = 64;
inline constexpr size_t kMostTensorBytes = size_t{64} << 10;  // of a kept tensor; positions and indices always are
inline constexpr size_t kMostValueBytes = size_t{4} << 20;    // of a file

// One call of a run.
struct CapturedCall {
    int64_t step = 0;
    int32_t layer = 0;
    int64_t times = 1;  // calls of this shape
    KernelCase one;     // captured
    friend bool operator==(const CapturedCall&, const CapturedCall&) = default;
};

struct Workload {
    std::string operation;
    std::string from;        // the run's description
    int64_t num_calls = 0;   // in the run
    int64_t num_shapes = 0;  // distinct, in the run
    std::vector<CapturedCall> calls;
};

// Samples calls during a run.
class CallSample {
public:
    explicit CallSample(size_t most_calls = kMostCalls) : most_calls_(most_calls) {}

    // A call with its sizes, rows of items, and their start positions (empty: the operation has none). `captured` is
    // called for the values if the call is kept.
    struct Shape {
        Sizes sizes{};
        std::vector<int64_t> item_rows;
        std::vector<int64_t> first_positions;
    };
    void add(int64_t step, int32_t layer, const Shape& shape, const std::function<Captured()>& captured);
    // The kept calls, most frequent first.
    [[nodiscard]] Workload workload(std::string operation, std::string from) const;

private:
    size_t most_calls_;
    int64_t num_calls_ = 0;
    std::map<uint64_t, CapturedCall> kept_;  // by the shape's digest
    std::unordered_set<uint64_t> met_;       // digests of all shapes
};

std::string workload_json(const Workload& workload);
// Errors: not a workload file, too large, of another operation, a call that the contract does not admit.
Result<Workload> read_workload(const std::string& path, const Operation& operation);

}  // namespace verbatim::sandbox
