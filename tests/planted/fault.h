// tests/planted/fault.h: owns which of the faults of tests/planted/faults/ is on in this program: none, or one.
#pragma once

#include <string_view>
#include <vector>

namespace verbatim::planted {

struct Fault {
    std::string_view name;    // of its file
    std::string_view source;  // the first that it changes
};

// Every fault that was planted in the program, in the order of their numbers: fault_names.cc, which plant.py writes.
extern const std::vector<Fault> kFaults;

// What FAULT stands for in the copies of the sources. When the program starts, the environment variable VERBATIM_BUG
// names the fault that is on.
bool is_on(int fault);

// Switches a fault on in place of any other, and off again at its end. The empty name is no fault; an unknown
// one stops the program.
class SwitchedOn {
public:
    explicit SwitchedOn(std::string_view name);
    ~SwitchedOn();
    SwitchedOn(const SwitchedOn&) = delete;
    SwitchedOn& operator=(const SwitchedOn&) = delete;

private:
    int before_;
};

}  // namespace verbatim::planted
