#include "files/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace verbatim {
namespace {

constexpr int kBarWidth = 30;  // with label and percentage, a line of 80

}  // namespace

ProgressBar::ProgressBar(std::string label, uint64_t total)
    : label_(std::move(label)), total_(total), visible_(isatty(STDERR_FILENO) == 1) {
    update(0);
}

ProgressBar::~ProgressBar() {
    if (visible_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::update(uint64_t done) {
    if (!visible_ || total_ == 0) return;
    const double fraction = static_cast<double>(std::min(done, total_)) / static_cast<double>(total_);
    const int percent = static_cast<int>(fraction * 100);
    if (percent == shown_percent_) return;
    shown_percent_ = percent;
    const int filled = percent * kBarWidth / 100;
    fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3}%", label_, "", filled, "", kBarWidth - filled, percent);
    std::fflush(stderr);
}

}  // namespace verbatim
