#include "engine/request/sampling.h"

#include <bit>

namespace verbatim {

void add_to(Digester& digester, const SamplingParams& params) {
    digester.add(std::bit_cast<uint32_t>(params.temperature));
    digester.add(params.top_k);
    digester.add(std::bit_cast<uint32_t>(params.top_p));
    digester.add(std::bit_cast<uint32_t>(params.repetition_penalty));
    digester.add(std::bit_cast<uint32_t>(params.presence_penalty));
    digester.add(std::bit_cast<uint32_t>(params.frequency_penalty));
    digester.add(params.seed);
}

}  // namespace verbatim
