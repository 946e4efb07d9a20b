#include "simulator/cost_drafter.h"

#include "engine/base/check.h"
#include "engine/base/prng.h"

namespace verbatim {
namespace {

constexpr int32_t kMillion = 1'000'000;

}  // namespace

CostDrafter::CostDrafter(const CostExecutor& executor, int32_t right_ppm, uint64_t seed)
    : executor_(executor), right_ppm_(right_ppm), seed_(seed) {
    CHECK(0 <= right_ppm && right_ppm <= kMillion, "{} right drafts of a million", right_ppm);
}

bool CostDrafter::is_right(RequestId request, int64_t place) const {
    Prng by_request(seed_ ^ (static_cast<uint64_t>(index(request)) * 0x9e3779b97f4a7c15u));
    Prng prng(by_request.next() + static_cast<uint64_t>(place));
    return static_cast<int32_t>(prng.below(kMillion)) < right_ppm_;
}

void CostDrafter::draft(std::span<DraftJob> jobs) {
    for (DraftJob& job : jobs) {
        for (int32_t i = 0; i < job.max_drafts; ++i) {
            const int64_t place = static_cast<int64_t>(job.output.size()) + i;
            const TokenId right = executor_.token_at(job.request, place);
            // The stop token ends the answer and no other token does: each is always a wrong guess for the other.
            const TokenId wrong = right == CostExecutor::kStopToken ? 1 : CostExecutor::kStopToken;
            job.drafts.push_back(is_right(job.request, place) ? right : wrong);
        }
    }
}

}  // namespace verbatim
