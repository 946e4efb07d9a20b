// reference/records/request_share.h: owns each request's contribution to the share that a comparison of two records
// covers.
//
// Units: requests; positions of prompts and answers; tokens of answers; logits (rows that reported tokens were sampled
// from); states (digests of heads). A position of the prompt is compared when both records hold digests and something
// that was computed from the prompt was compared; one of the answer when its token was.
#pragma once

#include <cstdint>
#include <string>

#include "reference/records/run_index.h"
#include "reference/records/verdict.h"

namespace verbatim::records {

struct ComparedCounts {
    int64_t tokens = 0;
    int64_t logits = 0;      // rows
    int64_t operations = 0;  // digests of operations, or of layers
    int64_t states = 0;
    ComparedCounts& operator+=(const ComparedCounts& other);
    friend bool operator==(const ComparedCounts&, const ComparedCounts&) = default;
};

// The two records' names in reasons.
struct ComparedSides {
    std::string first = "the record";
    std::string second = "the run made again";
    // Both were recorded, and either may lack requests of the other. Otherwise the second is a rerun of the first, and
    // it may go on where the record ends.
    bool are_peers = false;
};

class ShareOfRequests {
public:
    ShareOfRequests(const RunIndex& first, const RunIndex& second, const ComparedSides& sides);

    void ordinary(const RequestIndex& request);       // without a promise of bits in another run
    void other_prompt(const RequestIndex& request);   // the second record's request of this name has another prompt
    void only_in_first(const RequestIndex& request);  // started in the first record only
    void only_in_second(const RequestIndex& request);
    void never_started(const RequestIndex& mine, const RequestIndex& other);  // in the first record
    // In both, up to the shorter; `compared`: the compared part.
    void both(const RequestIndex& mine, const RequestIndex& other, const ComparedCounts& compared, bool differs);

    [[nodiscard]] const ComparedShare& share() const { return share_; }

private:
    void leave_out(const std::string& reason, Promise promise, const RequestIndex& request);
    void note_ends();
    void note_levels();
    // Whether both records hold digests of some values, and why values are left out where they do not.
    struct Digests {
        bool in_both = false;
        std::string lacking;
        Promise promise = Promise::kNone;
    };
    [[nodiscard]] Digests digests_in(bool (*holds)(const RunIndex&)) const;
    void states_of_both(const RequestIndex& mine, const RequestIndex& other, const ComparedCounts& compared,
                        bool differs);

    const RunIndex& first_;
    const RunIndex& second_;
    const ComparedSides sides_;
    ComparedShare share_;
};

}  // namespace verbatim::records
