#include "traces/csv_columns.h"

#include <algorithm>
#include <cstring>

namespace verbatim::traces {

int LineFeeder::read(char* buffer, int size) {
    int done = 0;
    while (done < size && !at_end_) {
        if (used_ == line_.size()) {
            auto line = input_.next_line();
            if (!line || !*line) {
                if (!line) failed_ = line.error();
                at_end_ = true;
                break;
            }
            line_.assign(**line);
            line_ += '\n';
            used_ = 0;
        }
        const size_t count = std::min(line_.size() - used_, static_cast<size_t>(size - done));
        std::memcpy(buffer + done, line_.data() + used_, count);
        used_ += count;
        done += static_cast<int>(count);
    }
    return done;
}

}  // namespace verbatim::traces
