// tests/kernels/cuda/expert_case.h: the operations of a mixture of experts on a device, compared with their definitions
// in reference/ops bit by bit.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/fragments.h"
#include "reference/ops/experts.h"
#include "reference/ops/router.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

struct ExpertShape {
    int64_t num_rows, n_experts, n_chosen, width, d_ff;
};

// Rows through their chosen experts. `together`: all rows choose the same ones.
class ExpertCase {
public:
    ExpertCase(Device& device, const ExpertShape& shape, reference::MlpKind kind, bool together = false,
               reference::Profile profile = reference::Profile::kExact)
        : device_(device),
          shape_(shape),
          kind_(kind),
          profile_(profile),
          x_(reference::draw_values(shape.num_rows * shape.width, 1)) {
        for (int part = 0; part < 3; ++part) {
            weights_[part] = reference::draw_bf16(shape.n_experts * shape.d_ff * shape.width, 2 + part);
        }
        choose_some(together);
    }

    // The number of sums with other bits than the definition's; a difference in the pairs for the next matmul counts as
    // one.
    [[nodiscard]] int64_t num_wrong() {
        const std::vector<float> want = defined();
        const DeviceArray<float> out(device_, std::ssize(x_));
        const DeviceArray<uint32_t> pairs(device_, shape_.num_rows * row_pairs_of(shape_.width));
        compute({out.data(), shape_.num_rows, shape_.width, shape_.width}, pairs.data());
        std::vector<float> got(want.size());
        std::vector<uint32_t> words(static_cast<size_t>(pairs.count()));
        out.download(0, got);
        pairs.download(0, words);
        int64_t wrong = words == rounded_pairs(want, shape_.width) ? 0 : 1;
        for (size_t i = 0; i < want.size(); ++i) {
            wrong += reference::bits_from_float(got[i]) != reference::bits_from_float(want[i]) ? 1 : 0;
        }
        return wrong;
    }
    [[nodiscard]] std::string name() const {
        return fmt::format("{} rows, {} of {} experts, {} x {}, profile {}", shape_.num_rows, shape_.n_chosen,
                           shape_.n_experts, shape_.width, shape_.d_ff, reference::name(profile_));
    }

private:
    // Every row chooses n_chosen consecutive experts, from a different first one.
    void choose_some(bool together) {
        for (int64_t r = 0; r < shape_.num_rows; ++r) {
            std::vector<float> ids;
            const int64_t first = together ? 1 : r * r + 3 * r;
            for (int64_t i = 0; i < shape_.n_chosen; ++i) {
                ids.push_back(static_cast<float>((first + i) % shape_.n_experts));
            }
            std::ranges::sort(ids);
            chosen_.insert(chosen_.end(), ids.begin(), ids.end());
            const auto of_row = reference::draw_values(shape_.n_chosen, 100 + static_cast<uint64_t>(r));
            chosen_.insert(chosen_.end(), of_row.begin(), of_row.end());
        }
    }
    [[nodiscard]] reference::MatrixView matrix(int part, int64_t expert) const {
        const bool is_down = part == 2;
        return {weights_[part].data() + expert * shape_.d_ff * shape_.width, is_down ? shape_.width : shape_.d_ff,
                is_down ? shape_.d_ff : shape_.width};
    }
    [[nodiscard]] DeviceArray<uint32_t> packed(int part) const {
        reference::WorkerPool threads(1);
        std::vector<uint32_t> all;
        for (int64_t e = 0; e < shape_.n_experts; ++e) {
            const auto words = profile_ == reference::Profile::kExact ? pack_pairs(matrix(part, e), threads)
                                                                      : pack_fragments(matrix(part, e), threads);
            all.insert(all.end(), words.begin(), words.end());
        }
        return DeviceArray<uint32_t>(device_, std::span<const uint32_t>(all));
    }
    void compute(Floats out, uint32_t* pairs) {
        const ExpertCounts counts{shape_.num_rows, shape_.n_experts, shape_.n_chosen};
        const int64_t num = counts.num_entries();
        const DeviceArray<int32_t> rows(device_, num), entries(device_, num);
        const DeviceArray<DeviceExpertPart> parts(device_, counts.num_parts());
        const DeviceEntries of{counts, rows.data(), entries.data(), parts.data()};
        const DeviceArray<float> x(device_, std::span<const float>(x_)), up(device_, num * shape_.d_ff);
        const DeviceArray<float> chosen(device_, std::span<const float>(chosen_));
        const DeviceArray<float> gate(device_, up.count()), results(device_, num * shape_.width);
        const DeviceArray<uint32_t> of_rows(device_, shape_.num_rows * row_pairs_of(shape_.width));
        const DeviceArray<uint32_t> gathered(device_, num * row_pairs_of(shape_.width));
        const DeviceArray<uint32_t> inner(device_, num * row_pairs_of(shape_.d_ff));
        const DeviceArray<uint32_t> gates = packed(0), ups = packed(1), downs = packed(2);
        const Floats choice{chosen.data(), shape_.num_rows, 2 * shape_.n_chosen, 2 * shape_.n_chosen};
        const Floats inner_rows{up.data(), num, shape_.d_ff, shape_.d_ff};
        const Floats gate_rows{gate.data(), num, shape_.d_ff, shape_.d_ff};
        const Floats result_rows{results.data(), num, shape_.width, shape_.width};
        const auto multiply = [&](const auto& from, const auto& words, int64_t outputs, int64_t num_k, Floats to) {
            device_.multiply_entries(profile_, of, from.data(), {words.data(), nullptr, outputs, num_k}, to);
        };
        device_.round_rows({x.data(), shape_.num_rows, shape_.width, shape_.width}, 1.0F, of_rows.data());
        device_.list_entries(choice, of);
        device_.gather_entries(of, of_rows.data(), row_pairs_of(shape_.width), gathered.data());
        multiply(gathered, ups, shape_.d_ff, shape_.width, inner_rows);
        if (kind_ == reference::MlpKind::kGatedSilu) {
            multiply(gathered, gates, shape_.d_ff, shape_.width, gate_rows);
            device_.swiglu(gate_rows, 1.0F, inner_rows, inner.data());
        } else {
            device_.relu_squared(inner_rows, inner.data());
        }
        multiply(inner, downs, shape_.width, shape_.d_ff, result_rows);
        device_.combine(of, choice, result_rows, out, pairs);
        static_cast<void>(device_.synchronize());
    }
    [[nodiscard]] std::vector<float> defined() const {
        std::vector<reference::MlpWeights> experts;
        for (int64_t e = 0; e < shape_.n_experts; ++e) {
            reference::MlpWeights& expert = experts.emplace_back();
            if (kind_ == reference::MlpKind::kGatedSilu) expert.gate = matrix(0, e);
            expert.up = matrix(1, e);
            expert.down = matrix(2, e);
        }
        std::vector<float> out(x_.size());
        reference::experts({.kind = kind_,
                            .n_chosen = shape_.n_chosen,
                            .x = reference::dense_rows(x_.data(), shape_.num_rows, shape_.width),
                            .chosen = reference::dense_rows(chosen_.data(), shape_.num_rows, 2 * shape_.n_chosen),
                            .weights = experts,
                            .profile = profile_,
                            .out = reference::dense_rows(out.data(), shape_.num_rows, shape_.width)});
        return out;
    }

