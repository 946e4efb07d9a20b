// tests/planted/fault.h: owns the active fault of tests/planted/faults/ in this program: none, or one.
#pragma once

#include <span>
#include <string_view>

namespace verbatim::planted {

struct Fault {
    std::string_view name;    // its file's name
    std::string_view source;  // the first changed source
};

// Every planted fault of the program, by number: fault_names.cc, which plant.py writes.
extern const std::span<const Fault> kFaults;

// The meaning of FAULT in the copies of the sources. At the program's start the environment variable VERBATIM_BUG names
// the active fault; an unknown one ends the program with exit code 2.
bool is_on(int fault);

// Activates a fault instead of the current one, and deactivates it at the end of its lifetime. The empty name is no
// fault; an unknown one stops the program.
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
