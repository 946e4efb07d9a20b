// tools/replay/from_record.h: `verbatim replay --from run.rec`: repeats a recorded run up to a step, shows its state.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"
#include "tools/program/recorded_run.h"

namespace verbatim::tools {

struct FromRecordFlags {
    std::string record;       // empty: --from is not given
    RerunFlags rerun;         // from --executor, --threads, --isa and --model, if given
    int64_t until_step = -1;  // the last step to run; -1: all
    std::string show;         // "cache": the cache's contents
    std::string cache_graph;  // file, Graphviz
    std::string cache_svg;    // file
    std::string timeline;     // file, of the whole record
};

// Prints the last step's plan and batch, and the output of the flags; writes their files. Errors: the record, the
// model, a file that cannot be written.
[[nodiscard]] Status replay_from_record(const FromRecordFlags& flags);

}  // namespace verbatim::tools