    Device& device_;
    ExpertShape shape_;
    reference::MlpKind kind_;
    reference::Profile profile_;
    std::vector<float> x_, chosen_;
    std::vector<uint16_t> weights_[3];  // gate, up, down of every expert
};

// Logits of a router over binary32 weights.
inline bool routes_as_defined(Device& device, int64_t num_rows, int64_t n_experts, int64_t width,
                              reference::Values kind) {
    const auto x = reference::draw_values(num_rows * width, 1, kind);
    const auto weight = reference::draw_values(n_experts * width, 2, kind);
    const DeviceArray<float> device_x(device, std::span<const float>(x));
    const DeviceArray<float> packed(device, pack_router(weight, n_experts, width));
    const DeviceArray<uint32_t> pairs(device, num_rows * row_pairs_of(width));
    const DeviceArray<float> out(device, num_rows * n_experts);
    device.round_rows({device_x.data(), num_rows, width, width}, 1.0F, pairs.data());
    device.route(pairs.data(), {packed.data(), width}, {out.data(), num_rows, n_experts, n_experts});
    std::vector<float> want(static_cast<size_t>(out.count()));
    std::vector<float> got(want.size());
    reference::router({.x = reference::dense_rows(x.data(), num_rows, width),
                       .weight = weight.data(),
                       .out = reference::dense_rows(want.data(), num_rows, n_experts)});
    out.download(0, got);
    return device.synchronize() && reference::bits_of(got) == reference::bits_of(want);
}

