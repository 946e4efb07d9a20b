// Which calls `kernel check` and `kernel invariance` make: shapes of published models, values of every class.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/sandbox/check.h"
#include "kernels/sandbox/session.h"
#include "reference/numerics/bf16.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

KernelInfo kernel_for(const Operation& operation, const char* machine, const char* profile = "exact") {
    return {"mine", operation.name, profile, machine, -1, nullptr};
}

std::set<Sizes> shapes_of(const std::vector<CheckCase>& cases) {
    std::set<Sizes> shapes;
    for (const CheckCase& check : cases) shapes.insert(check.one.sizes);
    return shapes;
}

// But for what may be cut.
bool is_cut_of(const Operation& operation, const Sizes& cut, const Sizes& published) {
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        const bool is_smaller = operation.sizes[i].is_cut && cut[i] < published[i];
        if (cut[i] != published[i] && !is_smaller) return false;
    }
    return true;
}

// Every model's shape is tried on both machines, whole or cut.
TEST(KernelCases, ShapesOfPublishedModelsAreTried) {
    for (const Operation& operation : operations()) {
        const std::vector<Sizes> published = operation.published();
        EXPECT_GE(published.size(), 4u) << operation.name;
        for (const char* machine : {"cpu", "cuda"}) {
            const auto tried = shapes_of(check_cases(operation, kernel_for(operation, machine), Effort::kFull, 1));
            const auto is_tried = [&](const Sizes& sizes) {
                return std::ranges::any_of(tried, [&](const Sizes& mine) { return is_cut_of(operation, mine, sizes); });
            };
            for (const Sizes& sizes : published) {
                EXPECT_TRUE(is_tried(sizes)) << operation.name << " " << machine << ": " << describe(operation, sizes);
            }
            const auto whole = std::ranges::count_if(published, [&](const Sizes& one) { return tried.contains(one); });
            if (machine == std::string("cpu")) EXPECT_GE(2 * whole, std::ssize(published)) << operation.name;
        }
    }
}

// Whether an input has a value of this class that the plain ones never have.
bool shows(ValueClass values, float value) {
    switch (values) {
        case ValueClass::kNormal: return std::isnormal(value);
        case ValueClass::kIntegers: return value == std::floor(value) && std::abs(value) >= 1;
        case ValueClass::kCancelling: return std::abs(value) > 900;
        case ValueClass::kTiny: return std::abs(value) > 0 && std::abs(value) < 0x1p-40F;
        case ValueClass::kHuge: return std::abs(value) > 0x1p+40F && std::isfinite(value);
        case ValueClass::kSubnormal: return std::fpclassify(value) == FP_SUBNORMAL;
        case ValueClass::kNotFinite: return !std::isfinite(value);
    }
    return false;
}
bool shows(ValueClass values, const Arguments& call) {
    return std::ranges::any_of(call.tensors, [&](const Tensor& tensor) {
        if (tensor.spec.role == Role::kOut || tensor.spec.fill != Fill::kValues) return false;
        if (tensor.spec.dtype == Dtype::kBf16) {
            return std::ranges::any_of(tensor.as<uint16_t>(),
                                       [&](uint16_t bits) { return shows(values, reference::bf16_to_float(bits)); });
        }
        return std::ranges::any_of(tensor.as<float>(), [&](float value) { return shows(values, value); });
    });
}

// In every profile, aligned, odd and at the end of memory; sampling's logits are finite by contract.
TEST(KernelCases, EveryClassOfValuesReachesTheKernel) {
    for (const Operation& operation : operations()) {
        for (const char* profile : {"exact", "fast"}) {
            const auto cases = check_cases(operation, kernel_for(operation, "cpu", profile), Effort::kShort, 1);
            for (const ValueClass values : kValueClasses) {
                std::set<Placing> placings;
                for (const CheckCase& check : cases) {
                    if (check.one.values != values) continue;
                    if (shows(values, make_arguments(operation, check.one))) placings.insert(check.options.placing);
                }
                const bool is_taken = values != ValueClass::kNotFinite || operation.takes_not_finite;
                EXPECT_EQ(placings.size(), is_taken ? 3u : 0u)
                    << operation.name << " " << profile << " " << name(values);
            }
        }
    }
}

// A kind of gate, of activation, a bias: each selects separate code.
TEST(KernelCases, EveryChoiceMeetsEveryClass) {
    for (const Operation& operation : operations()) {
        const auto cases = check_cases(operation, kernel_for(operation, "cuda"), Effort::kShort, 1);
        for (size_t i = 0; i < operation.sizes.size(); ++i) {
            const SizeSpec& size = operation.sizes[i];
            for (const int64_t choice : size.is_choice ? size.edges : std::vector<int64_t>()) {
                std::set<ValueClass> met;
                for (const CheckCase& check : cases) {
                    if (check.one.sizes[i] == choice) met.insert(check.one.values);
                }
                EXPECT_EQ(met.size(), std::size(kValueClasses)) << operation.name << " " << size.name << " " << choice;
            }
        }
    }
}

