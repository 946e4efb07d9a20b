// traces/shapes.h: owns synthetic traces of shapes that caches find hard, by seed. Nothing in them marks shared text:
// a prompt is one message without checkpoints, but for an agent's turns.
//
//   documents   long documents with many questions each; some are asked far more often than others (Zipf), and a
//               question in five has a follow-up in its conversation
//   one-shots   one agent whose conversation grows, among many short prompts that never come back
//   tool-loops  agents of a few kinds, that share their instructions, each in a long loop of tool results
//   templates   instructions in two variants that part in the middle (A/B), with an own text behind them
#pragma once

#include <cstdint>

#include "engine/base/result.h"
#include "traces/trace.h"

namespace verbatim::traces {

enum class Shape : uint8_t { kDocuments, kOneShots, kToolLoops, kTemplates };

struct ShapeOptions {
    Shape shape = Shape::kDocuments;
    uint64_t seed = 0;
    int64_t requests = 4000;
    double rate = 3;  // requests per second
};
[[nodiscard]] Status validate(const ShapeOptions& options);

// Requests in order of arrival; a request's tokens depend only on the shape, the seed and what came before it.
// REQUIRES: validate(options) returns no problem.
[[nodiscard]] Trace generate_shape(const ShapeOptions& options);

}  // namespace verbatim::traces