// A NaN's bits are unspecified in an exact profile: maps all to one.
inline std::vector<uint32_t> comparable_bits(std::vector<float> values) {
    for (float& value : values) {
        if (value != value) value = std::numeric_limits<float>::quiet_NaN();
    }
    return reference::bits_of(values);
}

// Logits with many ties, zeros of both signs, infinities and NaN.
inline std::vector<float> draw_logits(int64_t count, uint64_t seed) {
    std::vector<float> logits = reference::draw_values(count, seed);
    for (size_t i = 0; i < logits.size(); ++i) {
        const auto row = i * 7 / logits.size();                                             // sevenths of the rows
        if (row >= 1) logits[i] = static_cast<float>(static_cast<int>(logits[i] * 2)) / 2;  // some -0
        if (row == 5 && i % 5 == 0) logits[i] = std::numeric_limits<float>::quiet_NaN();
        if (row == 6 && i % 3 == 0) logits[i] = -std::numeric_limits<float>::infinity();
    }
    return logits;
}

inline bool chooses_as_defined(Device& device, const reference::MoeConfig& moe) {
    constexpr int64_t kRows = 7;
    const auto logits = draw_logits(kRows * moe.n_experts, 1);
    const bool has_bias = moe.router == reference::RouterKind::kSigmoidBias;
    std::vector<float> bias;
    if (has_bias) {
        bias = reference::draw_values(moe.n_experts, 2);
        for (float& value : bias) value = static_cast<float>(static_cast<int>(value * 2)) / 8;
    }
    const DeviceArray<float> device_logits(device, std::span<const float>(logits));
    const DeviceArray<float> device_bias(device, std::span<const float>(bias));
    const int64_t width = 2 * int64_t{moe.n_chosen};
    const DeviceArray<float> out(device, kRows * width);
    device.choose({static_cast<RouterScore>(moe.router), moe.normalize, moe.n_experts, moe.n_chosen, moe.n_groups,
                   moe.n_chosen_groups, static_cast<float>(moe.sum_epsilon), static_cast<float>(moe.scale)},
                  {device_logits.data(), kRows, moe.n_experts, moe.n_experts}, has_bias ? device_bias.data() : nullptr,
                  {out.data(), kRows, width, width});
    std::vector<float> want(static_cast<size_t>(out.count()));
    std::vector<float> got(want.size());
    reference::choose({.moe = &moe,
                       .logits = reference::dense_rows(logits.data(), kRows, moe.n_experts),
                       .choice_bias = has_bias ? bias.data() : nullptr,
                       .out = reference::dense_rows(want.data(), kRows, width)});
    out.download(0, got);
    return device.synchronize() && comparable_bits(got) == comparable_bits(want);
}

inline reference::MoeConfig drawn_moe(reference::RouterKind router, int32_t n_experts, int32_t n_chosen,
                                      int32_t n_groups = 1, int32_t n_chosen_groups = 1) {
    reference::MoeConfig moe;
    moe.router = router;
    moe.n_experts = n_experts;
    moe.n_chosen = n_chosen;
    moe.n_groups = n_groups;
    moe.n_chosen_groups = n_chosen_groups;
    moe.normalize = n_chosen % 2 == 0;
    moe.sum_epsilon = n_chosen % 4 == 0 ? 1e-20 : 0.0;
    moe.scale = n_chosen > 3 ? 2.5 : 1.0;
    return moe;
}

