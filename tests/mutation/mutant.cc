#include "tests/mutation/mutant.h"

#include <cstdlib>
#include <fstream>
#include <string>

namespace verbatim::mutation {
namespace {

int from_environment() {
    const char* wanted = std::getenv("VERBATIM_MUTANT");
    return wanted == nullptr ? -1 : std::stoi(wanted);
}

struct WriteReached {
    ~WriteReached() {
        const char* path = std::getenv("VERBATIM_MUTANTS_REACHED");
        if (path == nullptr) return;
        std::ofstream out(path);
        for (size_t i = 0; i < reached.size(); ++i) {
            if (reached[i] != 0) out << i << '\n';
        }
    }
};
const WriteReached write_reached;

}  // namespace

const int active = from_environment();
std::array<uint8_t, kMaxMutants> reached;

}  // namespace verbatim::mutation
