#include "kernels/sandbox/kernel_report.h"

#include <algorithm>

namespace verbatim::sandbox {

records::Verdict KernelReport::outcome() const {
    switch (verdict) {
        case Verdict::kPass: return records::Verdict::kSame;
        case Verdict::kNotTried:
        case Verdict::kTakesNothing: return records::Verdict::kNotAllCompared;
        case Verdict::kVaries: return profile == "fast" ? records::Verdict::kSame : records::Verdict::kDifferent;
        default: return records::Verdict::kDifferent;
    }
}

records::Verdict KernelReports::outcome() const {
    if (reports.empty()) return records::Verdict::kNotAllCompared;
    return std::ranges::max_element(reports, {}, &KernelReport::outcome)->outcome();
}

}  // namespace verbatim::sandbox