inline bool adds_as_defined(Device& device, int64_t width, bool gated) {
    constexpr int64_t kRows = 3;
    const auto routed = reference::draw_values(kRows * width, 1);
    const auto gate = reference::draw_values(kRows, 2);
    std::vector<float> want = reference::draw_values(kRows * width, 3);
    const DeviceArray<float> device_routed(device, std::span<const float>(routed));
    const DeviceArray<float> device_gate(device, std::span<const float>(gate));
    const DeviceArray<float> branch(device, std::span<const float>(want));
    device.add_routed({device_routed.data(), kRows, width, width},
                      gated ? Floats{device_gate.data(), kRows, 1, 1} : Floats{}, {branch.data(), kRows, width, width});
    reference::add_routed({.routed = reference::dense_rows(routed.data(), kRows, width),
                           .gate = gated ? reference::dense_rows(gate.data(), kRows, 1) : reference::ConstFloatRows{},
                           .branch = reference::dense_rows(want.data(), kRows, width)});
    std::vector<float> got(want.size());
    branch.download(0, got);
    return device.synchronize() && reference::bits_of(got) == reference::bits_of(want);
}

// Every kernel that multiplies entries; experts chosen by no row and by all, more than one part of one; outputs and K
// of several panels and chunks.
inline void expect_experts(Device& device) {
    using reference::MlpKind;
    using reference::Profile;
    for (const Profile profile : {Profile::kExact, Profile::kTensorSm90}) {
        if (!device.computes_in(profile)) continue;
        const auto expect = [&](const ExpertShape& shape, MlpKind kind, bool together = false) {
            ExpertCase one(device, shape, kind, together, profile);
            EXPECT_EQ(one.num_wrong(), 0) << one.name();
        };
        expect({1, 4, 1, 5, 3}, MlpKind::kReluSquared);
        expect({1, 6, 3, 66, 33}, MlpKind::kGatedSilu);
        expect({2, 6, 3, 40, 270}, MlpKind::kGatedSilu);
        expect({4, 5, 5, 20, 17}, MlpKind::kReluSquared);
        expect({7, 40, 4, 20, 24}, MlpKind::kGatedSilu);
        expect({7, 6, 4, 513, 24}, MlpKind::kReluSquared, true);
        expect({20, 8, 2, 24, 20}, MlpKind::kGatedSilu, true);  // three parts of an expert
        expect({30, 4, 2, 24, 20}, MlpKind::kGatedSilu);
        expect({50, 3, 2, 20, 70}, MlpKind::kReluSquared, true);
        for (const bool uses_warpgroups : {false, true}) {
            device.use_warpgroups(uses_warpgroups);
            expect({100, 2, 2, 17, 20}, MlpKind::kGatedSilu);
            expect({140, 2, 1, 18, 9}, MlpKind::kReluSquared, true);  // all of one expert
        }
    }
}
inline void expect_routers(Device& device) {
    using reference::RouterKind;
    for (const reference::Values kind : reference::kAllValues) {
        EXPECT_TRUE(routes_as_defined(device, 1, 1, 1, kind));
        EXPECT_TRUE(routes_as_defined(device, 5, 9, 257, kind));
        EXPECT_TRUE(routes_as_defined(device, 4, 20, 1300, kind));
    }
    EXPECT_TRUE(routes_as_defined(device, 1, 8, 8500, reference::Values::kCancelling));
    for (const auto router : {RouterKind::kSigmoidBias, RouterKind::kSoftmaxAll, RouterKind::kSoftmaxChosen}) {
        for (const auto& [n_experts, n_chosen] : {std::pair{1, 1}, {5, 2}, {33, 8}, {130, 6}, {512, 70}}) {
            EXPECT_TRUE(chooses_as_defined(device, drawn_moe(router, n_experts, n_chosen)))
                << static_cast<int>(router) << ": " << n_chosen << " of " << n_experts;
        }
    }
    EXPECT_TRUE(chooses_as_defined(device, drawn_moe(RouterKind::kSigmoidBias, 24, 4, 4, 2)));
    EXPECT_TRUE(chooses_as_defined(device, drawn_moe(RouterKind::kSigmoidBias, 80, 3, 40, 2)));
    EXPECT_TRUE(chooses_as_defined(device, drawn_moe(RouterKind::kSigmoidBias, 12, 5, 2, 1)));
    for (const int64_t width : {1, 70}) {
        EXPECT_TRUE(adds_as_defined(device, width, false)) << width;
        EXPECT_TRUE(adds_as_defined(device, width, true)) << width;
    }
}

}  // namespace verbatim::cuda
