// tools/model/report.h: the output of `verbatim model info` and `model check`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reference/loader/golden_check.h"
#include "reference/model/model_config.h"
#include "reference/model/weights.h"
#include "reference/records/verdict.h"

namespace verbatim::tools {

struct ModelInfo {
    std::string name;
    reference::ModelConfig config;
    std::optional<reference::LoadReport> load;  // of a checkpoint
    std::string activations;                    // what exact.fp8 makes of its recipe's; empty: they are not quantised
    uint64_t memory_bytes = 0;                  // 0: not asked
};

std::string info_table(const ModelInfo& info);
std::string info_json(const ModelInfo& info);

// Different: an error is beyond its bound. Not all compared: one of the models had no comparable logits, since a set of
// experts differs (within its margin) at the first position of every prompt.
records::Verdict verdict_of(const reference::GoldenReport& report);
std::string check_table(const std::string& checkpoint, const reference::GoldenReport& report);
std::string check_json(const std::string& checkpoint, const reference::GoldenReport& report);

}  // namespace verbatim::tools
