// simulator/cost_drafter.h: owns a drafter that predicts a cost executor's tokens with a configured accuracy: windows
// of any acceptance rate without a draft model. Drafting takes no time: only the window itself has a price.
//
//   W1  whether a guess is right depends on (seed, request, position in the answer) alone, not on the windows
#pragma once

#include <cstdint>

#include "engine/drafting/drafter.h"
#include "simulator/cost_executor.h"

namespace verbatim {

class CostDrafter final : public Drafter {
public:
    // Borrows the executor. REQUIRES: 0 <= right_ppm <= 1'000'000.
    CostDrafter(const CostExecutor& executor, int32_t right_ppm, uint64_t seed);

    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId) override {}

private:
    [[nodiscard]] bool is_right(RequestId request, int64_t place) const;

    const CostExecutor& executor_;
    int32_t right_ppm_;
    uint64_t seed_;
};

}  // namespace verbatim
