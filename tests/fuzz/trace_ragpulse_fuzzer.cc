#include "tests/fuzz/trace_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    return verbatim::traces::read_and_check(data, size, verbatim::traces::Format::kRagPulse);
}
