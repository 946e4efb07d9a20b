// tools/simulate/perfetto.h: a simulation's steps as a trace that Perfetto and Chrome (about:tracing) show.
#pragma once

#include "files/output_file.h"
#include "simulator/run.h"

namespace verbatim::tools {

// A slice for each step that computed; counters of running and waiting requests and of used memory. Times in
// microseconds with three decimals, as the format requires. It is written, and compressed (gzip), in pieces, and the
// file is finished. REQUIRES: the run recorded its steps.
Status write_perfetto(const SimulateRun& run, bool compressed, files::OutputFile& file);

}  // namespace verbatim::tools
