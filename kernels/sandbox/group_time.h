// kernels/sandbox/group_time.h: owns when a call counts as a hang: by the processor time of the process group that
// makes it, so that a machine with other load gives no false alarm.
#pragma once

#include <sys/types.h>

namespace verbatim::sandbox {

// What a process group has used, and whether a thread of it runs, or could.
struct GroupUse {
    double seconds = 0;  // of a processor, user's and system's
    bool is_running = false;
};
[[nodiscard]] GroupUse use_of_group(pid_t group);

// A call hangs when it has used its seconds of each processor that it may use, or has slept as long.
class HangWatch {
public:
    HangWatch(double seconds, int num_processors) : seconds_(seconds), num_processors_(num_processors) {}
    // `seconds` after the last time, as the clock tells: what sleeps counts by them. The first use is where it begins.
    void look(const GroupUse& now, double seconds);
    [[nodiscard]] bool has_used_all() const { return used_ >= seconds_ * num_processors_; }
    [[nodiscard]] bool has_slept() const { return asleep_ >= seconds_; }
    [[nodiscard]] bool hangs() const { return has_used_all() || has_slept(); }

private:
    double seconds_;
    int num_processors_;
    double last_ = -1;  // negative: none yet
    double used_ = 0, asleep_ = 0;
};

}  // namespace verbatim::sandbox
