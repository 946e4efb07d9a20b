#include "traces/read.h"

#include "traces/verbatim_csv.h"
namespace verbatim::traces { }