// A fast way asks for multiples of several sizes at once, and for aligned memory.
TEST(KernelCases, SizesAreMultiplesTogether) {
    const Operation& matmul = *find_operation("matmul");
    for (const char* machine : {"cpu", "cuda"}) {
        for (const int64_t multiple : {4, 8, 16, 32, 64}) {
            const auto cases = check_cases(matmul, kernel_for(matmul, machine), Effort::kShort, 1);
            const auto is_multiple = [&](int64_t size) { return size % multiple == 0; };
            EXPECT_TRUE(std::ranges::any_of(cases,
                                            [&](const CheckCase& check) {
                                                return check.options.placing == Placing::kAligned &&
                                                       std::ranges::all_of(std::span(check.one.sizes).first(3),
                                                                           is_multiple);
                                            }))
                << machine << " " << multiple;
        }
    }
}

// A kernel that divides its work among its threads is right for some numbers of them alone.
TEST(KernelCases, WorkIsSharedByDifferentNumbersOfThreads) {
    const Operation& matmul = *find_operation("matmul");
    for (const char* machine : {"cpu", "cuda"}) {
        std::set<int32_t> threads;
        for (const CheckCase& check : check_cases(matmul, kernel_for(matmul, machine), Effort::kShort, 1))
            threads.insert(check.options.num_threads);
        EXPECT_TRUE(threads.contains(1) && threads.contains(2) && threads.contains(7) && threads.contains(16));
    }
}

TEST(KernelCases, ZerosHaveBothSigns) {
    const Operation& router = *find_operation("router");
    const Arguments call = make_arguments(router, {.sizes = {4, 3, 70}, .values = ValueClass::kIntegers, .seed = 1});
    const auto x = call.tensor("x").as<float>();
    for (const bool is_negative : {false, true}) {
        EXPECT_TRUE(std::ranges::any_of(x, [&](float v) { return v == 0 && std::signbit(v) == is_negative; }));
    }
}

// Tries take as long as the case.
TEST(KernelCases, FailuresAreReducedByHalves) {
    const Operation& norm = *find_operation("rms_norm");
    int tries = 0;
    const Failure failure{.verdict = Verdict::kWrongBits, .one = {.sizes = {513, 70}}};
    const Failure smallest = smallest_failure(norm, failure, [&](const KernelCase& one) -> std::optional<Failure> {
        ++tries;
        if (one.sizes[0] < 333 || one.sizes[1] < 2) return std::nullopt;
        return Failure{.verdict = Verdict::kWrongBits, .one = one};
    });
    EXPECT_EQ(smallest.one.sizes[0], 333);
    EXPECT_EQ(smallest.one.sizes[1], 2);
    EXPECT_LT(tries, 100);
}

// Scores of all but the largest logit are 0 there: which of them are chosen is open, unless their logits are equal.
TEST(KernelCases, ScoresThatUnderflowAreClose) {
    const Operation& choose = *find_operation("choose");
    for (const float second : {-1000.0F, -2000.0F}) {
        Arguments call = make_arguments(choose, {.sizes = {1, VERBATIM_SOFTMAX_ALL, 1, 1, 3, 2, 0}, .seed = 1});
        const std::array<float, 3> logits = {second, -2000.0F, 0.0F};
        std::ranges::copy(logits, call.tensor("logits").as<float>().begin());
        Arguments other = defined(call, "exact");
        auto ids = other.tensor("out").as<float>();
        EXPECT_EQ(ids[1], 2);
        ids[0] = 1 - ids[0];
        const Verdict wanted = second == -2000.0F ? Verdict::kBeyondBound : Verdict::kPass;
        EXPECT_EQ(fault_of(kernel_for(choose, "cpu", "fast"), other, call).verdict, wanted) << second;
    }
}

TEST(KernelCases, SomeNeighboursAreNan) {
    for (const Operation& operation : operations()) {
        std::map<ValueClass, int> counts;
        for (const KernelCase& one : invariance_cases(operation, kernel_for(operation, "cpu"), Effort::kShort, 1)) {
            EXPECT_GE(one.sizes[0], 2) << operation.name;
            ++counts[one.values];
        }
        EXPECT_GE(counts[ValueClass::kNormal], 4) << operation.name;
        EXPECT_EQ(counts[ValueClass::kNotFinite] > 0, operation.takes_not_finite) << operation.name;
    }
}

// The same positions, wherever their pages lie: the definition gives the same bits.
TEST(KernelCases, MovedPagesHaveTheSameContents) {
    const Operation& attention = *find_operation("attention");
    const KernelCase one{.sizes = {3, 9, 65, 2, 2, 15, 20}, .seed = 3};
    const Arguments call = make_arguments(attention, one);
    const Arguments wanted = defined(call, "exact");
    std::set<int64_t> block_sizes;
    for (const Arguments& other : attention.paged_otherwise(call)) {
        block_sizes.insert(other.sizes[6]);
        EXPECT_NE(other.tensor("block_tables").bytes, call.tensor("block_tables").bytes);
        EXPECT_EQ(defined(other, "exact").tensor("out").bytes, wanted.tensor("out").bytes);
    }
    EXPECT_EQ(block_sizes, (std::set<int64_t>{7, 16, 20, 64}));
}

}  // namespace
}  // namespace verbatim::tools
