#include "tests/planted/fault.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::planted {
namespace {

constexpr int kNone = -1;

int number_of(std::string_view name) {
    const auto found = std::ranges::find(kFaults, name, &Fault::name);
    return found == kFaults.end() ? kNone : static_cast<int>(found - kFaults.begin());
}

int& switched_on() {
    static int fault = [] {
        const char* wanted = std::getenv("VERBATIM_BUG");
        if (wanted == nullptr) return kNone;
        const int number = number_of(wanted);
        if (number == kNone) {
            std::fprintf(stderr, "VERBATIM_BUG: '%s' is not a planted fault of this program\n", wanted);
            std::_Exit(2);
        }
        return number;
    }();
    return fault;
}

[[maybe_unused]] const int at_start = switched_on();

}  // namespace

bool is_on(int fault) { return fault == switched_on(); }

SwitchedOn::SwitchedOn(std::string_view name) : before_(std::exchange(switched_on(), number_of(name))) {
    CHECK(name.empty() || switched_on() != kNone, "{} is not a planted fault", name);
}
SwitchedOn::~SwitchedOn() { switched_on() = before_; }

}  // namespace verbatim::planted
