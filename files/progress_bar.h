// files/progress_bar.h: how far long work has come, on a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace verbatim {

// One line on stderr, redrawn when the shown percentage changes; silent when stderr is not a terminal. The destructor
// erases the line.
class ProgressBar {
public:
    ProgressBar(std::string label, uint64_t total);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    void update(uint64_t done);  // at most `total` is shown

private:
    std::string label_;
    uint64_t total_;
    int shown_percent_ = -1;
    bool visible_;
};

}  // namespace verbatim
