// The mixture of experts of kernels/cpu/cpu_backend.h. An entry is a row with one of its experts. Entries are sorted by
// expert, so that an expert's weights are read once for all rows that chose it, and only chosen experts' weights are
// read. An entry's result does not depend on the other entries; a row adds its entries in ascending expert id.
#include <algorithm>
#include <array>

#include "engine/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/router.h"
#include "reference/numerics/math.h"

namespace verbatim::cpu {

using reference::Buffer;
using reference::ConstFloatRows;
using reference::FloatRows;
using reference::Matrix;
using reference::MlpKind;
using reference::MoeConfig;

void CpuBackend::route(int32_t layer, const MoeConfig& moe) {
    const RoundedRows x = round_rows(RowForm::kFloats, Buffer::kNormed, config().hidden_size, {});
    const FloatRows out = fresh(Buffer::kRouter, moe.n_experts);
    const int64_t panels = (moe.n_experts + kRouterLanes - 1) / kRouterLanes;
    pool_.for_each(x.num_rows * panels, [&](int64_t part) {
        const int64_t panel = part % panels;
        const int64_t first = panel * kRouterLanes;
        alignas(64) float logits[kRouterLanes];
        row_ops().route({.x = x.floats + part / panels * 2 * x.num_pairs,
                         .weight = weights_.router(layer) + first * 2 * x.num_pairs,
                         .num_k = 2 * x.num_pairs,
                         .out = logits});
        std::copy_n(logits, std::min(kRouterLanes, moe.n_experts - first), out.row(part / panels) + first);
    });
}

void CpuBackend::choose(int32_t layer, const MoeConfig& moe) {
    const ConstFloatRows logits = rows(Buffer::kRouter, moe.n_experts);
    const FloatRows out = fresh(Buffer::kChosen, 2 * int64_t{moe.n_chosen});
    const float* bias = model_.weights().layers[layer].moe.choice_bias.data();
    for_rows(out.num_rows, [&](int64_t r) {
        choose_row(moe, logits.row(r), bias, choice_scratch_[reference::WorkerPool::thread_index()], out.row(r));
    });
}

// Sorts the rows' choices by expert, and by row within an expert.
void CpuBackend::list_entries(const MoeConfig& moe) {
    const ConstFloatRows chosen = rows(Buffer::kChosen, 2 * int64_t{moe.n_chosen});
    std::vector<int64_t>& next = experts_.next;  // by expert: index of its next entry
    next.assign(static_cast<size_t>(moe.n_experts) + 1, 0);
    const auto id_of = [&](int64_t r, int64_t i) { return static_cast<size_t>(chosen.row(r)[i]); };
    for (int64_t r = 0; r < chosen.num_rows; ++r) {
        for (int64_t i = 0; i < moe.n_chosen; ++i) {
            CHECK_LT(id_of(r, i), static_cast<size_t>(moe.n_experts));
            ++next[id_of(r, i) + 1];
        }
    }
    experts_.parts.clear();
    for (int32_t e = 0; e < moe.n_experts; ++e) {
        const int64_t count = next[e + 1];
        next[e + 1] += next[e];
        for (int64_t from = 0; from < count; from += kMatmulRows)
            experts_.parts.push_back({e, next[e] + from, std::min(kMatmulRows, count - from)});
    }
    CHECK_EQ(next.back(), chosen.num_rows * moe.n_chosen);
    experts_.row_of_entry.resize(static_cast<size_t>(chosen.num_rows * moe.n_chosen));
    experts_.entry_of_slot.resize(experts_.row_of_entry.size());
    for (int64_t r = 0; r < chosen.num_rows; ++r) {
        for (int64_t i = 0; i < moe.n_chosen; ++i) {
            const int64_t entry = next[id_of(r, i)]++;
            experts_.row_of_entry[entry] = r;
            experts_.entry_of_slot[r * moe.n_chosen + i] = entry;
        }
    }
}

// Rounds a part's rows of x, which are in entry order, to the form that its loop reads.
RoundedRows CpuBackend::round_part(const ExpertPart& part, const PackedMatrix& matrix, ConstFloatRows x) {
    CHECK_LE(part.first_entry + part.num_rows, x.num_rows);
    const ConstFloatRows rows = x.rows(part.first_entry, part.num_rows);
    const int64_t pairs = num_pairs(x.width);
    const RowForm form = form_of(part, matrix);
    // A part's last band may be wider than the part.
    const int64_t first_row = part.first_entry + (&part - experts_.parts.data()) * kMaxBandRows;
    return cpu::round_rows(row_ops(), form, rows, row_factors(matrix, 1.0F),
                           experts_.rounded_floats.data() + first_row * 2 * pairs,
                           experts_.rounded_pairs.data() + first_row * pairs);
}

// The form in which a part's rows are read by the loop that multiplies them by the matrix.
RowForm CpuBackend::form_of(const ExpertPart& part, const PackedMatrix& matrix) const {
    return row_form(choice_.of_rows(part.num_rows), matrix, part.num_rows);
}

// Multiplies every part's rows of x by its expert's matrices, which have one shape; the results are rows in entry
// order. Matrices of several formats or static scales read the rows in several forms (a file may quantise gate and up
// differently).
void CpuBackend::multiply_parts(int32_t layer, ConstFloatRows x, std::span<const ExpertProduct> products) {
    const auto reads_alike = [&](const ExpertProduct& a, const ExpertProduct& b) {
        return std::ranges::all_of(experts_.parts, [&](const ExpertPart& part) {
            const PackedMatrix& one = weights_.matrix({layer, a.matrix, part.expert});
            const PackedMatrix& other = weights_.matrix({layer, b.matrix, part.expert});
            return form_of(part, one) == form_of(part, other) && row_factors(one, 1.0F) == row_factors(other, 1.0F);
        });
    };
    while (!products.empty()) {
        size_t num_alike = 1;
        while (num_alike < products.size() && reads_alike(products[0], products[num_alike])) ++num_alike;
        multiply_parts_alike(layer, x, products.first(num_alike));
        products = products.subspan(num_alike);
    }
}

// The products read the rows in one form.
void CpuBackend::multiply_parts_alike(int32_t layer, ConstFloatRows x, std::span<const ExpertProduct> products) {
    const auto num_parts = static_cast<int64_t>(experts_.parts.size());
    const auto num_products = static_cast<int64_t>(products.size());
    CHECK(num_parts > 0 && num_products > 0, "{} parts by {} matrices", num_parts, num_products);
    const auto matrix_of = [&](int64_t part, int64_t product) -> const PackedMatrix& {
        return weights_.matrix({layer, products[product].matrix, experts_.parts[part].expert});
    };
    const int64_t pairs = num_pairs(x.width);
    experts_.rounded_floats.ensure((x.num_rows + num_parts * kMaxBandRows) * 2 * pairs);
    experts_.rounded_pairs.ensure((x.num_rows + num_parts * kMaxBandRows) * pairs);
    experts_.rounded.resize(static_cast<size_t>(num_parts));
    for_rows(num_parts, [&](int64_t i) { experts_.rounded[i] = round_part(experts_.parts[i], matrix_of(i, 0), x); });
    const PackedMatrix& shape = matrix_of(0, 0);
    for (AlignedArray<Pair>& widened : widened_) widened.ensure(shape.is_int8() ? shape.panel_pairs() : 0);
    pool_.for_each(num_parts * num_products * shape.num_panels(), [&](int64_t task) {
        const int64_t panel = task % shape.num_panels();
        const int64_t product = task / shape.num_panels() % num_products;
        const int64_t i = task / shape.num_panels() / num_products;
        const ExpertPart& part = experts_.parts[i];
        multiply_panel(choice_.of_rows(part.num_rows), matrix_of(i, product), nullptr, experts_.rounded[i], panel,
                       widened_[reference::WorkerPool::thread_index()].data(),
                       products[product].out.rows(part.first_entry, part.num_rows));
    });
}

void CpuBackend::experts(int32_t layer, const MoeConfig& moe, Buffer in, Buffer out) {
    const int64_t width = moe.row_width(config().hidden_size);
    const ConstFloatRows x = rows(in, width);
    list_entries(moe);
    const auto num_entries = static_cast<int64_t>(experts_.row_of_entry.size());
    const auto entry_rows = [&](AlignedArray<float>& floats, int64_t row_width) {
        return reference::dense_rows(floats.ensure(num_entries * row_width), num_entries, row_width);
    };
    const FloatRows gathered = entry_rows(experts_.gathered, width);
    for_rows(num_entries, [&](int64_t i) { std::copy_n(x.row(experts_.row_of_entry[i]), width, gathered.row(i)); });
    const FloatRows up = entry_rows(experts_.up, moe.d_ff);
    if (moe.kind == MlpKind::kGatedSilu) {
        const FloatRows gate = entry_rows(experts_.gate, moe.d_ff);
        multiply_parts(layer, gathered,
                       std::array{ExpertProduct{Matrix::kExpertGate, gate}, ExpertProduct{Matrix::kExpertUp, up}});
        for_rows(num_entries, [&](int64_t i) { row_ops().swiglu(gate.row(i), 1.0F, up.width, up.row(i)); });
    } else {
        multiply_parts(layer, gathered, std::array{ExpertProduct{Matrix::kExpertUp, up}});
        for_rows(num_entries, [&](int64_t i) { row_ops().relu_squared(up.width, up.row(i)); });
    }
    multiply_parts(layer, up, std::array{ExpertProduct{Matrix::kExpertDown, gathered}});
    combine(moe, gathered, fresh(out, width));
}

// acc = fma(w, y, acc) from +0, over a row's experts in ascending id.
void CpuBackend::combine(const MoeConfig& moe, ConstFloatRows results, FloatRows out) {
    CHECK_EQ(std::ssize(experts_.entry_of_slot), out.num_rows * moe.n_chosen);
    const ConstFloatRows chosen = rows(Buffer::kChosen, 2 * int64_t{moe.n_chosen});
    for_rows(out.num_rows, [&](int64_t r) {
        float* acc = out.row(r);
        std::fill_n(acc, out.width, 0.0F);
        for (int64_t i = 0; i < moe.n_chosen; ++i) {
            const int64_t entry = experts_.entry_of_slot[r * moe.n_chosen + i];
            row_ops().add_branch(results.row(entry), 1.0F, chosen.row(r)[moe.n_chosen + i], out.width, acc);
        }
    });
}

void CpuBackend::add_routed(bool gated) {
    const FloatRows routed = changing(Buffer::kRouted, config().hidden_size);
    const FloatRows branch = changing(Buffer::kBranch, config().hidden_size);
    for_rows(branch.num_rows, [&](int64_t r) {
        const float open = gated ? reference::sigmoid_f32(rows(Buffer::kSharedGate, 1).row(r)[0]) : 1.0F;
        row_ops().add_branch(branch.row(r), 1.0F, open, branch.width, routed.row(r));
        std::copy_n(routed.row(r), branch.width, branch.row(r));
    });
}

}  // namespace verbatim::cpu
